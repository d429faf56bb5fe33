"""Frames that were made before anybody said where the hub is."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["EarlyFrames"]

_BYTES = 32 << 20


class EarlyFrames:
    """Keeps frames, as many as fit, until they are taken; then there are no early ones any more.

    Parameters
    ----------
    waits : bool
        Whether somebody will say where the hub is.
    """

    def __init__(self, waits: bool) -> None:
        self._frames: list[bytes] | None = [] if waits else None
        self._nbytes = 0

    @property
    def room(self) -> bool:
        """Whether another frame is kept."""
        return self._frames is not None and self._nbytes < _BYTES

    @property
    def kept(self) -> bool:
        """Whether frames wait to be taken."""
        return bool(self._frames)

    def keep(self, frame: bytes) -> None:
        """Keep a frame, where there is room."""
        if self._frames is not None:
            self._frames.append(frame)
            self._nbytes += len(frame)

    def take(self) -> Iterator[bytes]:
        """Give what was kept, in order, and keep nothing more."""
        frames, self._frames = self._frames or [], None
        yield from frames
