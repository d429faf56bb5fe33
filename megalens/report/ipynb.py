"""The notebook report: cells with the views' own code, and pictures that show anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import nbformat

from .code import to_code
from .facts import Facts
from .picture import Picture
from .theme import LIGHT
from .words import date_text

__all__ = ["build_notebook"]

# nbformat has types for nothing that it makes.
_v4: Any = nbformat.v4
_VEGA_LITE_MIME = "application/vnd.vegalite.v5+json"
_VEGA_LITE_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def build_notebook(
    facts: Facts,
    pictures: Sequence[Picture],
    title: str,
    opening: str,
    *,
    progress: Callable[[int, int, str], object] | None = None,
) -> str:
    """Return the notebook's JSON text, valid by nbformat.

    Parameters
    ----------
    facts : Facts
        What is said of the run.
    pictures : sequence of Picture
        The views, in order.
    title : str
        Title of the notebook.
    opening : str
        The Python expression that opens the same run again.
    progress : callable, optional
        Called with (done, total, what comes next); raise from it to cancel.
    """
    notebook = _v4.new_notebook()
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["language_info"] = {"name": "python"}
    cells: list[Any] = [
        _v4.new_markdown_cell(_introduction(facts, title)),
        _v4.new_code_cell(f"import megalens\n\nrun = {opening}"),
    ]
    for place, picture in enumerate(pictures):
        if progress:
            progress(place, len(pictures), f"Drawing {picture.title}")
        cells.append(_cell(picture, place + 1))
    if facts.traced or facts.changes:
        cells.append(_v4.new_markdown_cell(_tables(facts)))
    for place, cell in enumerate(cells):
        cell["id"] = f"megalens-{place}"
    notebook.cells = cells
    nbformat.validate(notebook)
    text: str = _v4.nbjson.writes(notebook)
    return text


def _cell(picture: Picture, count: int) -> Any:
    caption = " ".join(picture.caption)
    words = f"{picture.title}. {caption}".strip()
    data: dict[str, Any] = {"text/plain": words}
    if not picture.empty:
        spec = {"$schema": _VEGA_LITE_SCHEMA, **picture.spec(LIGHT)}
        data = {_VEGA_LITE_MIME: spec, "image/svg+xml": picture.svg(LIGHT), **data}
    output = _v4.new_output("execute_result", data=data, execution_count=count, metadata={})
    return _v4.new_code_cell(to_code(picture.options), outputs=[output], execution_count=count)


def _introduction(facts: Facts, title: str) -> str:
    lines = [
        f"# {_plain(title)}",
        "",
        f"Run {_plain(facts.name)}, `{facts.id}`. Made {date_text(time.time())} with Megalens.",
        "",
    ]
    lines += ["| | |", "|---|---|", *(f"| {_plain(term)} | {_plain(text)} |" for term, text in facts.facts)]
    return "\n".join(lines)


def _tables(facts: Facts) -> str:
    lines: list[str] = []
    if facts.traced:
        lines += [
            "## What was traced",
            "",
            "| trace point | layers | compressor | steps |",
            "|---|---|---|---|",
        ]
        lines += ["| " + " | ".join(_plain(cell) for cell in row) + " |" for row in facts.traced]
    if facts.changes:
        lines += ["", "## Changes during the run", "", "| from step | change |", "|---|---|"]
        lines += [f"| {_plain(step)} | {_plain(text)} |" for step, text in facts.changes]
    return "\n".join(lines).strip()


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is."""
    marked = "".join(f"\\{letter}" if letter in "\\`*_[]<>#|" else letter for letter in text)
    return " ".join(marked.split())
