"""Views and reports of a run that is training: a real hub, a real socket."""

import math
import re

import nbformat
import pytest
from live_run import LiveRun, eventually, tensors_frame

import megalens
from megalens.pictures.report import build_report
from megalens.pictures.widgets import VIEW_MIME
from megalens.pictures.widgets.picture import draw_picture
from megalens.runs import open_run, run_rows

pytestmark = pytest.mark.slow

WAIT = 60


def test_a_view_of_a_live_run_names_it_and_holds_its_picture_but_not_its_token(training):
    training.step(3)
    with megalens.connect() as run:
        run.wait(3, timeout=WAIT)
        training.step()
        run.wait(4, timeout=WAIT)
        bundle = run.heatmap("HiddenStates", layers="0-1")._repr_mimebundle_()
    assert bundle[VIEW_MIME]["run"] == {"id": training.id, "name": "gpt-test", "folder": None}
    assert "Block output" in bundle["text/html"]
    assert bundle["text/html"].count("<image") == 2
    assert training.token not in str(bundle)


VIEWS = [
    {"view": "heatmap", "flag": "HiddenStates", "layers": "all"},
    {"view": "heatmap", "flag": "HiddenStates", "layers": "1", "step": 2, "scale": "own"},
    {"view": "heatmap", "flag": "QKV_mat_mul", "part": "k"},
    {"view": "trend", "flag": "HiddenStates", "statistic": "mean", "layers": "0-2"},
    {"view": "trend", "flag": "HiddenStates", "kind": "heatmap", "steps": [2, 4]},
    {"view": "trend", "flag": "HiddenStates", "pass": "backward"},
    {"view": "scalars", "names": ["loss"]},
    {"view": "history", "flag": "HiddenStates"},
    {"view": "heatmap", "flag": "HiddenStates", "layers": "8"},
    {"view": "trend", "flag": "NoSuchFlag"},
]


def test_pictures_of_a_live_run_are_those_of_its_recording(tmp_path, monkeypatch):
    asked = []
    batches = run_rows.ReceivedRows.batches

    def noted(self, stream, *rest):
        asked.append(stream)
        return batches(self, stream, *rest)

    monkeypatch.setattr(run_rows.ReceivedRows, "batches", noted)

    def pictures(run):
        drawn = [draw_picture(run, options) for options in VIEWS]
        # Clips are numbered on over all pictures of the process.
        return [(re.sub(r"clip\d+", "clip", svg), words) for svg, words in drawn]

    training = LiveRun(tmp_path / "runtime", "--record", tmp_path / "runs").announce()
    try:
        monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
        with megalens.connect(training.id) as run:
            training.step(2)
            for part in ("q", "k"):
                training.send(
                    tensors_frame(2, layers=[0], flag="QKV_mat_mul", part=part, value=math.pi * len(part))
                )
            training.send(tensors_frame(2, layers=[2], side="backward", value=math.nan))
            training.step(3)
            run.wait(5, timeout=WAIT)
            eventually(lambda: run.scalars().num_rows == 5, "the last rows")
            assert run.run.live
            # The hub writes a row after it has passed it on.
            folder = tmp_path / "runs" / training.id
            eventually(lambda: open_run(folder).table("scalars").num_rows == 5, "they are recorded")
            growing = pictures(run.run)
            assert asked == []
            # As of a hub on another machine.
            run.run._folder = None
            live = pictures(run.run)
            assert {"tensors", "scalars"} <= set(asked)
        training.finish()
        assert training.process.wait(WAIT) == 0
    finally:
        training.close()
    asked.clear()
    with megalens.open(folder) as recorded:
        after = pictures(recorded.run)
    assert asked == []
    assert live == after
    assert growing == after
    assert [bool(svg) for svg, _ in live] == [True] * 8 + [False] * 2
    assert "Block output, no compression, layers 0 to 3, step 5." in live[0][1]
    assert "It has HiddenStates, QKV_mat_mul." in live[-1][1]


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
    assert "Block output, maximum of layers 0 to 3" in text
