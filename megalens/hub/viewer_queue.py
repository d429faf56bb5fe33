"""What waits to be sent to one viewer: bounded, the newest rows win, every row given up is counted."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeGuard

from .live_frame import Key, LiveFrame

__all__ = ["ViewerQueue"]


class ViewerQueue:
    """A queue of control messages and frames for one viewer.

    Parameters
    ----------
    limit : int
        Bytes that may wait. One frame is taken however large it is when nothing else waits.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.dropped_rows = 0
        self._items: deque[LiveFrame | str] = deque()
        self._newest: dict[Key, int] | None = None
        self._waiting = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: LiveFrame | str) -> bool:
        """Add a frame or a control message and make room for it.

        Returns
        -------
        bool
            False when messages that may not be given up overflow the queue alone: the viewer is too slow to be kept.
        """
        self._items.append(item)
        self.bytes += _size(item)
        self._waiting.set()
        if self.bytes <= self.limit:
            self._newest = None
            return True
        return self._make_room(item)

    async def get(self) -> LiveFrame | str:
        """Return the oldest item once there is one."""
        while not self._items:
            self._waiting.clear()
            await self._waiting.wait()
        return self.pop()

    def pop(self) -> LiveFrame | str:
        """Return the oldest item. Only for a queue that is not empty."""
        item = self._items.popleft()
        self.bytes -= _size(item)
        return item

    def _make_room(self, newest: LiveFrame | str) -> bool:
        self._note_newest(newest)
        while self.bytes > self.limit and len(self._items) > 1:
            victim = self._victim()
            if victim is None:
                return False
            self._items.remove(victim)
            self.bytes -= _size(victim)
            self.dropped_rows += victim.rows
        return True

    def _note_newest(self, item: LiveFrame | str) -> None:
        """Keep, while the queue is full, the newest frame of each (flag, part, layer)."""
        if self._newest is None:
            self._newest = {}
            for queued in self._items:
                if _is_tensors(queued):
                    self._newest.update(dict.fromkeys(queued.keys, queued.seq))
        elif _is_tensors(item):
            self._newest.update(dict.fromkeys(item.keys, item.seq))

    def _victim(self) -> LiveFrame | None:
        """Return the oldest frame whose every row is covered by a newer one, else the oldest that may be given up."""
        newest = self._newest or {}
        # The frame that just came is the newest of all: it is never the one to go.
        candidates = [item for item in self._items if _is_tensors(item)]
        if candidates and candidates[-1] is self._items[-1]:
            candidates.pop()
        for frame in candidates:
            if all(newest[key] > frame.seq for key in frame.keys):
                return frame
        return candidates[0] if candidates else None


def _is_tensors(item: LiveFrame | str) -> TypeGuard[LiveFrame]:
    return isinstance(item, LiveFrame) and item.stream == "tensors"


def _size(item: LiveFrame | str) -> int:
    return item.size if isinstance(item, LiveFrame) else len(item)
