"""What importing costs: ``import megalens``, what describes a trace, ``megalens.trace`` over torch's own import, and a command that is mostly that.

Run ``python -m bench.imports`` (``--quick`` for few rounds, which prove only that it works).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.common import Row, asked, judged, ratio, report
from bench.lab import ROOT

__all__ = ["main"]

# What is timed, what must be imported before, and the seconds that it may take.
_CASES = (
    ("import megalens", "", "import megalens", 0.15),
    ("from megalens import Tile", "", "from megalens import Tile", 0.15),
    ("megalens.trace, over torch's import", "import torch", "import megalens; megalens.trace", 0.2),
)
_TORCH = ("", "import torch")
_INFO = ("-m", "megalens", "info", str(ROOT / "protocol/fixtures/recordings/finished"))


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/imports.json``; return the page of all results."""
    rounds = 3 if asked(__doc__, arguments, "few rounds").quick else 9
    # In turn, so that whatever else the machine does meets all of them; the first round compiles what an installation has compiled, and fills the system's cache of files.
    with tempfile.TemporaryDirectory() as compiled:
        found = [
            [
                *(_seconds(*pair, compiled) for pair in (_TORCH, *(case[1:3] for case in _CASES))),
                _by_the_clock(_INFO, compiled),
            ]
            for _ in range(rounds + 1)
        ][1:]
    torch, *ours, info = zip(*found, strict=True)
    rows = [Row("import torch", statistics.median(torch), "s", note="for comparison")]
    for (what, _, _, most), seconds in zip(_CASES, ours, strict=True):
        middle = statistics.median(seconds)
        part = ratio(seconds, torch, middle=statistics.median)
        rows.append(judged(what, middle, "s", f"≤ {most:g}", low=min(seconds), high=max(seconds)))
        rows.append(Row(f"{what} ÷ import torch", part.value, "×", part.low, part.high))
    rows.append(
        judged(
            "megalens info of a recording, by the clock",
            statistics.median(info),
            "s",
            "≤ 0.3",
            low=min(info),
            high=max(info),
        )
    )
    how = (
        f"Each of {rounds} rounds times each line in a fresh process, in turn. Seconds are those of the processor: medians, with the least and most in the place of an interval; "
        f"intervals of ratios: 95 % bootstrap over rounds."
    )
    return report("imports", "What importing costs", rows, how=how, quick=rounds == 3)


def _seconds(before: str, code: str, compiled: str) -> float:
    # Of the processor: what a clock shows where nothing else runs, since an import waits for nothing but files.
    timed = f"import time; {before or 'pass'}; began = time.process_time(); {code}; print(time.process_time() - began)"
    return float(_said(("-c", timed), compiled))


def _by_the_clock(words: Sequence[str], compiled: str) -> float:
    began = time.perf_counter()
    _said(words, compiled)
    return time.perf_counter() - began


def _said(words: Sequence[str], compiled: str) -> str:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, env=environment
    ).stdout


if __name__ == "__main__":
    main()
