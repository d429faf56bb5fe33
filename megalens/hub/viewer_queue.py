"""What waits to be sent to one viewer: bounded, the newest rows win, every row given up is counted."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from heapq import heappop, heappush

from ..protocol import STREAMS, Streams
from .live_frame import Key, LiveFrame

_LOOK_AGAIN = 2
"""A queue that is emptied to one part in so many is no longer treated as full."""


class ViewerQueue:
    """A queue of control messages and frames for one viewer, of ``limit`` bytes.

    One frame is taken however large it is when nothing else waits. ``dropped`` counts rows given up, by
    stream.
    """

    def __init__(self, limit: int, streams: Streams = STREAMS) -> None:
        self.limit = limit
        self.bytes = 0
        self.dropped: Counter[str] = Counter()
        self._streams = streams
        self._items: OrderedDict[int, LiveFrame | str] = OrderedDict()
        self._next = 0
        self._full: _Coverage | None = None
        self._waiting = asyncio.Event()

    @property
    def dropped_rows(self) -> int:
        """Rows given up."""
        return self.dropped.total()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: LiveFrame | str) -> bool:
        """Add a frame or a control message and make space for it.

        False when messages that may not be given up overflow the queue alone: the viewer is too slow.
        """
        position = self._next
        self._next += 1
        self._items[position] = item
        self.bytes += _size(item)
        self._waiting.set()
        if self.bytes <= self.limit and self._full is None:
            return True
        return self._free_space(position, item)

    async def get(self) -> LiveFrame | str:
        """Return the oldest item once there is one."""
        while not self._items:
            self._waiting.clear()
            await self._waiting.wait()
        return self.pop()

    def pop(self) -> LiveFrame | str:
        """Return the oldest item. Only for a queue that is not empty."""
        _, item = self._items.popitem(last=False)
        self.bytes -= _size(item)
        if self._full is not None and self.bytes * _LOOK_AGAIN <= self.limit:
            self._full = None
        return item

    def _free_space(self, position: int, newest: LiveFrame | str) -> bool:
        if self._full is None:
            self._full = _Coverage(self._streams)
            for queued, item in self._items.items():
                self._full.add(queued, item)
        else:
            self._full.add(position, newest)
        self._full.forget_sent(self._items)
        while self.bytes > self.limit and len(self._items) > 1:
            victim = self._full.victim(self._items, position)
            if victim is None:
                return False
            frame = self._items.pop(victim)
            assert isinstance(frame, LiveFrame)
            self.bytes -= frame.size
            self.dropped[frame.stream] += frame.rows
        return True


class _Coverage:
    """Which frames of a full queue may be given up, and which have newer rows for each of their identities.

    Each frame costs its own rows, however long the queue.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._newest: dict[Key, int] = {}
        self._uncovered: dict[int, int] = {}
        # By drop order, and of one order what newer rows cover before the rest: the positions of frames,
        # oldest first.
        self._heaps: dict[tuple[int, bool], list[int]] = {}

    def add(self, position: int, item: LiveFrame | str) -> None:
        """Add a frame that was queued last."""
        if not isinstance(item, LiveFrame):
            return
        declared = self._streams[item.stream]
        order = declared.policy.drop_order
        if order is None:
            return
        self._push(order, False, position)
        if not declared.policy.covered_first:
            return
        keys = item.keys(declared)
        self._uncovered[position] = len(keys)
        if not keys:
            self._push(order, True, position)
        for key in keys:
            before = self._newest.get(key)
            self._newest[key] = position
            if before is not None and before in self._uncovered:
                self._uncovered[before] -= 1
                if not self._uncovered[before]:
                    self._push(order, True, before)

    def victim(self, items: OrderedDict[int, LiveFrame | str], last: int) -> int | None:
        """Return the position of the frame to give up: of the lowest drop order the oldest covered one, else
        the oldest.

        A frame is covered when newer ones have every row's identity. The frame that came last is the newest
        of all: it goes only where nothing else may.
        """
        self.forget_sent(items)
        heaps = [self._heaps[key] for key in sorted(self._heaps, key=lambda key: (key[0], not key[1]))]
        for heap in heaps:
            if heap and heap[0] != last:
                return heappop(heap)
        return last if any(heap and heap[0] == last for heap in heaps) else None

    def forget_sent(self, items: OrderedDict[int, LiveFrame | str]) -> None:
        """Forget the frames that are no longer queued."""
        for heap in self._heaps.values():
            while heap and heap[0] not in items:
                self._uncovered.pop(heappop(heap), None)

    def _push(self, order: int, covered: bool, position: int) -> None:
        heappush(self._heaps.setdefault((order, covered), []), position)


def _size(item: LiveFrame | str) -> int:
    return item.size if isinstance(item, LiveFrame) else len(item)
