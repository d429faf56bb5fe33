"""Run cells in a real kernel of this Python, with JupyterLab's own packages alone. JSON on standard input: place, code and the class of the error that is to come, for each."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

# Lines have something to show by then.
WAIT = """
import time
end = time.monotonic() + 120
while (run.step or 0) < 20:
    assert time.monotonic() < end, run.step
    time.sleep(0.2)
"""


def main() -> int:
    """Run them, one after the other; say where the first failure was."""
    cells = json.load(sys.stdin)
    cells[0][1] += WAIT
    document = nbformat.v4.new_notebook()
    for _, code, error in cells:
        tags = {"tags": ["raises-exception"]} if error else {}
        document.cells.append(nbformat.v4.new_code_cell(code, metadata=tags))
    with contextlib.suppress(CellExecutionError):
        NotebookClient(document, timeout=120, kernel_name="python3").execute()
    for (place, code, expected), cell in zip(cells, document.cells, strict=True):
        if wrong := _wrong(cell, expected):
            print(f"{place}: {code}\n{wrong}", file=sys.stderr)
            return 1
    return 0


def _wrong(cell: Any, expected: str) -> str:
    """Return what is wrong with what a cell gave; nothing as a rule."""
    errors = [each for each in cell.outputs if each.output_type == "error"]
    if [each.ename for each in errors] != [expected] * bool(expected):
        return "\n".join(each.traceback[-1] for each in errors) or f"expected {expected}"
    for shown in (each.get("data", {}) for each in cell.outputs):
        picture = shown.get("text/html", "")
        if "application/vnd.jupyter.widget-view+json" in shown and "<svg" not in picture:
            return f"expected a picture, got {picture[:500]}"
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
