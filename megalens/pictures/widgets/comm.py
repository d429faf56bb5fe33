"""Views where there is no labextension: which front end there is, and the rows of a view over its comm."""

from __future__ import annotations

import importlib.util
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from traitlets import Unicode

from ...protocol import MegalensError
from ...runs import ClientError
from ...runs.languages import chosen_locale, words_of
from ...runs.link import PassedLink, Said
from ...runs.live import LiveRun
from ...runs.opening import compared_answers, neighbours
from ..engine.process import BUNDLE

if TYPE_CHECKING:
    from ...runs import Run

_DOORS = ("labextension", "anywidget")
_MODULE, _LOADER = BUNDLE.with_name("view-module.js.z"), BUNDLE.with_name("view-loader.js")
_MOST_LISTED = 200
_MOST_LINKS = 8
_LIVE_RECORDED = 1

_chosen: str | None = None


class FrontEndError(MegalensError, ValueError):
    """A front end cannot be used as was asked for: what was expected, what came, what to try."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def use_widgets(door: str | None = None) -> None:
    """Choose how views made from now on reach the page that shows them.

    Parameters
    ----------
    door : {"labextension", "anywidget"}, optional
        ``"labextension"``: JupyterLab's own way, in which the page asks the Jupyter server. ``"anywidget"``:
        one module for any front end that shows anywidget's widgets; its rows come from the kernel. When
        absent the front end decides: anywidget in marimo, VS Code, Colab and Kaggle.

    Raises
    ------
    FrontEndError
        For another word, and where anywidget is not installed.
    """
    global _chosen
    if door is not None and door not in _DOORS:
        raise FrontEndError(f"use_widgets(…) takes {' or '.join(map(repr, _DOORS))}, got {door!r:.50}.")
    if door == "anywidget" and not _has_anywidget():
        raise FrontEndError(_LACKS)
    _chosen = door


_LACKS = (
    "Views are drawn by anywidget here, which is not installed. Install it: pip install 'megalens[anywidget]'"
)


def front_end() -> str | None:
    """Return the name of a front end where no labextension of ours can be; None for JupyterLab and others."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        return "marimo"
    if "google.colab" in sys.modules:
        return "Colab"
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
        return "Kaggle"
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if "__vsc_ipynb_file__" in getattr(shell, "user_ns", ()) or "VSCODE_PID" in os.environ:
        return "VS Code"
    return None


def lacking_words() -> str:
    """Return what to say beside a still picture that could be live; empty where nothing is missing."""
    return f"{_LACKS}." if front_end() is not None and not _has_anywidget() else ""


@cache
def _has_anywidget() -> bool:
    return importlib.util.find_spec("anywidget") is not None


def class_for(cls: Any) -> Any:
    """Return the class of a new view: the one that was named, or the same as anywidget's."""
    door = _chosen or ("labextension" if front_end() is None else "anywidget")
    if door == "labextension" or not _has_anywidget() or "_esm" in cls.__dict__:
        return cls
    return _comm_class(cls, _module(whole=front_end() == "marimo" and sys.platform != "emscripten"))


@cache
def _module(*, whole: bool) -> str:
    """Return the module of a widget: a few lines that ask for the views' own, or that itself as a whole.

    Front ends send and save it with each widget. marimo serves it as a file, which its page takes once and
    sooner than it would ask the kernel for it.
    """
    try:
        if whole:
            return zlib.decompress(_MODULE.read_bytes()).decode()
        return _LOADER.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FrontEndError(
            "This installation lacks the module of the views. Reinstall megalens; in a checkout run: npm run "
            "build:bundles"
        ) from None


@cache
def _comm_class(cls: Any, module: str) -> Any:
    from anywidget import AnyWidget

    own = {
        # What JupyterLab's way has in their place.
        name: Unicode(str(trait.default_value)).tag(sync=True)
        for name, trait in AnyWidget.class_own_traits().items()
    }
    return type(cls.__name__, (cls, AnyWidget), {**own, "_esm": module, "__module__": cls.__module__})


