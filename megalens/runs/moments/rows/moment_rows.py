"""Where the rows of the stream ``moments`` lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from ....protocol import StatIndex, stream_schema
from .wanted import Chunk, Wanted

__all__ = ["ROWS_SCHEMA", "MomentRows", "Progress"]

_CODES = pa.dictionary(pa.int32(), pa.utf8())
ROWS_SCHEMA = pa.schema(
    pa.field("name_id", pa.int32())
    if field.name == "name"
    else pa.field(field.name, _CODES if pa.types.is_string(field.type) else field.type)
    for field in stream_schema("moments")
)
"""Rows as they are answered: the stream's columns, texts as dictionaries, and for the name its number."""

Progress = Callable[[int, int, str], object]
"""Called with (done, total, what is being done); raise from it to cancel."""


class MomentRows(Protocol):
    """Rows that DuckDB can read, wherever they lie, and that may become more."""

    @property
    def version(self) -> str:
        """Changes whenever there is more."""

    @property
    def samples(self) -> bool:
        """Whether steps are known as samples too."""

    @property
    def warnings(self) -> list[str]:
        """Sentences about what is superseded, left out or unreadable."""

    def refresh(self, progress: Progress | None = None) -> bool:
        """Look for what is new, and say whether there was any."""

    def stats(self) -> list[StatIndex]:
        """Return what there is, as it was found by the last refresh."""

    def relation(self, connection: Any) -> str:
        """Return SQL for the rows, with every column of the stream, after registering with ``connection`` what it needs."""

    def chunks(self, connect: Callable[[], Any], wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps, in the order of their steps. ``connect``: returns a connection, which belongs to the reading until it ends."""

    def close(self) -> None:
        """Let go of files. Safe twice."""
