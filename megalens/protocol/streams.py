"""The Arrow schema of every stream, read from ``protocol/streams.json``."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from .contract import contract_json
from .errors import ProtocolError

__all__ = ["STREAM_NAMES", "empty_table", "stream_schema"]

_TYPES: dict[str, pa.DataType] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "utf8": pa.utf8(),
    "list<int32>": pa.list_(pa.int32()),
    "list<float32>": pa.list_(pa.float32()),
    "list<utf8>": pa.list_(pa.utf8()),
}

STREAM_NAMES: tuple[str, ...] = tuple(contract_json("streams.json")["streams"])


@cache
def stream_schema(name: str) -> pa.Schema:
    """Return the schema of one stream.

    Raises
    ------
    ProtocolError
        ``bad-frame`` when there is no such stream.
    """
    stream = contract_json("streams.json")["streams"].get(name)
    if stream is None:
        raise ProtocolError(
            "bad-frame",
            f"There is no stream {name!r}. The streams are {', '.join(STREAM_NAMES)}.",
            expected=", ".join(STREAM_NAMES),
            got=repr(name),
        )
    return pa.schema([pa.field(f["name"], _TYPES[f["type"]]) for f in stream["fields"]])


def empty_table(name: str) -> pa.Table:
    """Return a table of the stream with no rows."""
    return stream_schema(name).empty_table()
