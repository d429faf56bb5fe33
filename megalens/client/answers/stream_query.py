"""What a stream is asked, from the texts of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...protocol import STREAM_NAMES, read_ranges
from ..errors import ClientError
from ..query import Query

__all__ = ["StreamQuery"]

_TENSORS = frozenset({"flag", "part", "layers", "phase", "pass", "rank", "measured"})
_ALL = frozenset({"first", "last", "limit_bytes"})


@dataclass(frozen=True)
class StreamQuery:
    """Which rows of a stream are wanted, and how many bytes of them.

    Attributes
    ----------
    stream : str
        Its name.
    query : Query
        Which rows.
    limit_bytes : int
        Beyond, steps are thinned out.
    lowest : bool
        Of each layer only the rows of the lowest rank that has it.
    """

    stream: str
    query: Query
    limit_bytes: int
    lowest: bool

    @classmethod
    def of_texts(cls, stream: str, texts: Mapping[str, str], most_bytes: int) -> StreamQuery:
        """Check a request.

        Parameters
        ----------
        stream : str
            The stream that is asked.
        texts : mapping
            ``flag``, ``part``, ``layers``, ``phase``, ``pass``, ``rank`` (a number or ``lowest``) and ``measured`` of tensors; ``first``, ``last`` and
            ``limit_bytes`` of every stream.
        most_bytes : int
            Bound of ``limit_bytes``.

        Raises
        ------
        ClientError
            ``not-found`` for a stream that there is not, ``bad-parameter`` naming what is at fault.
        """
        if stream not in STREAM_NAMES:
            known = ", ".join(STREAM_NAMES)
            raise ClientError(
                f"There is no stream {stream!r:.100}. The streams are {known}.",
                code="not-found",
                field="stream",
            )
        for name in texts:
            if name not in _ALL and not (stream == "tensors" and name in _TENSORS):
                raise _bad(name[:100], f"The stream {stream} cannot be asked for {name!r:.100}.")
        first, last, limit = (_integer(texts, name) for name in ("first", "last", "limit_bytes"))
        if limit is not None and limit < 1:
            raise _bad("limit_bytes", "limit_bytes must be a whole number from 1.")
        pass_ = texts.get("pass")
        if pass_ not in (None, "forward", "backward"):
            raise _bad("pass", f"pass must be forward or backward, and {pass_!r:.50} came.")
        lowest = texts.get("rank") == "lowest"
        rank = None if lowest else _integer(texts, "rank")
        if rank is not None and rank < 0:
            raise _bad("rank", f"rank must be 'lowest' or from 0, and {rank} came.")
        query = Query.of(
            pass_=pass_,
            rank=rank,
            flag=texts.get("flag"),
            part=texts.get("part"),
            phase=texts.get("phase"),
            steps=(first, last),
        )
        query = replace(
            query,
            layers=read_ranges(texts.get("layers"), "layers"),
            measured=texts.get("measured") == "true",
        )
        return cls(stream, query, most_bytes if limit is None else min(limit, most_bytes), lowest)


def _integer(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
        raise _bad(name, f"{name} must be a whole number, and {text!r:.50} came.")
    return int(text)


def _bad(field: str, message: str) -> ClientError:
    return ClientError(message, code="bad-parameter", field=field)
