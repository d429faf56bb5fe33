"""The trace points of a model as a table: flag, layers, module, layout, and what shows that it is so."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..protocol import layer_name
from ..tracer import ModelPoints, Source
from ..tracer.points import PointRow
from .watch_points import describe, module_names

_SUPPOSED = "supposed before a forward pass was watched"


def points_table(points: ModelPoints) -> list[PointRow]:
    """Return the rows of all flags of ``points``, those of one flag one after another."""
    names = module_names(points.roots)
    rows: list[PointRow] = []
    for flag, here in points.flags.items():
        alike: dict[tuple[str, str], list[int]] = {}
        for number, sources in here.layers.items():
            said = here.evidence.get(number, _SUPPOSED)
            where = "; ".join(describe(source, names) for source in _shown(sources))
            alike.setdefault((_starred(where), _starred(said)), []).append(number)
        missing: dict[str, list[int]] = {}
        for number, reason in here.reasons.items():
            if number not in here.layers:
                missing.setdefault(_starred(reason), []).append(number)
        rows += [PointRow(flag, _range(numbers), *said) for said, numbers in alike.items()]
        rows += [PointRow(flag, _range(numbers), "", reason) for reason, numbers in missing.items()]
        if not alike and not missing:
            rows.append(PointRow(flag, "", "", here.reason or ""))
    return rows


def _shown(sources: Sequence[Source]) -> Sequence[Source]:
    """Return the sources that are named: of many experts the first two."""
    return sources[:4]


def _starred(text: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=[.\[:;,) ]|$)", "*", text)


def _range(numbers: Sequence[int]) -> str:
    ordered = sorted(numbers)
    if ordered[0] < 0:
        return layer_name(ordered[0])
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
