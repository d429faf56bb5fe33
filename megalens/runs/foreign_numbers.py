"""Numbers over steps that other loggers wrote: as scalars, and those of casts as statistics."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ..protocol import cast_of, cast_rows_of, counts_from_one, stream_schema
from .foreign_files import scalar_tables
from .tensor_metrics import norm_tables

_MOST_NUMBERS, _MOST_NAMES, _LONGEST_NAME = 5_000_000, 100_000, 1_000
_MOST_STEP = 1 << 60
_LATEST = 4e9
"""s: until the year 2096."""
_ROWS = 1 << 16


@dataclass
class Numbers:
    """Columns of what was read: step, time in s, rank, number of the name, value."""

    columns: list[array[Any]] = field(default_factory=lambda: [array(kind) for kind in "qdiid"])
    names: dict[str, int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.columns[0])

    def add(self, step: int, time: float, rank: int, name: str, value: float) -> None:
        """Take a number, unless there are too many or it has no step, time or name of use."""
        known = len(name) <= _LONGEST_NAME and (name in self.names or len(self.names) < _MOST_NAMES)
        if not known or not 0 <= step < _MOST_STEP or not 0 <= time < _LATEST:
            self.left_out["numbers without a step, time or name of use"] += 1
        elif len(self) >= _MOST_NUMBERS:
            self.left_out[f"numbers beyond {_MOST_NUMBERS}"] += 1
        else:
            row = (step, time, rank, self.names.setdefault(name, len(self.names)), value)
            for column, each in zip(self.columns, row, strict=True):
                column.append(each)

    def problems(self) -> list[str]:
        return [f"{count} {what} are left out." for what, count in sorted(self.left_out.items())]

    def streams(self) -> dict[str, Iterable[pa.Table]]:
        """Return rows of ``moments`` of what casts lose, and all other numbers as ``scalars``, by step.

        Norms of layers are rows of both.

        Of a step that was written again, after a restart, the newest counts.
        """
        step, time, rank, name, value = (np.frombuffer(each, each.typecode) for each in self.columns)
        order = np.lexsort((time, name, rank, step))
        last = np.ones(len(order), bool)
        if len(order) > 1:
            keys = [each[order] for each in (step, rank, name)]
            last[:-1] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
        order = order[last]
        columns = [each[order] for each in (step, time, rank, name, value)]
        names = list(self.names)
        of = np.array([cast_of(each) is not None for each in names], bool)[columns[3]]
        found: dict[str, Iterable[pa.Table]] = {
            "scalars": scalar_tables([each[~of] for each in columns], names)
        }
        step, _, rank, name, value = columns
        norms = [*norm_tables(names, step, rank, name, value)]
        casts = _moments([each[of] for each in columns], names) if of.any() else iter(())
        if norms:
            found["moments"] = [pa.concat_tables([*casts, *norms]).sort_by("step")]
        elif of.any():
            found["moments"] = casts
        return found


def _moments(columns: Sequence[np.ndarray], names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield rows of ``moments``; what several ranks say alike, as those of one group do, comes once."""
    schema = stream_schema("moments")
    step, _, rank, name, value = columns
    from_one = counts_from_one(found[1] for each in names if (found := cast_of(each)) is not None)
    # By step and rank already.
    begins = np.flatnonzero(np.r_[True, (np.diff(step) != 0) | (np.diff(rank) != 0)]).tolist()
    rows = list[dict[str, Any]]()
    said, now = set[tuple[str, ...]](), -1
    for begin, end in zip(begins, [*begins[1:], len(step)], strict=True):
        if int(step[begin]) != now:
            said, now = set(), int(step[begin])
        of_all: dict[str, Any] = {"step": now, "samples": -1, "rank": int(rank[begin]), "stage": -1}
        of_all |= {"rounding": 0.0, "gradient_stage": "", "loss_scale": 1.0}
        here = slice(begin, end)
        given = dict(zip([names[at] for at in name[here].tolist()], value[here].tolist(), strict=True))
        for (stat, tensor), row in cast_rows_of(given, from_one).items():
            # NaN is no number that equals itself.
            key = (stat, tensor, *map(repr, row.values()))
            if key in said:
                continue
            said.add(key)
            rows.append({**of_all, "stat": stat, "name": tensor, **row})
        if len(rows) >= _ROWS:
            yield pa.Table.from_pylist(rows, schema=schema)
            rows = []
    if rows:
        yield pa.Table.from_pylist(rows, schema=schema)
