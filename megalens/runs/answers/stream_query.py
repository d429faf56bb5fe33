"""A request for rows of a stream, read from its texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from ...protocol import Stream, Streams, parse_json, read_ranges
from ..errors import ClientError
from ..query import Query
from .coarser_peaks import CHANGED_COLUMNS, SHAPE_COLUMNS

# What the parameter is called by which a column can be asked for, by how the stream's policy lets it be.
_PARAMETERS = {
    "equal": "{}",
    "equal_or_lowest": "{}",
    "ranges": "{}s",
    "newest_finite": "measured",
    "peaks": "peaks",
}
# The least cost of a text or a list, its index.
_LEAST_BYTES = 8
_ALL = frozenset({"where", "columns", "first", "last", "limit_bytes"})


def whole_number(texts: Mapping[str, str], name: str, least: int | None = None) -> int | None:
    """Return a number of a request, or None; refuses over 18 digits and less than ``least``."""
    text = texts.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 18 else None
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" from {least}"
        raise ClientError(f"{name} must be a whole number{bound}.", code="bad-parameter", field=name)
    return number


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
    def of_texts(cls, streams: Streams, name: str, texts: Mapping[str, str], most_bytes: int) -> StreamQuery:
        """Check a request for rows.

        ``texts`` may have the columns that the stream's policy opens to requests, ``where`` (a JSON object of
        further ones), ``first``, ``last``, ``limit_bytes`` (at most ``most_bytes``) and ``columns`` (a JSON
        list). Raises ``ClientError``: ``not-found`` for an unknown stream, or ``bad-parameter`` naming the
        text at fault.
        """
        if name not in streams:
            known = ", ".join(streams)
            raise ClientError(
                f"There is no stream {name!r:.100}. The streams are {known}.",
                code="not-found",
                field="stream",
            )
        stream = streams[name]
        columns = {_PARAMETERS[how].format(column) for column, how in stream.policy.ask.items()}
        if not {*SHAPE_COLUMNS, *CHANGED_COLUMNS} <= set(stream.schema.names):
            # A foreign stream may declare any text this.
            columns.discard("peaks")
        for asked in texts:
            if asked not in _ALL and asked not in columns:
                raise _bad(asked[:100], f"The stream {name} cannot be asked for {asked!r:.100}.")
        first, last = (whole_number(texts, name) for name in ("first", "last"))
        limit = whole_number(texts, "limit_bytes", 1)
        pass_ = texts.get("pass")
        if pass_ not in (None, "forward", "backward"):
            raise _bad("pass", f"pass must be forward or backward, got {pass_!r:.50}.")
        lowest = texts.get("rank") == "lowest"
        rank = None if lowest else whole_number(texts, "rank")
        if rank is not None and rank < 0:
            raise _bad("rank", f"rank must be 'lowest' or from 0, got {rank}.")
        query = Query.of(
            pass_=pass_,
            rank=rank,
            flag=texts.get("flag"),
            part=texts.get("part"),
            phase=texts.get("phase"),
        )
        query = replace(
            query,
            first=first,
            last=last,
            layers=read_ranges(texts.get("layers"), "layers"),
            measured=texts.get("measured") == "true",
            where=_where(texts.get("where", "{}"), stream),
        )
        limit_bytes = most_bytes if limit is None else min(limit, most_bytes)
        wanted = _columns(texts.get("columns"), stream)
        return cls(stream, query, limit_bytes, lowest, wanted, whole_number(texts, "peaks", 1))


def _columns(text: str | None, stream: Stream) -> list[str] | None:
    """Return the wanted columns in the stream's order, always with the step."""
    if text is None:
        return None
    try:
        wanted = parse_json(text)
    except ValueError:
        wanted = None
    if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
        raise _bad("columns", f"columns must be a JSON list of names, got {text!r:.100}.")
    names = stream.schema.names
    for name in wanted:
        if name not in names:
            raise _bad(
                "columns", f"The stream {stream.name} has no column {name!r:.100}. It has {', '.join(names)}."
            )
    return [name for name in names if name in {"step", *wanted}]


def _width(kind: pa.DataType) -> int | None:
    """Return the bytes of a cell; ``None`` where they are not always the same."""
    return kind.bit_width // 8 if pa.types.is_primitive(kind) else None


def _where(text: str, stream: Stream) -> tuple[tuple[str, str | int], ...]:
    """Return the columns that a stream is asked for by, and what they must equal."""
    try:
        where = parse_json(text)
    except ValueError:
        where = None
    if not isinstance(where, dict):
        raise _bad("where", f"where must be a JSON object, got {text!r:.100}.")
    for column, value in where.items():
        if stream.policy.ask.get(column) != "equal":
            raise _bad("where", f"The stream {stream.name} cannot be asked for {column!r:.100}.")
        text_wanted = pa.types.is_string(stream.schema.field(column).type)
        fits = isinstance(value, str) if text_wanted else type(value) is int and abs(value) < 2**53
        if not fits:
            kind = "text" if text_wanted else "a whole number"
            raise _bad("where", f"{column} must be {kind}, got {value!r:.50}.")
    return tuple(where.items())


def _bad(field: str, message: str) -> ClientError:
    return ClientError(message, code="bad-parameter", field=field)
