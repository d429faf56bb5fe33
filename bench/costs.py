"""The page *What it costs*: the table of what was promised, drawn from the results: ``python -m bench.costs`` writes it, ``--check`` says whether it is as it would be written."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .common import RESULTS, ROOT, judged

__all__ = ["main", "page"]

PAGE = ROOT / "docs" / "costs.md"
_BEGIN, _END = "<!-- table -->", "<!-- end of the table -->"


class Figure(NamedTuple):
    """One line of the table: a promise, and the row of a benchmark that begins so, with the goal, such as ``≤ 2``.

    ``others`` is how the row of the other way of the same run begins, ``part`` how the row does behind which both are looked for, where rows of several trainings have one name; of a
    quotient that is ``over`` one it is what a step takes more.
    """

    what: str
    of: str
    row: str
    most: str
    others: str = ""
    part: str = ""
    over: bool = False


_TAKEN = "**no core free**"
FIGURES = (
    Figure("a step, three flags as `Tile(96)`, recorded, no core free", "tracer", "QKV, MLP1, MLP2", "≤ 2 %", "baseline:", _TAKEN),
    Figure("· what `status.overhead` says of it: to be inside that interval", "tracer", "· what status.overhead says", "", "", _TAKEN),
    Figure("· nothing at all, measured in the same way", "tracer", "nothing, measured again", "", "", _TAKEN),
    Figure("· the floor: plain hooks that read the same values and keep nothing", "tracer", "floor:", "", "", _TAKEN),
    Figure("the same with a viewer", "tracer", "the same, recorded, with one viewer", "≤ 3 %", "baseline:", _TAKEN),
    Figure("the same, compiled", "compiled", "QKV, MLP1, MLP2", "≤ 2 %"),
    Figure("the same, tensor parallel on 2 processes", "megatron", "traced over without", "≤ 3 %", "baseline over without", over=True),
    Figure("statistics of parameters and gradients each step, no core free", "tracer", "parameters and gradients", "≤ 1 %", "", _TAKEN),
    Figure("moments kernel, float32, one thread, over one read", "moments_kernel", "float32, 1 thread: Megalens' kernel over", "≤ 1.5"),
    Figure("moments kernel, bfloat16, one thread, over one read", "moments_kernel", "bfloat16, 1 thread: Megalens' kernel over", "≤ 1.3"),
    Figure("tokens a second of a model of 12 × 768 with all views, over untraced", "generation", "12 layers, hidden 768: tokens a second with all", "≥ 0.8", "12 layers, hidden 768: tokens a second the peer"),
    Figure("the same of the demo's model of 4 × 128", "generation", "tokens a second with all", "≥ 0.8", "tokens a second the peer"),
    Figure("a text of 8,192 positions with its attention", "long_text", "8,192 positions read by a Llama of 4 layers of 4 heads, with attention", "≤ 3 s"),
    Figure("· its memory", "long_text", "8,192 positions read by a Llama of 4 layers of 4 heads, with attention: memory", "≤ 1024 MiB"),
    Figure("renderer of a page with three live views", "rendering", "processor time of the renderer, heatmap, trend and", "≤ 35 %"),
    Figure("first picture of the statistics of a live run", "live_moments", "in a page, from the command", "≤ 0.7 s"),
    Figure("first picture of 100 million rows", "large_runs", "1,000 series × 100,000", "≤ 2 s"),
    Figure("`close()` with 400 MB that are not packed yet", "sealing", "closing 400 MB", "≤ 1 s"),
    Figure("hub with 1,000 producers and 50 viewers: 99 of 100 steps are there after", "hub_load", "healthy viewers: a step late, 99", "≤ 200 ms"),
    Figure("· its memory", "hub_load", "memory of the hub", "≤ 250 MiB"),
)  # fmt: skip


def page(text: str, results: Path = RESULTS) -> str:
    """Return the page with its table as the results have it."""
    begin, end = text.index(_BEGIN) + len(_BEGIN), text.index(_END)
    lines = ["| what | here | 95 % | goal | the other way | repeat |", "|---|---|---|---|---|---|"]
    lines += [_line(each, results) for each in FIGURES]
    return "\n".join([text[:begin], "", *lines, "", text[end:]])


def _line(figure: Figure, results: Path) -> str:
    rows = json.loads((results / f"{figure.of}.json").read_text(encoding="utf-8"))["rows"]
    if figure.part:
        rows = rows[next(at for at, row in enumerate(rows) if row["what"].startswith(figure.part)) :]
    found = _found(rows, figure.row)
    others = figure.others and _found(rows, figure.others)
    if found is None:
        raise ValueError(
            f"{figure.of} has no row that begins with {figure.row!r}: run python -m bench {figure.of}"
        )
    value, low, high = (_value(found[each], figure) for each in ("value", "low", "high"))
    unit = "%" if figure.over else _unit(found["unit"])
    missed = figure.most and not judged(figure.what, value, unit, figure.most).met
    cells = [
        figure.what,
        f"{_text(value)} {unit}".strip(),
        "" if found["low"] is None else f"{_text(low)} to {_text(high)}",
        f"{figure.most}{' **missed**' if missed else ''}",
        f"{_text(_value(others['value'], figure))} {unit}".strip() if others else "",
        f"`python -m bench {figure.of}`",
    ]
    return f"| {' | '.join(cells)} |"


def _found(rows: Sequence[dict[str, Any]], begins: str) -> dict[str, Any] | None:
    exact = [row for row in rows if row["what"] == begins]
    return next(iter(exact or [row for row in rows if row["what"].startswith(begins)]), None)


def _value(value: float | None, figure: Figure) -> float:
    return 100 * ((value or 0) - 1) if figure.over else value or 0


def _unit(unit: str) -> str:
    return {"% of a step": "%", "% of a core": "%", "×": ""}.get(unit, unit)


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or say with ``--check`` whether it is as it would be written."""
    text = PAGE.read_text(encoding="utf-8")
    made = page(text)
    if "--check" in arguments:
        return int(made != text)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
