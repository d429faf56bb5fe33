"""Compare the explorer's loops over merged groups with arquero's verbs: ``python -m bench.tables [--quick]``.

Both run in one Node process on the same groups and take turns in every block; their answers are checked to agree.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from pathlib import Path

from .common import Row, ratio, write_results
from .node_side import NodeSide, node_version

_WHAT = (
    "ratio of two stats",
    "difference of two runs",
    "against the first value",
    "trailing mean of 20",
    "largest 40 series",
    "map of layer × step",
    "rows in order of value",
    "comma-separated values",
)
_WAYS = ("loop", "arquero")


def main() -> int:
    """Measure, check that both agree, write the results and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer groups and blocks")
    quick = parser.parse_args().quick
    keys, steps, blocks = (50, 100, 3) if quick else (500, 200, 5)
    turns = [(way, what) for what in _WHAT for way in _WAYS]
    times: dict[tuple[str, str], list[float]] = {turn: [] for turn in turns}
    with NodeSide(Path(__file__).parent / "tables-ways.mjs", str(keys), str(steps)) as node:
        for what in _WHAT:
            loop, arquero = (node.ask(f"{way} {what}")["sums"]["sum"] for way in _WAYS)
            if not math.isclose(loop, arquero, rel_tol=1e-9):
                raise RuntimeError(f"{what}: the loop found {loop!r} and arquero {arquero!r}.")
        order = random.Random(0)
        # The first rounds are the compilers'.
        for block in range(-2, blocks):
            for way, what in order.sample(turns, len(turns)):
                taken = node.ask(f"{way} {what}")["ms"]
                if block >= 0:
                    times[way, what].append(taken)
    lines = []
    for what in _WHAT:
        loop, arquero = (times[way, what] for way in _WAYS)
        found = ratio(arquero, loop, middle=statistics.median)
        lines += [
            Row(f"{what}: loop over typed arrays", statistics.median(loop), "ms", extra={"ms": loop}),
            Row(f"{what}: arquero", statistics.median(arquero), "ms", extra={"ms": arquero}),
            Row(f"{what}: arquero ÷ loop", found.value, "×", found.low, found.high),
        ]
    path = write_results(
        "tables",
        f"Tables of {keys * steps:,} merged groups",
        lines,
        how=(
            f"{keys} layers at {steps:,} steps, merged; medians of {blocks} blocks in which the ways take turns in random order, checked to agree."
        ),
        quick=quick,
        facts={"node": node_version()},
    )
    print(path.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
