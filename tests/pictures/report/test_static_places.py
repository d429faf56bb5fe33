"""Notebooks where no kernel and no JupyterLab is: their pictures, how much they carry, and nbconvert's pages."""

import html
import json
import re
import warnings

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert.exporters import HTMLExporter
from recorded_run import RUN_ID, write_run

from megalens.pictures.report.exporter import LiveHTML
from megalens.protocol import VIEW_NAMES, view_about

pytestmark = pytest.mark.slow

MOST_BYTES = 200_000


def notebook_of(*sources):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


def executed(folder, *sources):
    notebook = notebook_of(*sources)
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, timeout=200).execute()
    return notebook


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("notebooks")
    write_run(home / "megalens-runs" / RUN_ID)
    return home


OPEN = f"import megalens\nrun = megalens.open('megalens-runs/{RUN_ID}')"
# The others take their defaults.
NEEDED = {name: '"MLP1_mat_mul"' for name in VIEW_NAMES if view_about(name)["needs"]["flag"]}
VIEWS = [f"run.{view_about(name)['method']}({NEEDED.get(name, '')})" for name in VIEW_NAMES]


@pytest.fixture(scope="module")
def saved(home):
    return executed(home, OPEN, *VIEWS)


@pytest.fixture(scope="module")
def saved_elsewhere(home):
    """As a front end saves it whose views come over the comm, with the widgets' state."""
    return executed(home, f"{OPEN}\nmegalens.use_widgets('anywidget')", VIEWS[1])


def outputs_of(notebook):
    return [output["data"] for cell in notebook.cells for output in cell.outputs]


def test_every_view_has_a_caption_and_a_picture_or_the_reason_why_not(saved):
    found = outputs_of(saved)
    assert len(found) == len(VIEWS)
    for code, data in zip(VIEWS, found, strict=True):
        caption = re.search("<figcaption>(.*)</figcaption>", data["text/html"]).group(1)
        assert len(caption) > 20, code
        assert "<script" not in data["text/html"], code
    drawn = {code for code, data in zip(VIEWS, found, strict=True) if "<svg" in data["text/html"]}
    assert len(drawn) >= 4


def test_a_saved_notebook_carries_at_most_200_kb_a_view(saved, saved_elsewhere):
    for code, data in zip(VIEWS, outputs_of(saved), strict=True):
        assert len(json.dumps(data)) <= MOST_BYTES, code
    # Every widget's state too, of the view's layout as well.
    assert "AnyModel" in nbformat.writes(saved_elsewhere)
    assert len(nbformat.writes(saved_elsewhere)) <= MOST_BYTES


def test_nbconvert_shows_the_picture_and_the_caption(saved, home):
    page, _ = HTMLExporter().from_notebook_node(saved, {"metadata": {"path": str(home)}})
    assert page.count('<figure class="jp-MegalensPicture"') == len(VIEWS)


def test_our_exporter_keeps_views_interactive_each_in_a_frame_of_its_own(saved, home):
    page, _ = LiveHTML().from_notebook_node(saved, {"metadata": {"path": str(home)}})
    frames = re.findall(r'<iframe [^>]*?sandbox="allow-scripts" srcdoc="([^"]*)"', page)
    assert len(frames) == len(VIEWS)
    inner = html.unescape(frames[1])
    assert "Content-Security-Policy" in inner
    assert 'id="megalens-data"' in inner
    assert len(inner) < 2_000_000


def test_a_view_without_its_recording_keeps_its_picture(saved, tmp_path):
    page, _ = LiveHTML().from_notebook_node(saved, {"metadata": {"path": str(tmp_path)}})
    assert "<iframe" not in page
    assert page.count('<figure class="jp-MegalensPicture"') == len(VIEWS)


@pytest.mark.parametrize("folder", ["../outside", "/etc", 3, None])
def test_a_notebook_names_no_folder_but_those_beside_it(home, tmp_path, folder):
    write_run(tmp_path / "outside")
    view = {"format": 1, "run": {"id": RUN_ID, "folder": folder}, "options": {"view": "scalars"}}
    notebook = notebook_of("run")
    data = {"application/vnd.megalens.view+json": view, "text/html": "<p>picture</p>"}
    notebook.cells[0].outputs = [nbformat.v4.new_output("display_data", data)]
    (tmp_path / "book").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page, _ = LiveHTML().from_notebook_node(notebook, {"metadata": {"path": str(tmp_path / "book")}})
    assert "<iframe" not in page
