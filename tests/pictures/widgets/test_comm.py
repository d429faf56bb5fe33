"""Views without the labextension: who gets them, what their pages may ask, and a live run's frames over the comm."""

import json
import queue
import sys
import zlib
from types import SimpleNamespace

import pytest
from recorded_run import RUN_ID

import megalens
from megalens.pictures.engine.process import BUNDLE
from megalens.pictures.widgets import Heatmap, comm
from megalens.protocol import SUBPROTOCOL

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
WAIT = 30


@pytest.fixture
def over_comm():
    comm.use_widgets("anywidget")
    yield
    comm.use_widgets()


class Page:
    """What a page hears of a widget, and what it sends."""

    def __init__(self, widget):
        self.widget = widget
        self.heard = queue.Queue()
        widget.send = lambda content, buffers=None: self.heard.put((content, buffers))

    def sends(self, content):
        self.widget._handle_custom_msg(content, [])

    def asks(self, method, **body):
        self.sends({"ask": "a1", "method": method, "body": body})
        content, buffers = self.heard.get(timeout=WAIT)
        assert content["ask"] == "a1"
        return content, buffers


def front_ends(monkeypatch):
    """Each front end without a labextension of ours, as it shows in a process."""
    yield (
        "marimo",
        lambda: monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace(running_in_notebook=lambda: True)),
    )
    yield "Colab", lambda: monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace())
    yield "Kaggle", lambda: monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    yield "VS Code", lambda: monkeypatch.setenv("VSCODE_PID", "1")


@pytest.mark.parametrize("place", range(4))
def test_a_front_end_without_a_labextension_gets_a_view_over_the_comm(run, monkeypatch, place):
    assert run.heatmap("MLP1_mat_mul")._model_module == "megalens"
    name, enter = list(front_ends(monkeypatch))[place]
    enter()
    assert comm.front_end() == name
    view = run.heatmap("MLP1_mat_mul")
    assert view._model_module == "anywidget"
    assert isinstance(view, Heatmap)
    bundle = view._repr_mimebundle_()
    assert bundle[WIDGET_MIME]["model_id"] == view.model_id
    # marimo saves nothing, so that no still picture is drawn for it, and its page takes the module as a file.
    assert ("<svg" in bundle.get("text/html", "")) == (name != "marimo")
    packed = BUNDLE.with_name("view-module.js.z").read_bytes()
    assert (view._esm == zlib.decompress(packed).decode()) == (name == "marimo")
    assert name == "marimo" or len(view._esm) < 4000


def test_without_anywidget_the_still_picture_says_what_is_missing(run, monkeypatch):
    monkeypatch.setenv("VSCODE_PID", "1")
    monkeypatch.setattr(comm, "_has_anywidget", lambda: False)
    bundle = run.heatmap("MLP1_mat_mul")._repr_mimebundle_()
    assert WIDGET_MIME not in bundle
    assert "<svg" in bundle["text/html"]
    assert "pip install &#x27;megalens[anywidget]&#x27;" in bundle["text/html"]
    with pytest.raises(comm.FrontEndError, match=r"megalens\[anywidget\]"):
        comm.use_widgets("anywidget")
    with pytest.raises(comm.FrontEndError, match="got 'anywidgets'"):
        comm.use_widgets("anywidgets")


def test_a_page_gets_the_words_of_its_own_language_which_may_not_be_the_kernels(run, over_comm):
    page = Page(run.heatmap("MLP1_mat_mul"))
    (said, _), (english, _) = page.asks("words", accepted="zh-CN,en"), page.asks("words", accepted="fr")
    assert (said["json"]["locale"], said["json"]["words"]["Layers"]) == ("zh_CN", "层")
    assert english["json"] == {"locale": "", "words": {}}


def test_options_go_both_ways(run, over_comm):
    view = run.heatmap("MLP1_mat_mul", layers="1")
    seen = []
    view.observe(lambda change: seen.append(change["new"]), "layers")
    view.set_state({"options": {**view.options, "layers": "0-1"}})
    assert (view.layers, seen) == ("0-1", ["0-1"])
    view.layers = "2"
    assert view.get_state()["options"]["layers"] == "2"


def test_a_saved_widget_carries_a_few_lines_and_no_module(run, over_comm):
    view = run.heatmap("MLP1_mat_mul")
    assert len(json.dumps(view.get_state())) < 4000
    assert BUNDLE.with_name("view-module.js.z").stat().st_size <= 1_000_000


