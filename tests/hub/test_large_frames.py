"""Large frames, which are read into memory of their own, come whole and in order, however their bytes are cut and whatever lies between them."""

import asyncio
import functools
import itertools
import os
import random
import struct

import pytest
from websockets.asyncio.server import serve

from megalens.hub.batch_connection import BatchConnection
from megalens.hub.connections import HalfOpen

MOST = 2_000_000
ASK = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
BINARY, TEXT, CONTINUED, PING = 0x82, 0x81, 0x80, 0x89


def framed(data: bytes, first: int = BINARY, mask: bytes = bytes(4), *, wide: bool = False) -> bytes:
    """Return a message, or a piece of one, as a client sends it; ``wide`` has its length in eight bytes."""
    size = len(data)
    if size < 126 and not wide:
        head = struct.pack("!BB", first, 128 | size)
    elif size < 1 << 16 and not wide:
        head = struct.pack("!BBH", first, 128 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 128 | 127, size)
    key = (mask * (size // 4 + 1))[:size]
    masked = (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
    return head + mask + masked


async def sent(pieces: list[bytes], take=None, *, pause: float = 0.0) -> tuple[list, int | None, int]:
    """Return what a connection gave its owner of these bytes, the code that it was closed with, and how many frames were read into memory of their own."""
    got: list = []
    own = 0
    closed = asyncio.Event()

    def note(data) -> bool:
        nonlocal own
        own += isinstance(data, bytearray)
        got.append(bytes(data))
        return True

    async def handler(connection: BatchConnection) -> None:
        connection.take_frame = take or note
        try:
            async for message in connection:
                got.append(message)
                connection.message_done()
        finally:
            closed.set()

    make = functools.partial(BatchConnection, half_open=HalfOpen(lambda: 100, lambda: None))
    async with serve(
        handler, "127.0.0.1", 0, create_connection=make, max_size=MOST, compression=None
    ) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(ASK)
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        answered = asyncio.create_task(reader.read())
        if pieces and pieces[-1] == b"":
            writer.close()
        else:
            writer.write(framed(struct.pack("!H", 1000), 0x88))
        said = await asyncio.wait_for(answered, 20) if pieces[-1] else b""
        writer.close()
        await asyncio.wait_for(closed.wait(), 20)
    code = said.rfind(b"\x88")
    return got, struct.unpack("!H", said[code + 2 : code + 4])[0] if code >= 0 else None, own


@pytest.mark.parametrize("seed", range(30))
def test_messages_come_as_they_were_sent(seed) -> None:
    chance = random.Random(seed)
    expected, stream, ends = [], b"", [0]
    for _ in range(chance.randrange(1, 9)):
        size = chance.choice([0, 5, 126, 65_535, 65_536, 300_000, 1_500_000])
        data = os.urandom(size)
        mask = chance.choice([bytes(4), bytes(4), os.urandom(4)])
        kind = chance.random()
        if kind < 0.2:
            cut = chance.randrange(size + 1)
            stream += framed(data[:cut], BINARY & 0x7F, mask)
            if chance.random() < 0.5:
                stream += framed(b"within", PING)
            stream += framed(data[cut:], CONTINUED, mask)
            expected.append(data)
        elif kind < 0.3:
            stream += framed(b"between", PING, mask)
        elif kind < 0.4:
            stream += framed(b"text", TEXT, mask)
            expected.append("text")
        else:
            stream += framed(data, BINARY, mask, wide=chance.random() < 0.1)
            expected.append(data)
        ends.append(len(stream))
    # Sometimes each message by itself, else anywhere, also within a head.
    cuts = set(ends) if seed % 3 else {0, len(stream)}
    near = [end + chance.randrange(-3, 16) for end in ends]
    cuts |= {chance.randrange(len(stream) + 1) for _ in range(4)} | {
        min(max(at, 0), len(stream)) for at in near
    }
    places = sorted(cuts)
    pieces = [stream[begin:end] for begin, end in itertools.pairwise(places)] or [stream]
    got, code, _ = asyncio.run(sent(pieces, pause=chance.choice([0, 0.002])))
    assert got == expected
    assert code == 1000


def test_a_large_frame_that_comes_by_itself_is_read_into_memory_of_its_own() -> None:
    data = os.urandom(1_000_000)
    got, _, own = asyncio.run(sent([framed(data), framed(b"small"), framed(data)], pause=0.1))
    assert got == [data, b"small", data]
    assert own == 2


def test_a_frame_that_is_too_large_is_refused_before_there_is_memory_for_it() -> None:
    got, code, _ = asyncio.run(sent([framed(bytes(MOST + 1))[:100_000]]))
    assert (got, code) == ([], 1009)
    # Nor is there memory for what has hardly begun, which is no more than is allowed.
    data = os.urandom(MOST)
    got, code, own = asyncio.run(sent([framed(data)[:2000], framed(data)[2000:]], pause=0.1))
    assert (got, code, own) == ([data], 1000, 0)
    # Its length alone would be more than there is.
    got, code, _ = asyncio.run(sent([b"\x82\xff" + struct.pack("!Q", 1 << 62) + bytes(4)]))
    assert (got, code) == ([], 1009)


def test_a_frame_that_is_cut_off_is_no_frame() -> None:
    data = os.urandom(1_000_000)
    got, _, _ = asyncio.run(sent([framed(data), framed(data)[:700_000], b""], pause=0.1))
    assert got == [data]


def test_a_large_frame_that_is_not_taken_waits_with_all_after_it() -> None:
    data = os.urandom(1_000_000)
    refused: list[int] = []
    got, code, _ = asyncio.run(
        sent(
            [framed(data), framed(b"small"), framed(data)],
            lambda frame: refused.append(len(frame)),
            pause=0.1,
        )
    )
    assert got == [data, b"small", data]
    assert code == 1000
    assert refused[0] == len(data)
