"""Which expert of a mixture a traced tensor is of, as a column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import EXPERT, expert_of_part

__all__ = ["with_experts"]


def with_experts(table: pa.Table) -> pa.Table:
    """Return rows of ``tensors`` with a column ``expert`` (int32, null for what is of none), where some of them are of experts; else the table itself."""
    parts = table["part"].combine_chunks()
    if not pc.any(pc.starts_with(parts, EXPERT)).as_py():
        return table
    known = parts.dictionary_encode()
    of = pa.array([expert_of_part(part) for part in known.dictionary.to_pylist()], pa.int32())
    at = table.schema.get_field_index("part")
    return table.add_column(at + 1, EXPERT, of.take(known.indices))