def test_a_page_gets_what_the_servers_endpoints_answer(run, over_comm):
    page = Page(run.heatmap("MLP1_mat_mul"))
    content, _ = page.asks("run", run=RUN_ID)
    assert content["json"]["hello"]["run"]["id"] == RUN_ID
    content, buffers = page.asks("stream", run=RUN_ID, stream="scalars", request={})
    assert content["json"] == {"every": 1}
    assert len(bytes(buffers[0])) > 100
    assert page.asks("runs")[0]["json"]["runs"][0]["id"] == RUN_ID
    page.sends({"module": "d1"})
    content, (packed,) = page.heard.get(timeout=WAIT)
    assert content == {"module": "d1"}
    assert packed == BUNDLE.with_name("view-module.js.z").read_bytes()


@pytest.mark.parametrize(
    ("method", "body", "code"),
    [
        ("__class__", {"run": RUN_ID}, "bad-parameter"),
        ("stream", {"run": RUN_ID, "stream": "../run.json", "request": {}}, None),
        ("stream", {"run": RUN_ID, "stream": "scalars", "request": {"columns": 3}}, None),
        ("detail", {"run": "../../etc"}, "not-found"),
        ("detail", {}, "not-found"),
        ("runs", "text", "-"),
    ],
)
def test_a_page_that_asks_wrongly_hears_why(run, over_comm, method, body, code):
    page = Page(run.heatmap("MLP1_mat_mul"))
    page.sends({"ask": "a1", "method": method, "body": body})
    content, _ = page.heard.get(timeout=WAIT)
    assert code == "-" or content["refusal"]["message"]
    assert code in (None, "-") or content["refusal"]["code"] == code


@pytest.mark.parametrize(
    "content",
    [None, 3, [], {"ask": 3}, {"socket": "s", "text": "x"}, {"socket": "s", "took": 5}, {"module": []}],
)
def test_what_means_nothing_is_passed_over(run, over_comm, content):
    page = Page(run.heatmap("MLP1_mat_mul"))
    page.sends(content)
    assert page.heard.empty()


def test_a_view_without_a_run_says_so(over_comm):
    page = Page(Heatmap({"id": "r1", "name": "gpt", "folder": None}, {"flag": "MLP1_mat_mul"}))
    assert "made without a run" in page.asks("run", run="r1")[0]["refusal"]["message"]


def test_a_recorded_run_has_no_link_to_a_hub(run, over_comm):
    page = Page(run.heatmap("MLP1_mat_mul"))
    page.sends({"socket": "s1", "run": RUN_ID})
    assert page.heard.get(timeout=WAIT) == ({"socket": "s1", "said": [{"closed": 4404}]}, None)


def linked(page, training):
    """Open a page's link to the hub, join it, and return the frames that came at once."""
    page.sends({"socket": "s1", "run": training.id})
    assert page.heard.get(timeout=WAIT)[0] == {"socket": "s1", "said": [{"open": True}]}
    peer = {"name": "panel", "version": "1"}
    join = {"type": "join", "protocol": SUBPROTOCOL, "role": "viewer", "peer": peer}
    page.sends({"socket": "s1", "text": json.dumps(join)})
    content, buffers = page.heard.get(timeout=WAIT)
    assert json.loads(content["said"][0]["text"])["type"] == "hello"
    return list(buffers or [])


@pytest.mark.slow
def test_a_live_run_s_frames_go_over_the_comm_as_the_page_takes_them(training, over_comm, monkeypatch):
    monkeypatch.setattr("megalens.runs.link._SENT_AHEAD", 1)
    training.step(2)
    with megalens.connect(training.id) as run:
        view = run.heatmap("HiddenStates")
        page = Page(view)
        assert page.asks("run", run=training.id)[0]["json"]["state"] == "live"
        frames = linked(page, training)
        while len(frames) < 2:
            page.sends({"socket": "s1", "took": 10**9})
            content, buffers = page.heard.get(timeout=WAIT)
            frames += buffers or []
            assert content["said"].count({}) == len(buffers or [])
            assert training.token not in str(content)
        assert all(len(each) > 100 for each in frames)
        link = view._rows._links["s1"]
        view.close()
        link._thread.join(WAIT)
        assert not link._thread.is_alive()
        view.close()


@pytest.mark.slow
def test_a_link_whose_page_takes_nothing_is_ended(training, over_comm, monkeypatch):
    monkeypatch.setattr("megalens.runs.link._SENT_AHEAD", 1)
    monkeypatch.setattr("megalens.runs.link._TAKEN_WITHIN", 0.01)
    training.step(2)
    with megalens.connect(training.id) as run:
        page = Page(run.heatmap("HiddenStates"))
        linked(page, training)
        assert page.heard.get(timeout=WAIT) == ({"socket": "s1", "said": [{"closed": 1001}]}, None)
