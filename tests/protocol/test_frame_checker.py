"""A frame that was checked in part is one that a full check would have taken, and nothing else."""

import random

import numpy as np
import pyarrow as pa
import pytest
from fuzzing import golden_frames, mutated_frame
from recorded_run import tensor

from megalens.hub.stream_folder import StreamFile
from megalens.protocol import (
    STREAMS,
    Frame,
    FrameChecker,
    ProtocolError,
    decode_frame,
    encode_frame,
    stream_schema,
)


def tensors(step, *, flag="QKV_mat_mul", values=(1.0, 2.0, 3.0), nan=0):
    said = {"source_shape": [1, 3], "shape": [1, 3]}
    values = np.array(values, np.float32)
    row = tensor(step, 1, flag, "q", "Tile(tiles=3, reduction='mean')", values, nan, **said)
    rows = [row, {**row, "layer": 2}]
    return encode_frame("tensors", pa.Table.from_pylist(rows, stream_schema("tensors")), step=step)


@pytest.fixture
def full_checks(monkeypatch):
    """Count the frames that are read in full."""
    calls = []
    whole = Frame.batches
    monkeypatch.setattr(Frame, "batches", lambda frame: calls.append(frame) or whole(frame))
    return calls


def check(checker, data):
    return checker.check(decode_frame(data), data)


def taught(*frames):
    checker = FrameChecker()
    for data in frames:
        check(checker, data)
        check(checker, data)
    return checker


def test_a_frame_with_other_numbers_is_not_read_again(full_checks):
    checker = taught(tensors(1))
    del full_checks[:]
    data = tensors(7, values=(float("nan"), float("inf"), -0.0), nan=1)
    body = check(checker, data)
    assert not full_checks
    assert body.rows == 2
    assert body.numbers("step").tolist() == [7, 7]
    assert body.numbers("nan_count").tolist() == [1, 1]
    assert not body.all_zero("nan_count")
    assert body.all_zero("inf_count")
    assert str(body.table().to_pylist()) == str(decode_frame(data).table().to_pylist())
    batch = pa.ipc.read_record_batch(pa.py_buffer(body.messages()[0]), stream_schema("tensors"))
    assert str(batch.to_pylist()) == str(decode_frame(data).table().to_pylist())


def test_a_frame_with_other_text_is_read_in_full(full_checks):
    checker = taught(tensors(1))
    del full_checks[:]
    assert check(checker, tensors(2, flag="KQV_mat_mul")).table()["flag"][0].as_py() == "KQV_mat_mul"
    assert len(full_checks) == 1


def test_several_kinds_of_one_size_are_all_remembered(full_checks):
    flags = ("MLP1_mat_mul", "MLP2_mat_mul", "MLP3_mat_mul")
    checker = FrameChecker()
    for step in range(1, 4):
        for flag in flags:
            check(checker, tensors(step, flag=flag))
    del full_checks[:]
    for flag in flags:
        assert check(checker, tensors(9, flag=flag)).table()["flag"].to_pylist() == [flag, flag]
    assert not full_checks


def test_what_never_comes_twice_is_not_remembered(full_checks):
    checker = FrameChecker()
    for size in range(1, 300):
        check(checker, tensors(1, values=[0.0] * (2 * size)))
    assert len(full_checks) == 299
    assert len(checker._known) <= 32
    assert not any(checker._known.values())


def test_another_number_of_rows_in_the_header_is_refused():
    data = tensors(1)
    checker = taught(data)
    with pytest.raises(ProtocolError, match="number of rows"):
        check(checker, data[:32] + (3).to_bytes(4, "little") + data[36:])


@pytest.mark.slow
def test_one_wrong_byte_anywhere_is_judged_as_by_a_full_check():
    """Every byte of a known frame is changed in turn: what the checker takes, a full reading takes with the same rows."""
    data = tensors(1)
    checker = taught(data)
    for at in range(64, len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 0xFF
        assert verdict(checker, bytes(wrong)) == full_verdict(bytes(wrong)), at


@pytest.mark.slow
def test_mutated_frames_are_judged_as_by_a_full_check():
    seeds = [*golden_frames(), tensors(1), tensors(2)]
    checker = taught(*seeds)
    chance = random.Random(5)
    taken = 0
    for number in range(3000):
        data = mutated_frame(seeds, number)
        expected = full_verdict(data)
        # Twice, so that what was taken once is remembered.
        assert verdict(checker, data) == expected
        assert verdict(checker, data) == expected
        if expected is not None:
            taken += 1
            swapped = bytearray(data)
            swapped[chance.randrange(64, len(data))] ^= 0xFF
            assert verdict(checker, bytes(swapped)) == full_verdict(bytes(swapped))
    assert taken


def test_numbers_that_lie_over_offsets_are_not_taken_for_numbers():
    """A body may say that two columns share their bytes. Changed numbers are then changed offsets."""
    data = tensors(1)
    checker = FrameChecker()
    body = bytearray(data)
    batch = decode_frame(data).batches()[0][0]
    base = pa.py_buffer(data).address
    step = batch.column("step").buffers()[1].address - base
    shape = batch.column("shape").buffers()[1].address - base
    message = 64 + decode_frame(data).batches()[1][0]
    start = message + 8 + int.from_bytes(data[message + 4 : message + 8], "little")
    entry = (step - start).to_bytes(8, "little") + (16).to_bytes(8, "little")
    places = [at for at in range(message, start - 16, 8) if data[at : at + 16] == entry]
    # The step column now lies over the offsets of shape: 0, 2, 4.
    body[places[-1] : places[-1] + 8] = (shape - start).to_bytes(8, "little")
    shared = bytes(body)
    for _ in range(3):
        check(checker, shared)
    body[shape + 4 : shape + 8] = (2**30).to_bytes(4, "little")
    with pytest.raises(ProtocolError):
        check(checker, bytes(body))


def verdict(checker, data):
    try:
        frame = decode_frame(data)
        return str(checker.check(frame, data).table().to_pylist()) if frame.known else None
    except ProtocolError:
        return None


def full_verdict(data):
    try:
        frame = decode_frame(data)
        return str(frame.table().to_pylist()) if frame.known else None
    except ProtocolError:
        return None


def test_a_frame_that_was_recorded_holds_its_bytes_alone(tmp_path):
    checker = taught(tensors(1))
    file = StreamFile(tmp_path / "tensors.arrows", STREAMS["tensors"])
    table = decode_frame(tensors(1)).table()
    at = table.schema.get_field_index("rank")
    field = table.schema.field(at)
    kept = []
    for rank in range(100):
        column = pa.array([rank] * table.num_rows, field.type)
        data = encode_frame("tensors", table.set_column(at, field, column), step=1)
        kept.append(check(checker, data))
        file.append(kept[-1])
    file.close()
    # The rows of a small frame take several times its memory, and a hub keeps thousands.
    assert [body._table for body in kept] == [None] * len(kept)