class CommRows:
    """Answers what the page of a view asks over its comm, and passes the hub's frames of a live run on.

    Nothing that comes is run or opened by name: a question names a method of ``runs/answers`` and a run, and
    is checked as the Jupyter server checks it.
    """

    def __init__(self, view: Any, run: Run | None) -> None:
        self._view = view
        self._run = run
        self._links: dict[str, PassedLink] = {}
        self._open = ExitStack()
        self._answers = None if run is None else self._open.enter_context(compared_answers(run))
        view.on_msg(self._take)

    def close(self) -> None:
        """End the links to hubs, and close the runs that were compared with. Safe twice."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._open.close()

    def _take(self, _: Any, content: Any, buffers: Any) -> None:
        if not isinstance(content, Mapping):
            return
        if isinstance(content.get("ask"), str):
            self._answer(content["ask"], content)
        elif isinstance(content.get("socket"), str):
            self._link(content["socket"], content)
        elif isinstance(content.get("module"), str):
            self._view.send({"module": content["module"]}, [_MODULE.read_bytes()])

    def _answer(self, ask: str, content: Mapping[str, Any]) -> None:
        body = content.get("body")
        try:
            found, data = self._found(str(content.get("method")), body if isinstance(body, Mapping) else {})
        except Exception as error:
            # Whatever it is, the page must not wait for it.
            words = getattr(error, "message", None) or f"The kernel failed: {type(error).__name__}."
            code, field = getattr(error, "code", "failed"), getattr(error, "field", None)
            self._view.send({"ask": ask, "refusal": {"code": code, "message": words, "field": field}})
            return
        self._view.send({"ask": ask, "json": found}, [data] if len(data) else None)

    def _found(self, method: str, body: Mapping[str, Any]) -> tuple[Any, bytes | memoryview]:
        if method == "words":
            # The view speaks as the browser that shows it, wherever the kernel is.
            locale = chosen_locale(str(body.get("accepted")))
            return {"locale": locale, "words": words_of(locale)}, b""
        if self._run is None or self._answers is None:
            raise ClientError("This view was made without a run. Make it with run.heatmap(…).")
        if method == "runs":
            return {"runs": self._listed(self._run), "warnings": []}, b""
        run_id = str(body.get("run"))
        if method == "run":
            if run_id == self._run.id and (entry := _live_entry(self._run)) is not None:
                return entry, b""
            method = "detail"
        answers = self._answers(run_id)
        if answers is None:
            raise ClientError(f"There is no run {run_id!r:.60} beside this one.", code="not-found")
        found: tuple[Any, bytes | memoryview] = answers.answer(method, body)
        return found

    def _listed(self, run: Run) -> list[dict[str, Any]]:
        own = {"id": run.id, "name": run.name, "started": run.started, "state": "recorded"}
        others = [
            {"id": each.id, "name": each.name, "started": each.started, "state": "recorded"}
            for _, each in zip(range(_MOST_LISTED), neighbours(run), strict=False)
        ]
        return [_live_entry(run) or own, *others]

    def _link(self, name: str, content: Mapping[str, Any]) -> None:
        if "run" in content:
            self._begin(name, str(content["run"]))
            return
        link = self._links.get(name)
        if link is None:
            return
        if isinstance(content.get("text"), str):
            link.send(content["text"])
        if isinstance(content.get("took"), int):
            link.took(content["took"])
        if "close" in content:
            self._links.pop(name).close()

    def _begin(self, name: str, run_id: str) -> None:
        run = self._run
        target = run.link_target if isinstance(run, LiveRun) and run.id == run_id else None
        if target is None:
            self._said(name)([{"closed": 4404}], [])
            return
        # Of pages that were reloaded nobody says that they are gone.
        while len(self._links) >= _MOST_LINKS:
            self._links.pop(next(iter(self._links))).close()
        self._links[name] = PassedLink(target, self._said(name))

    def _said(self, name: str) -> Said:
        def said(what: Sequence[Mapping[str, Any]], frames: Sequence[bytes]) -> None:
            self._view.send({"socket": name, "said": list(what)}, list(frames) or None)

        return said


def _live_entry(run: Run) -> dict[str, Any] | None:
    """Return what is said of a run that trains, as the Jupyter server's list has it; None of others."""
    if not isinstance(run, LiveRun) or not run.live or run.link_target is None:
        return None
    recorded = {} if run.folder is None else {"bytes": _LIVE_RECORDED}
    return {"id": run.id, "name": run.name, "state": "live", "started": run.started, **recorded}
