"""What a stream is asked, from the texts of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from ...protocol import Stream, Streams, parse_json, read_ranges
from ..errors import ClientError
from ..query import Query
from .texts import whole_number

__all__ = ["StreamQuery"]

# What the parameter is called by which a column can be asked for, by how the stream's policy lets it be.
_PARAMETERS = {"equal": "{}", "equal_or_lowest": "{}", "ranges": "{}s", "newest_finite": "measured"}
_ALL = frozenset({"where", "first", "last", "limit_bytes"})


@dataclass(frozen=True)
class StreamQuery:
    """Which rows of a stream are wanted, and how many bytes of them.

    Attributes
    ----------
    stream : Stream
        The stream.
    query : Query
        Which rows.
    limit_bytes : int
        Beyond, steps are thinned out.
    lowest : bool
        Of each layer only the rows of the lowest rank that has it.
    """

    stream: Stream
    query: Query
    limit_bytes: int
    lowest: bool

    @classmethod
    def of_texts(cls, streams: Streams, name: str, texts: Mapping[str, str], most_bytes: int) -> StreamQuery:
        """Check a request.

        Parameters
        ----------
        streams : Streams
            The streams that the run may have.
        name : str
            The stream that is asked.
        texts : mapping
            The columns that the stream's policy lets be asked for; ``where`` (a JSON object of further ones), ``first``, ``last`` and ``limit_bytes`` of
            every stream.
        most_bytes : int
            Bound of ``limit_bytes``.

        Raises
        ------
        ClientError
            ``not-found`` for a stream that there is not, ``bad-parameter`` naming what is at fault.
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
        return cls(stream, query, most_bytes if limit is None else min(limit, most_bytes), lowest)


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
