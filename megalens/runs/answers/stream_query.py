"""A request for rows of a stream, as a query that this stream can answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ...protocol import Stream, StreamRequest, Streams, join_numbers
from ..errors import ClientError, bad_parameter
from ..query import Query
from .coarser_peaks import CHANGED_COLUMNS, SHAPE_COLUMNS

# What the member is called by which a column can be asked for, by how the stream's policy lets it be.
_MEMBERS = {
    "equal": "{}",
    "equal_or_lowest": "{}",
    "ranges": "{}s",
    "newest_finite": "measured",
    "peaks": "peaks",
}
# The least cost of a text or a list, its index.
_LEAST_BYTES = 8
_ALL = frozenset(("where", "columns", "steps", "limit_bytes"))


@dataclass(frozen=True)
class StreamQuery:
    """Which rows of a stream are wanted, and how many bytes of them.

    Attributes
    ----------
    limit_bytes : int
        Beyond, steps are thinned out.
    lowest : bool
        Of each layer only the rows of the lowest rank that has it.
    columns : list of str or None
        Only these, the step among them, in the stream's order.
    peaks : int or None
        The most blocks of attention along queries and along keys; as stored when ``None``.
    """

    stream: Stream
    query: Query
    limit_bytes: int
    lowest: bool
    columns: list[str] | None = None
    peaks: int | None = None

    @property
    def schema(self) -> pa.Schema:
        schema = self.stream.schema
        return schema if self.columns is None else pa.schema([schema.field(name) for name in self.columns])

    @property
    def has_values(self) -> bool:
        """Whether lists of float32 are included, whose length is in the stream's column of shapes."""
        return any(each.type == pa.list_(pa.float32()) for each in self.schema)

    @property
    def row_bytes(self) -> float:
        """The estimated bytes of a row without its values: the stream's own figure, less columns left out."""
        total, schema = self.stream.policy.row_bytes, self.stream.schema
        if self.columns is None:
            return float(total)
        widths = {each.name: _width(each.type) for each in schema}
        others = sum(width is None for width in widths.values())
        share = max(_LEAST_BYTES, (total - sum(width or 0 for width in widths.values())) / max(1, others))
        return sum(share if width is None else width for width in map(widths.__getitem__, self.columns))

    @classmethod
    def of(cls, streams: Streams, name: str, request: StreamRequest, most_bytes: int) -> StreamQuery:
        """Return the query of a request: what no schema knows is what this stream can be asked for.

        Raises ``ClientError``: ``not-found`` for an unknown stream, or ``bad-parameter`` naming the member at
        fault.
        """
        if name not in streams:
            known = ", ".join(streams)
            raise ClientError(
                f"There is no stream {name!r:.100}. The streams are {known}.",
                code="not-found",
                field="stream",
            )
        stream = streams[name]
        columns = {_MEMBERS[how].format(column) for column, how in stream.policy.ask.items()}
        if not {*SHAPE_COLUMNS, *CHANGED_COLUMNS} <= set(stream.schema.names):
            # A foreign stream may declare any text this.
            columns.discard("peaks")
        for asked in request:
            if asked not in _ALL and asked not in columns:
                raise bad_parameter(f"The stream {name} cannot be asked for {asked}.", asked)
        rank, layers = request.get("rank"), request.get("layers")
        first, last = request.get("steps", (None, None))
        query = Query(
            request.get("flag"),
            request.get("part"),
            request.get("phase"),
            layers=None if layers is None else join_numbers(layers),
            first=first,
            last=last,
            pass_=request.get("pass"),
            ranks=((rank, None),) if isinstance(rank, int) else None,
            measured=request.get("measured", False),
            where=_where(request.get("where", {}), stream),
        )
        limit = min(request.get("limit_bytes", most_bytes), most_bytes)
        wanted = _columns(request.get("columns"), stream)
        return cls(stream, query, limit, rank == "lowest", wanted, request.get("peaks"))


def _columns(wanted: list[str] | None, stream: Stream) -> list[str] | None:
    """Return the wanted columns in the stream's order, always with the step."""
    if wanted is None:
        return None
    names = stream.schema.names
    for name in wanted:
        if name not in names:
            raise bad_parameter(
                f"The stream {stream.name} has no column {name!r:.100}. It has {', '.join(names)}.", "columns"
            )
    return [name for name in names if name in {"step", *wanted}]


def _width(kind: pa.DataType) -> int | None:
    """Return the bytes of a cell; ``None`` where they are not always the same."""
    return kind.bit_width // 8 if pa.types.is_primitive(kind) else None


def _where(where: Mapping[str, str | int], stream: Stream) -> tuple[tuple[str, str | int], ...]:
    """Return the columns that a stream is asked for by, and what they must equal."""
    for column, value in where.items():
        if stream.policy.ask.get(column) != "equal":
            raise bad_parameter(f"The stream {stream.name} cannot be asked for {column!r:.100}.", "where")
        text_wanted = pa.types.is_string(stream.schema.field(column).type)
        if isinstance(value, str) is not text_wanted:
            kind = "text" if text_wanted else "a whole number"
            raise bad_parameter(f"{column} must be {kind}, got {value!r:.50}.", "where")
    return tuple(where.items())
