"""Data frames: a header, and an Arrow stream whose lengths and offsets may lie."""

from random import Random
from typing import Any

from megalens.protocol import (
    HEADER_BYTES,
    FrameChecker,
    ProtocolError,
    decode_frame,
    encode_message,
    stream_schema,
)
from tests.fuzz.mutate import FIXTURES, mutated_bytes
from tests.fuzz.surface import Surface, byte_changes

_LENGTH_AT = 36


def _seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((FIXTURES / "frames").glob("*.frame"))]


def _mutate(chance: Random, seed: bytes) -> Any:
    data = bytearray(mutated_bytes(chance, seed, (range(HEADER_BYTES), range(HEADER_BYTES, len(seed)))))
    if chance.random() < 0.8 and len(data) > HEADER_BYTES:
        data[_LENGTH_AT : _LENGTH_AT + 4] = (len(data) - HEADER_BYTES).to_bytes(4, "little")
        data[:6] = seed[:6]
    return bytes(data)


def _run(data: bytes) -> bool:
    try:
        frame = decode_frame(data)
        if not frame.known:
            return False
        table = frame.table()
        body = FrameChecker().check(frame, data)
    except ProtocolError as error:
        encode_message(error.to_message()).encode("utf-8")
        raise
    assert table.schema == stream_schema(frame.stream)
    assert table.num_rows == frame.rows == body.rows == len(table.to_pylist())
    return True


def _every_byte() -> list[Any]:
    return [data for seed in _seeds() for data in byte_changes(seed)]


SURFACE = Surface(_seeds, _mutate, _run, (ProtocolError,), _every_byte)
