"""What the pictures read of a run. Tensors are read a window of steps at a time, so that a long run costs bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..client import Run, RunFolder
from ..client.query import Query

__all__ = ["Traced", "traced", "traced_flags", "windows"]

_WINDOW_BYTES = 64 * 1024 * 1024


class Traced:
    """Where a flag has rows: the steps, layers and parts that were traced.

    Parameters
    ----------
    index : pyarrow.Table
        ``step``, ``layer``, ``part``, ``rank`` of every row.
    rank : int, optional
        The rank whose rows are meant; of each layer the lowest that has it when absent.
    """

    def __init__(self, index: pa.Table, rank: int | None = None) -> None:
        lowest = index.group_by("layer").aggregate([("rank", "min")])
        self.seen: list[int] = sorted(pc.unique(index["rank"]).to_pylist())
        self.ranks: dict[int, int] = {
            layer: (least if rank is None else rank)
            for layer, least in zip(lowest["layer"].to_pylist(), lowest["rank_min"].to_pylist(), strict=True)
        }
        if rank is not None:
            index = index.filter(pc.equal(index["rank"], rank))
        self.rows = index.num_rows
        self.steps: list[int] = sorted(pc.unique(index["step"]).to_pylist())
        self.layers: list[int] = sorted(pc.unique(index["layer"]).to_pylist())
        self.parts: list[str] = [part for part in pc.unique(index["part"]).to_pylist() if part]

    def only(self, table: pa.Table) -> pa.Table:
        """Return the rows of the ranks that are meant: no replica's beside them."""
        if len(self.seen) < 2:
            return table
        meant = pa.array(
            [
                self.ranks.get(layer) == rank
                for layer, rank in zip(table["layer"].to_pylist(), table["rank"].to_pylist(), strict=True)
            ],
            pa.bool_(),
        )
        return table.filter(meant)

    def part(self, wanted: str | None) -> str | None:
        """Return the part that is meant: the wanted one, else the first; None where there are no parts."""
        return wanted if wanted is not None else (self.parts[0] if self.parts else None)

    def layers_of(self, text: str) -> list[int]:
        """Return those traced layers that a range text names."""
        if text == "all":
            return self.layers
        spans = [
            (int(low), int(high or low))
            for low, _, high in (piece.partition("-") for piece in text.split(","))
        ]
        return [layer for layer in self.layers if any(low <= layer <= high for low, high in spans)]

    def nearest(self, wanted: int | None) -> int | None:
        """Return the wanted step or the one nearest to it, the newest when None is wanted, None when there is no step."""
        if not self.steps:
            return None
        return self.steps[-1] if wanted is None else min(self.steps, key=lambda step: abs(step - wanted))


def traced(run: Run, flag: str, phase: str, *, pass_: str, rank: int | None = None) -> Traced:
    """Say where a flag was traced in a phase and pass."""
    columns = ["step", "layer", "part", "rank"]
    if run.folder is not None and not run.live and (run.folder / "run.json").is_file():
        # Values are most of a recording: they are not read to learn where they are.
        query = Query.of(flag=flag, phase=phase, pass_=pass_)
        return Traced(RunFolder(run.folder).read("tensors", query, columns), rank)
    return Traced(run.tensors(flag, phase=phase, pass_=pass_).select(columns), rank)


def windows(
    run: Run,
    flag: str,
    where: Traced,
    *,
    part: str | None,
    phase: str,
    pass_: str,
    layers: Sequence[int],
    steps: Sequence[int],
) -> Iterator[pa.Table]:
    """Yield the rows of a flag, all rows of a step together, in pieces of about 64 MB."""
    if not steps or not layers:
        return

    # How large a step is shows at the newest one: settings may have changed since the first.
    def read(first: int, last: int) -> pa.Table:
        return where.only(run.tensors(flag, layers, part, (first, last), phase, pass_))

    newest = read(steps[-1], steps[-1])
    several = max(1, min(len(steps), _WINDOW_BYTES // max(1, newest.nbytes)))
    for start in range(0, len(steps), several):
        chunk = steps[start : start + several]
        if chunk == [steps[-1]]:
            yield newest
        else:
            yield read(chunk[0], chunk[-1])


def traced_flags(run: Run) -> pa.Table:
    """Return ``flag``, ``compressor``, ``first``, ``last``, ``steps``, ``layers`` of everything that was traced, by flag.

    ``steps`` counts the distinct steps, ``layers`` lists the layers.
    """
    columns = ["flag", "step", "layer", "compressor"]
    if run.folder is not None and not run.live and (run.folder / "run.json").is_file():
        table = RunFolder(run.folder).read("tensors", None, columns)
    else:
        table = run.tensors().select(columns)
    grouped = table.group_by(["flag", "compressor"]).aggregate(
        [("step", "min"), ("step", "max"), ("step", "count_distinct"), ("layer", "distinct")]
    )
    names = {
        "step_min": "first",
        "step_max": "last",
        "step_count_distinct": "steps",
        "layer_distinct": "layers",
    }
    return grouped.rename_columns([names.get(name, name) for name in grouped.column_names]).sort_by(
        [("flag", "ascending"), ("first", "ascending")]
    )
