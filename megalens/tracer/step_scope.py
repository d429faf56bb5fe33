"""What a script holds of its steps."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["StepHandle", "StepScope"]


class StepScope:
    """``with tracer.step():``; one object serves all steps."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin, self._end = begin, end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *error: object) -> None:
        self._end()


class StepHandle:
    """What :meth:`Tracer.wrap` gives: ``remove()`` takes it back. Safe twice."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Let optimizer steps end no more steps of the tracer."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()
