"""Reads files of TensorBoard's events by the format of their records: length, its checksum, data, their checksum."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event

__all__ = ["events_of"]

_POLYNOMIAL = 0x82F63B78


def _masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events_of(folder: Path) -> tuple[dict[tuple[str, int], float], dict[tuple[str, int], Any]]:
    """Numbers and pictures of the one file of events in a folder, by tag and step."""
    (path,) = folder.glob("events.out.tfevents.*")
    data, at, numbers, pictures = path.read_bytes(), 0, {}, {}
    versions = []
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + size]
        assert struct.unpack_from("<I", data, at + 8) == (_masked_crc32c(data[at : at + 8]),)
        assert struct.unpack_from("<I", data, at + 12 + size) == (_masked_crc32c(body),)
        at += 16 + size
        event = Event.FromString(body)
        versions += [event.file_version] if event.file_version else []
        for value in event.summary.value:
            of = pictures if value.HasField("image") else numbers
            assert (value.tag, event.step) not in of
            of[value.tag, event.step] = value.image if value.HasField("image") else value.simple_value
    assert versions == ["brain.Event:2"]
    return numbers, pictures
