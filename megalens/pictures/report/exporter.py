"""``jupyter nbconvert --to megalens``: nbconvert's page of a notebook, in which views stay interactive."""

from __future__ import annotations

import html
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from nbconvert.exporters import HTMLExporter
from nbconvert.preprocessors import Preprocessor

from ...protocol import MegalensError
from ...runs.opening import open_run
from ..widgets.base import VIEW_MIME
from .build import build_report

_ALONE_TO_INSIDE = (
    (
        b"\n</style>",
        b"header,.facts,main>section,footer{display:none}main{padding:0}figure{margin:0}</style>",
    ),
    # Light as nbconvert's page, whatever the reader's other pages are.
    (b'<html lang="en"', b'<html lang="en" data-theme="light"'),
    (b"(prefers-color-scheme:dark)", b"(width:0)"),
    (b"(prefers-color-scheme: dark)", b"(width:0)"),
)
# Of the view's toolbar, its words, and what stands around them.
_BESIDE_PICTURE = 250


class LiveViews(Preprocessor):
    """Puts reports of one view each in the place of views whose recording lies beside the notebook.

    Each stands in a frame of its own that may run its own script and reach nothing. What has no recording
    there keeps its picture.
    """

    def preprocess(self, notebook: Any, resources: Any) -> tuple[Any, Any]:
        here = Path(resources.get("metadata", {}).get("path") or ".")
        for cell in notebook.cells:
            for output in cell.get("outputs", ()):
                data = output.get("data", {})
                frame = _frame(here, data.get(VIEW_MIME), str(data.get("text/html", "")))
                if frame is not None:
                    # Without the widget, which nbconvert would take first.
                    output["data"] = {"text/html": frame}
        return notebook, resources


class LiveHTML(HTMLExporter):
    """nbconvert's own page, with :class:`LiveViews`."""

    export_from_notebook = "HTML with live Megalens views"

    def _init_preprocessors(self) -> None:
        super()._init_preprocessors()  # type: ignore[no-untyped-call]
        # The last, as what is executed has its outputs then.
        self.register_preprocessor(LiveViews, enabled=True)  # type: ignore[no-untyped-call]


def _frame(here: Path, view: Any, picture: str) -> str | None:
    """Return the frame of a view; None where there is nothing to make it of."""
    with suppress(MegalensError, OSError, TypeError, KeyError, ValueError, AttributeError):
        folder = (here / view["run"]["folder"]).resolve()
        # A notebook names no folder but those beside it.
        if not folder.is_relative_to(here.resolve()):
            return None
        run = open_run(folder)
        try:
            if run.id != view["run"]["id"]:
                return None
            page = build_report(run, [json.loads(json.dumps(view["options"]))])
            for old, new in _ALONE_TO_INSIDE:
                page = page.replace(old, new)
        finally:
            run.close()
        heights = [float(each) for each in re.findall(r'<svg[^>]*? height="([\d.]+)"', picture)]
        return (
            '<iframe sandbox="allow-scripts" loading="lazy" title="Megalens view" style="width:100%;border:0;'
            f'height:{round(sum(heights) or 400) + _BESIDE_PICTURE}px" '
            f'srcdoc="{html.escape(page.decode())}"></iframe>'
        )
    return None
