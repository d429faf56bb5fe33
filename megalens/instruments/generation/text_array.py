"""A traced tensor over all positions of a text, put together from the passes that computed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from ...runs.errors import ClientError
from ...runs.tensor_array import first_part

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pandas import DataFrame

    from ...protocol.messages_generated import FlagInfo
    from ...runs.run import Run

_COLUMNS = ("step", "micro_batch", "part", "shape", "source_shape", "compressor", "values")


@dataclass(frozen=True, eq=False, slots=True)
class _Pass:
    """What one sequence has in one pass: values ``[n, ...]`` or ``[heads, queries, keys]``.

    ``source`` are the sizes before it was compressed; position ``p`` is its entry ``p + shift``.
    """

    values: NDArray[np.float32]
    source: tuple[int, ...]
    shift: int
    compressor: str

    @property
    def kind(self) -> tuple[int, ...]:
        """What is the same in all passes that make one array."""
        shape = self.values.shape
        return (3, shape[0]) if len(shape) == 3 else shape[1:]


def generation_array(
    run: Run, tokens: DataFrame, info: FlagInfo, layer: int, sequence: int, part: str | None
) -> NDArray[np.float32]:
    """Return a traced tensor of every position of a sequence; see ``Generation.array``."""
    flag = info["name"]
    if info["axes"][0] == "token":
        raise ClientError(
            f"{flag} are of the tokens that were routed to each expert, and which those are is not recorded, "
            f"so that they have no positions. Read them as they are: run.tensors({flag!r}, …); "
            "RouterProbabilities say of each position where it was routed.",
            code="bad-parameter",
            field="flag",
        )
    read = tokens[tokens["tensor_step"] >= 0]
    if read.empty:
        raise ClientError(f"There is no sequence {sequence} of which tensors were read.", code="not-found")
    first, last = int(read["tensor_step"].min()), int(read["tensor_step"].max())
    rows = run.tensors(
        flag,
        layers=layer,
        part=part,
        steps=range(first, last + 1),
        phase="generate",
        pass_="forward",  # noqa: S106
    ).select(_COLUMNS)
    if part is None and rows.num_rows:
        part = first_part(info, rows["part"].unique().to_pylist())
        rows = rows.filter(pc.field("part") == part)
    passes = _passes(rows, read, sequence)
    if not passes:
        raise ClientError(
            f"Generation {tokens['generation'].iloc[0]} has no rows of {flag} of layer {layer}. Switch it "
            f"on before: run.configure({flag}=True).",
            code="not-found",
            field="flag",
        )
    count = int(tokens["position"].max()) + 1
    if len({each.kind for each in passes}) > 1:
        raise ClientError(
            f"{flag} of layer {layer} was traced in several ways while this text was written, which make no "
            "one array. Generate it again, or read its passes: run.tensors(…).",
            code="not-found",
            field="flag",
        )
    if passes[0].values.ndim == 3:
        if not passes[0].compressor.startswith(("NoOp", "Peaks")):
            raise ClientError(
                f"{flag} was traced with {passes[0].compressor}, which mixes keys. Trace it with Peaks, or "
                f"NoOp: run.configure({flag}=megalens.NoOp()).",
                code="bad-parameter",
                field="flag",
            )
        return _attention(passes, count)
    joined = np.full((count, *passes[0].values.shape[1:]), np.nan, np.float32)
    for each in passes:
        begin, end = max(0, -each.shift), min(count, len(each.values) - each.shift)
        joined[begin:end] = each.values[begin + each.shift : end + each.shift]
    return joined


def _passes(rows: pa.Table, read: DataFrame, sequence: int) -> list[_Pass]:
    """Return the passes that read the sequence, each once, in order."""
    keys = zip(read["tensor_step"].tolist(), read["tensor_pass"].tolist(), strict=True)
    shifts = (read["tensor_offset"] - read["position"]).tolist()
    places: dict[tuple[int, int], int] = dict(zip(keys, shifts, strict=True))
    found: list[_Pass] = []
    for batch in rows.to_batches():
        values = batch.column("values")
        for number, row in enumerate(batch.drop_columns(["values"]).to_pylist()):
            shift = places.get((row["step"], row["micro_batch"]))
            shape = tuple(row["shape"])
            if shift is None or len(shape) < 2 or sequence >= shape[0]:
                continue
            if len(values[number]) != np.prod(shape):
                continue
            del places[row["step"], row["micro_batch"]]
            # Not copied: a view of what the run holds.
            mine = values[number].values.to_numpy(zero_copy_only=False).reshape(shape)[sequence]
            source = row["source_shape"] if row["compressor"].startswith("Peaks") else shape
            found.append(_Pass(mine, tuple(source)[1:], shift, row["compressor"]))
    return found


# Queries × keys. Long texts are kept as the largest values of blocks, whose sides grow with the pass.
def _attention(passes: list[_Pass], count: int) -> NDArray[np.float32]:
    """Return ``[heads, queries, keys]``, cells as large as the largest blocks of either axis."""
    sides = [tuple(map(_side, each.source[1:], each.values.shape[1:])) for each in passes]
    side_q, side_k = (max(side) for side in zip(*sides, strict=True))
    shape = (passes[0].values.shape[0], -(-count // side_q), -(-count // side_k))
    joined = np.full(shape, -np.inf, np.float32)
    for each, (down, across) in zip(passes, sides, strict=True):
        queries, keys = each.source[1:]
        # The last query and the last key of a pass are the same token.
        rows = _cells(down, queries, each.shift, side_q, count)
        columns = _cells(across, keys, each.shift + keys - queries, side_k, count)
        for q, begin_q, end_q in rows:
            part = _largest(each.values, q, 1)
            for k, begin_k, end_k in columns:
                into = joined[:, begin_q:end_q, begin_k:end_k]
                np.maximum(into, _largest(part, k, 2), out=into)
    for head in joined:
        head[head == -np.inf] = np.nan
    for row in range(shape[1]):
        # No query has keys that come after it.
        joined[:, row, -(-(row + 1) * side_q // side_k) :] = np.nan
    return joined


def _side(length: int, blocks: int) -> int:
    """Return the side, a power of two, of the blocks into which an axis was cut."""
    side = 1
    while blocks and -(-length // side) > blocks:
        side *= 2
    return side


_Cells = list[tuple["NDArray[np.int64]", int, int]]
"""Where the blocks of each cell begin, of cells from the first up to the last without it."""


def _cells(side: int, length: int, shift: int, target: int, count: int) -> _Cells:
    """Return the cells of ``target`` positions that blocks of ``side`` entries go into.

    A block that lies across two cells, as behind padding, goes into both.
    """
    begin = np.arange(0, length, side) - shift
    end = np.minimum(begin + side, length - shift) - 1
    kept = np.flatnonzero((end >= 0) & (begin < count))
    if not kept.size:
        return []
    both = np.maximum(begin[kept], 0) // target, np.minimum(end[kept], count - 1) // target
    found: _Cells = []
    for cells in both[: 1 if np.array_equal(*both) else 2]:
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        # What is before the first and after the last kept block is cut off by the ends.
        found.append((np.append(kept[starts], kept[-1] + 1), int(cells[0]), int(cells[-1]) + 1))
    return found


def _largest(values: NDArray[np.float32], starts: NDArray[np.int64], axis: int) -> NDArray[np.float32]:
    """Return the largest value from each start to the next along an axis."""
    first, last = int(starts[0]), int(starts[-1])
    kept = values[:, first:last] if axis == 1 else values[:, :, first:last]
    if len(starts) - 1 == last - first:
        return kept
    return np.maximum.reduceat(kept, starts[:-1] - first, axis)
