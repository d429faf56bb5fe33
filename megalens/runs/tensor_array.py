"""One traced tensor as an array: ``run.array("HiddenStates", layer=3, step=10)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..protocol import EXPERT, expert_of_part, join_numbers, ranges_text
from . import arrow_compute as pc
from .errors import ClientError, as_int, bad_parameter
from .query import Query
from .run_words import check_flag

if TYPE_CHECKING:
    from ..protocol.messages_generated import FlagInfo
    from .answers.selection import StreamRows

_LEAST = {"layer": -1, "step": 0, "rank": 0, "micro_batch": 0, "call": 0}
_ORDER = ("layer", "step", "part", "rank", "micro_batch", "call")
_MOST_NAMED = 200


def with_experts(table: pa.Table) -> pa.Table:
    """Return rows of ``tensors`` with a column ``expert`` (int32, null without) if some are of experts."""
    parts = table["part"].combine_chunks()
    if not pc.any(pc.starts_with(parts, EXPERT)).as_py():
        return table
    known = parts.dictionary_encode()
    of = pa.array([expert_of_part(part) for part in known.dictionary.to_pylist()], pa.int32())
    at = table.schema.get_field_index("part")
    return table.add_column(at + 1, EXPERT, of.take(known.indices))


def first_part(info: FlagInfo | None, parts: Sequence[str]) -> str:
    """Return the first of the parts that there are, in the order in which the flag names them."""
    named = info["parts"] if info else ()
    return next((part for part in named if part in parts), parts[0])


def tensor_array(
    rows: StreamRows, flags: Mapping[str, FlagInfo], flag: str, phase: str, pass_: str, **asked: Any
) -> npt.NDArray[np.float32]:
    check_flag(flags, flag)
    wanted: dict[str, Any] = {
        name: value if value is None or name == "part" else as_int(value, name, _LEAST[name])
        for name, value in asked.items()
    }

    def coordinates(**only: Any) -> pa.Table:
        query = Query.of(flag=flag, phase=phase, pass_=pass_, **only)
        found = list(rows.batches("tensors", query, list(_ORDER)))
        return pa.Table.from_batches(found) if found else None

    # Other steps are read only where nothing else explains what is missing.
    left = coordinates(layers=wanted["layer"], steps=wanted["step"])
    left = coordinates() if left is None else left
    if left is None:
        raise ClientError(
            f"This run has no rows of {flag} (phase {phase}, {pass_} pass).",
            field="flag",
        )
    for name in _ORDER:
        here = left[name].unique().to_pylist()
        value = wanted[name]
        if value is None and name == "layer" and len(here) > 1:
            raise bad_parameter(
                f"array(…) is of one layer, and {flag} has {_several(here)}: give layer=….", "layer"
            )
        if value is not None and value not in here:
            raise ClientError(
                f"This run has no {flag} of {name} {value!r:.100}; it has {name} {_several(here)}.",
                field=name,
            )
        chosen = (
            value
            if value is not None
            else first_part(flags.get(flag), here)
            if name == "part"
            else (max if name == "step" else min)(here)
        )
        wanted[name] = chosen
        left = left.filter(pa.compute.field(name) == chosen)
    query = Query.of(
        flag=flag, layers=wanted["layer"], steps=wanted["step"], part=wanted["part"], phase=phase,
        pass_=pass_, rank=wanted["rank"],
    )  # fmt: skip
    matching = [
        row
        for batch in rows.batches("tensors", query)
        for row in _rows(batch, wanted["micro_batch"], wanted["call"])
    ]
    if not matching:
        raise ClientError(
            f"Could not read the run folder. Rows of {flag} were found, and then not read again: the file is "
            "damaged, or was replaced meanwhile.",
            code="unreadable",
        )
    row = matching[-1]
    values: npt.NDArray[np.float32] = row["values"].values.to_numpy(zero_copy_only=False).astype(np.float32)
    shape = row["shape"].as_py()
    if 0 in shape and 0 not in row["source_shape"].as_py():
        raise ClientError(
            f"{flag} of layer {wanted['layer']}, step {wanted['step']}, has its statistics and no values: it "
            "was traced with Empty, or its values were given up for want of room, which run.warnings says.",
            field="flag",
        )
    if values.size != np.prod(shape):
        raise ClientError(
            f"{flag} was traced with {row['compressor']}, which keeps no values of its shape {shape}.",
            field="flag",
        )
    return values.reshape([int(size) for size in shape])


def _rows(batch: pa.RecordBatch, micro_batch: int, call: int) -> Any:
    matching = batch.filter((pc.field("micro_batch") == micro_batch) & (pc.field("call") == call))
    for at in range(matching.num_rows):
        yield {name: matching[name][at] for name in ("values", "shape", "source_shape", "compressor")}


def _several(values: list[Any]) -> str:
    if all(isinstance(value, int) for value in values):
        text = ranges_text(join_numbers(values))
        return text if len(text) <= _MOST_NAMED else f"{text[:_MOST_NAMED]}…"
    return ", ".join(repr(value) for value in values)
