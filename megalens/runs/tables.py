"""Any stream of a run as a table, also one that this version of Megalens does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from ..protocol import Streams, is_whole
from .errors import bad_argument, bad_parameter
from .query import Query, StepChoice


class Tables:
    """The streams of a run by name: ``run.table("weight_norms", steps=range(10, 20), name="lm_head")``.

    ``run.table.`` completes their names. ``read`` returns the rows of a stream that match a query.
    """

    def __init__(self, streams: Streams, read: Callable[[str, Query], pa.Table]) -> None:
        self._streams = streams
        self._read = read

    def __call__(self, stream: str, /, steps: StepChoice = None, **where: str | int) -> pa.Table:
        """Return rows of a stream.

        Parameters
        ----------
        stream : str
            Its name.
        steps : optional
            As for :meth:`Run.tensors`.
        **where
            Columns of text or whole numbers, and what they must equal.

        Raises
        ------
        ClientError
            ``bad-parameter``, naming the argument.
        """
        if stream not in self._streams:
            raise bad_argument("stream", f"one of {', '.join(self._streams)}", stream)
        schema = self._streams[stream].schema
        known = {
            field.name: str if pa.types.is_string(field.type) else int
            for field in schema
            if pa.types.is_string(field.type) or pa.types.is_integer(field.type)
        }
        for column, value in where.items():
            if column not in known:
                raise bad_parameter(
                    f"The stream {stream} has no column {column!r:.100} of text or whole numbers. It has "
                    f"{', '.join(known)}.",
                    column,
                )
            if not (isinstance(value, str) if known[column] is str else is_whole(value, -(2**63))):
                raise bad_argument(column, "text" if known[column] is str else "a whole number", value)
        return self._read(stream, replace(Query.of(steps=steps), where=tuple(where.items())))

    def __getattr__(self, name: str) -> pa.Table:
        if name.startswith("_") or name not in self._streams:
            raise AttributeError(f"This run has no stream {name!r:.100}. It has {', '.join(self._streams)}.")
        return self(name)

    __getitem__ = __call__

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._streams]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._streams)

    def __repr__(self) -> str:
        return f"Tables({', '.join(self._streams)})"
