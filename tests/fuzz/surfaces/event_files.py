"""A folder with an event file of TensorBoard: headers, checksums and protobuf that are nearly right."""

import shutil
import struct
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from megalens.runs import ClientError
from megalens.runs.tensorboard_files import read_numbers
from tests.fuzz.mutate import hostile_text, mutated_bytes
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())


def _record(body: bytes) -> bytes:
    length = struct.pack("<Q", len(body))
    return length + struct.pack("<I", masked_crc32c(length)) + body + struct.pack("<I", masked_crc32c(body))


def _event(step: int, tag: str, number: float) -> bytes:
    value = Summary.Value(tag=tag, simple_value=number)
    return Event(step=step, wall_time=1.7e9 + step, summary=Summary(value=[value])).SerializeToString()


def _seeds() -> list[Any]:
    return [[_event(step, tag, 1 / (1 + step)) for step in range(4) for tag in ("loss", "lr")]]


def _mutate(chance: Random, seed: Any) -> Any:
    bodies = list(seed)
    # Half of the changes are behind checksums that are right.
    for _ in range(chance.choice((0, 1, 2))):
        at = chance.randrange(len(bodies))
        bodies[at] = mutated_bytes(chance, bodies[at])
    if chance.random() < 0.3:
        text = hostile_text(chance).encode("utf-8", "replace").decode()
        bodies.append(_event(chance.choice((0, -1, 2**62)), text, chance.choice((float("nan"), 1e38))))
    data = b"".join(map(_record, bodies))
    return {"data": mutated_bytes(chance, data) if chance.random() < 0.5 else data}


def _run(given: Any) -> None:
    folder = _FOLDER / "events"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    file = folder / "events.out.tfevents.1"
    file.write_bytes(given["data"])
    tables = list(read_numbers({"": [file]}).streams["scalars"])
    assert all(table["step"].to_pylist() == sorted(table["step"].to_pylist()) for table in tables)


def _every_byte() -> list[Any]:
    return [{"data": data} for data in byte_changes(b"".join(map(_record, _seeds()[0])))]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError,), _every_byte)
