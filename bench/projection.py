"""Measure what a page waits for when it projects vectors: ``python -m bench.projection [--quick]``.

The product's own worker runs in a thread of Node; what it finds is compared with numpy.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .common import Row, asked, report
from .lab import NodeSide, node_version

_CLOSE = 1e-5


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure, check against numpy, write the results and print the table."""
    quick = asked(__doc__, arguments, "fewer points, one repetition").quick
    many, some, times = (1000, 500, 1) if quick else (10_000, 5000, 3)
    rng = np.random.default_rng(0)
    rows = []
    with tempfile.TemporaryDirectory(prefix="megalens-bench-") as folder, NodeSide("projections") as node:

        def ask(way: str, points: NDArray[np.float32]) -> list[dict[str, Any]]:
            file = Path(folder) / "points.f32"
            file.write_bytes(points.tobytes())
            line = f"{way} {points.shape[0]} {points.shape[1]} {file}"
            repeated = 1 if way == "umap-js" else times
            # The first is the compiler's.
            return [node.ask(line) for _ in range(repeated + (0 if way == "umap-js" else 1))][-repeated:]

        for spectrum, columns, power, target in (
            ("variances that fall as 1/k", 768, 1.0, 1.0),
            ("variances that fall as 1/√k", 768, 0.5, None),
            ("no direction but noise", 768, 0.0, None),
            ("variances that fall as 1/k", 96, 1.0, None),
        ):
            points = _points(rng, many, columns, power)
            answers = ask("components", points)
            _check(points, answers[0]["ratios"])
            rows.append(_row(f"two components of {many:,} × {columns}, {spectrum}", answers, target, ""))
        for columns in (96, 768):
            points = _points(rng, some, columns, 1.0)
            answers = ask("umap", points)
            note = f"told how far it is {answers[0]['told']} times"
            rows.append(_row(f"UMAP of {some:,} × {columns}", answers, 10.0, note))
            if columns == 96:
                theirs = ask("umap-js", points)
                rows.append(
                    Row(
                        f"UMAP of {some:,} × {columns}, umap-js 1.4.0, on the page's thread",
                        theirs[0]["ms"] / 1000,
                        "s",
                        note=f"{_processor(theirs):.2g} s of processor",
                    )
                )
    return report(
        "projection",
        f"Projections of {many:,} and {some:,} vectors",
        rows,
        how=(
            "The product's worker in a thread of Node, from the question to the answer, with copying the numbers there; medians of "
            f"{times} runs, the shares of variance checked to be numpy's. Seconds of processor are of all threads; “blocked” is the longest stretch in which the page's thread did nothing else."
        ),
        quick=quick,
        facts={"node": node_version()},
    )


def _points(rng: np.random.Generator, rows: int, columns: int, power: float) -> NDArray[np.float32]:
    """Normally distributed points whose k-th greatest variance falls as ``k ** -power``, turned at random."""
    spread = np.arange(1, columns + 1) ** (-power / 2)
    turn, _ = np.linalg.qr(rng.standard_normal((columns, columns)))
    points: NDArray[np.float32] = (3 + rng.standard_normal((rows, columns)) * spread @ turn).astype(
        np.float32
    )
    return points


def _check(points: NDArray[np.float32], found: list[float]) -> None:
    exact = np.linalg.eigvalsh(np.cov(points.astype(np.float64), rowvar=False))[::-1]
    expected = exact[:2] / exact.sum()
    if not np.allclose(found, expected, rtol=_CLOSE):
        raise RuntimeError(f"The worker found the shares {found}, and numpy {expected.tolist()}.")


def _processor(answers: list[dict[str, Any]]) -> float:
    """Seconds of processor, which other programs on the machine change less than those of the clock."""
    seconds: float = statistics.median(each["processor"] for each in answers) / 1000
    return seconds


def _row(what: str, answers: list[dict[str, Any]], target: float | None, note: str) -> Row:
    seconds = statistics.median(each["ms"] for each in answers) / 1000
    blocked = statistics.median(each["blocked"] for each in answers)
    said = f"{_processor(answers):.2g} s of processor, blocked {blocked:.0f} ms"
    return Row(
        what,
        seconds,
        "s",
        target="" if target is None else f"≤ {target:g}",
        met=None if target is None else seconds <= target,
        note=f"{said}, {note}" if note else said,
        extra={"ms": [each["ms"] for each in answers]},
    )


if __name__ == "__main__":
    main()
