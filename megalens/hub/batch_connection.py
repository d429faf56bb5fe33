"""A WebSocket connection for frames: each is taken where it is read, and what waits is sent in one go.

What waits to be sent to one viewer: bounded, the newest rows win, every row given up is counted.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from ..protocol import STREAMS, Streams
from ..protocol.connection import NO_MASK
from .connections import BoundedConnection, HalfOpen
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


BATCH_BYTES = 128 * 1024
"""What is sent to one viewer before others have their turn."""
_LARGE_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024
_DATA = (Opcode.TEXT, Opcode.BINARY)
_MOST_HEAD_BYTES = 16 * 1024
# Of a binary message whose length takes eight bytes, not compressed: then the length, and the mask that a
# sender on this machine leaves at zero.
_LONG_HEAD = b"\x82\xff"
_HEAD_BYTES = len(_LONG_HEAD) + 8 + len(NO_MASK)
_MOST_AHEAD = 64
"""Memory is taken for so many times what has come, at most."""


def chunks_of(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Put small pieces together, for few system calls; of a large one only the beginning is copied."""
    small: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < _LARGE_BYTES:
            small.append(piece)
            continue
        # A first part goes with what is before it: small packets of their own would wake the reader for
        # nothing.
        small.append(piece[:_LARGE_BYTES])
        yield b"".join(small)
        small.clear()
        yield piece[_LARGE_BYTES:]
    if small:
        yield b"".join(small)


class _Memory(threading.local):
    """The read buffer of an event loop: all connections share it, as each copies what it read."""

    def __init__(self) -> None:
        self.read = memoryview(bytearray(_READ_BYTES))


_memory = _Memory()


class BatchConnection(BoundedConnection, ServerConnection, asyncio.BufferedProtocol):
    """A server connection with one system call for several small messages, and no copy of a large one.

    A large frame whose beginning is read by itself, and whose mask is zero, is read into memory of its own.
    The library would copy it four times, a quarter of a megabyte at a time. The head of its request is
    bounded. ``half_open`` counts the connection until it is let in.

    Attributes
    ----------
    take_frame : callable or None
        Called with each whole binary message as soon as it is read, in its order: never while a message
        before it waits or is being worked on. Returns whether it took the message; one that it did not take,
        and everything after it, waits for :meth:`recv`.
    """

    def __init__(self, *args: Any, half_open: HalfOpen, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.take_frame: Callable[[bytes | bytearray], bool] | None = None
        self._half_open = half_open
        self._waiting = 0
        self._head_bytes = 0
        self._large: bytearray | None = None
        self._rest = memoryview(b"")
        self._fed_bytes = self._framed_bytes = 0
        """What the library has been given after the handshake, and how much of it the frames were that it has
        given back: equal between two frames.
        """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._half_open.begin(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._half_open.end(self.transport)
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes: called by the event loop."""
        return _memory.read if self._large is None else self._rest

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes in that memory: called by the event loop."""
        if self._large is None:
            self.data_received(bytes(_memory.read[:nbytes]))
            return
        self._rest = self._rest[nbytes:]
        if not self._rest:
            data, self._large = self._large, None
            if self.protocol.state is State.OPEN:
                self._take(data)

    def data_received(self, data: bytes) -> None:
        """Take what came. A request that has no end is not read on."""
        if self.protocol.state is State.CONNECTING:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self.transport.abort()
                return
            super().data_received(data)
            return
        if not self._begins_large(data):
            self._fed_bytes += len(data)
            super().data_received(data)

    def _begins_large(self, data: bytes) -> bool:
        """Whether a large frame begins here, the rest of which goes to memory of its own."""
        between = self._fed_bytes == self._framed_bytes and not (self._fragments or self._waiting)
        if not data.startswith(_LONG_HEAD) or not between or self.protocol.state is not State.OPEN:
            return False
        length = int.from_bytes(data[2:10], "big")
        most = self.protocol.max_message_size
        if (
            self.take_frame is None
            or len(data) < _HEAD_BYTES
            or data[10:_HEAD_BYTES] != NO_MASK
            or not len(data) - _HEAD_BYTES < length <= _MOST_AHEAD * len(data)
            or (most is not None and length > most)
        ):
            return False
        self._large = bytearray(length)
        self._rest = memoryview(self._large)[len(data) - _HEAD_BYTES :]
        self._large[: len(data) - _HEAD_BYTES] = data[_HEAD_BYTES:]
        return True

    def _take(self, data: bytearray) -> None:
        if self._waiting or self.take_frame is None or not self.take_frame(data):
            self._waiting += 1
            super().process_event(Frame(Opcode.BINARY, bytes(data)))

    def let_in(self) -> None:
        """Count it as half open no more."""
        self._half_open.end(self.transport)

    def process_event(self, event: Any) -> None:
        """Take what was read: called by the base class for each event."""
        if isinstance(event, Frame):
            size = len(event.data)
            self._framed_bytes += size + 6 + (0 if size < 126 else 2 if size < 1 << 16 else 8)
        if isinstance(event, Frame) and event.opcode in _DATA:
            if (
                event.opcode is Opcode.BINARY
                and event.fin
                and not self._waiting
                and self.take_frame is not None
                and self.take_frame(bytes(event.data))
            ):
                return
            self._waiting += 1
        super().process_event(event)

    def message_done(self) -> None:
        """Note that a message of :meth:`recv` has been processed."""
        self._waiting -= 1

    async def send_batch(self, messages: Iterable[str | LiveFrame]) -> None:
        """Send several messages, each a WebSocket message of its own, and wait until the socket takes more.

        Raises ``ConnectionClosed``.
        """
        async with self.send_context():
            # What the protocol has to say itself goes first.
            self.send_data()
            self.write(chunks_of(self._pieces(messages)))

    def _pieces(self, messages: Iterable[str | LiveFrame]) -> Iterator[bytes | memoryview]:
        for message in messages:
            if isinstance(message, str):
                self.protocol.send_text(message.encode())
                yield from self.protocol.data_to_send()
            else:
                yield from message.wire()

    @property
    def takes_now(self) -> bool:
        """Whether everything that was written has gone to the socket."""
        return self.protocol.state is State.OPEN and not self.transport.get_write_buffer_size()

    def write(self, chunks: Iterable[bytes | memoryview]) -> None:
        """Write whole messages, without waiting."""
        for chunk in chunks:
            self.transport.write(chunk)

    def send_now(self, text: str, limit: int) -> bool:
        """Send a text without waiting; False when the connection ends or ``limit`` bytes wait already."""
        if self.protocol.state is not State.OPEN or self.transport.get_write_buffer_size() > limit:
            return False
        self.protocol.send_text(text.encode())
        self.send_data()
        return True
