"""Views and reports of a run that is training: a real hub, a real socket."""

import nbformat
import pytest
from live_run import LiveRun

import megalens
from megalens.report import build_report
from megalens.widgets import VIEW_MIME

pytestmark = pytest.mark.slow

WAIT = 20


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.chdir(tmp_path)
    live = LiveRun(tmp_path / "runtime").announce()
    yield live
    live.close()


def test_a_view_of_a_live_run_names_it_and_holds_its_picture_but_not_its_token(training):
    training.step(3)
    with megalens.connect() as run:
        run.wait(3, timeout=WAIT)
        training.step()
        run.wait(4, timeout=WAIT)
        bundle = run.heatmap("HiddenStates", layers="1-2")._repr_mimebundle_()
    assert bundle[VIEW_MIME]["run"] == {"id": training.id, "name": "gpt-test", "folder": None}
    assert "Block output" in bundle["text/html"]
    assert bundle["text/html"].count("<image") == 2
    assert training.token not in str(bundle)


def test_a_report_of_a_run_that_was_just_connected_to_holds_what_came_before(training):
    training.step(5)
    with megalens.connect(training.id) as run:
        pages = {kind: build_report(run.run, format=kind).decode("utf-8") for kind in ("html", "ipynb")}
    assert "5 steps, 1 to 5" in pages["html"]
    assert training.token not in pages["html"] + pages["ipynb"]
    notebook = nbformat.reads(pages["ipynb"], 4)
    assert notebook.cells[1].source.endswith(f'megalens.connect("{training.id}")')


def test_the_facade_writes_a_report_from_widgets(training, tmp_path):
    training.step(4)
    with megalens.connect() as run:
        run.wait(3, timeout=WAIT)
        views = [run.scalars_view(), run.trend("HiddenStates", statistic="max")]
        page = run.report("report.html", views, "Two views")
    text = page.read_text(encoding="utf-8")
    assert page == tmp_path / "report.html" or page.resolve() == (tmp_path / "report.html").resolve()
    assert "<h1>Two views</h1>" in text
    assert "Block output, maximum of layers 1 to 4" in text
