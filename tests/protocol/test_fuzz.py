"""Whatever comes over the wire, the decoders say ProtocolError or give rows and messages that are right."""

import json
import os
import resource
import time

import pytest
from fuzzing import golden_frames, golden_messages, mutated_frame, mutated_message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megalens.protocol import ProtocolError, decode_frame, decode_message, encode_message, stream_schema

# `make fuzz` runs 40,000 of each, after a change of what reads them.
CASES = int(os.environ.get("MEGALENS_FUZZ_CASES", "1000"))
FIRST = int(os.environ.get("MEGALENS_FUZZ_SEED", "0")) << 32


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def read_frame(data):
    """Decode a frame as the hub does; return whether it was taken."""
    try:
        frame = decode_frame(data)
        if not frame.known:
            return False
        table = frame.table()
    except ProtocolError as error:
        encode_message(error.to_message()).encode("utf-8")
        return False
    assert table.schema == stream_schema(frame.stream)
    assert table.num_rows == frame.rows
    assert len(table.to_pylist()) == frame.rows
    return True


def read_message(text):
    try:
        message = decode_message(text)
    except ProtocolError as error:
        encode_message(error.to_message()).encode("utf-8")
        return False
    json.dumps(message, allow_nan=False, ensure_ascii=False).encode("utf-8")
    return True


def run(cases, seeds, mutate, read):
    """Read every case; return how many were taken. None may take a second, and memory may not grow with their number."""
    taken = 0
    before = None
    for number in range(FIRST, FIRST + cases):
        data = mutate(seeds, number)
        started = time.process_time()
        try:
            taken += read(data)
        except Exception as error:
            raise AssertionError(f"case {number}: {error!r}") from error
        assert time.process_time() - started < 1, f"case {number} took too long"
        if number == FIRST + cases // 10:
            before = resident_bytes()
    assert resident_bytes() - before < 32 * 1024 * 1024
    return taken


def test_mutated_frames_are_refused_or_read():
    taken = run(CASES, golden_frames(), mutated_frame, read_frame)
    assert 0 < taken < CASES


def test_mutated_messages_are_refused_or_read():
    taken = run(CASES, golden_messages(), mutated_message, read_message)
    assert 0 < taken < CASES


@given(st.binary(max_size=300))
def test_any_bytes_are_no_crash(data):
    read_frame(data)
    read_frame(b"MLNS\x01\0" + data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
TYPES = st.sampled_from(
    ["join", "announce", "hello", "configure", "configured", "status", "error", "goodbye"]
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    TYPES | JSON,
    st.dictionaries(st.sampled_from(["id", "patch", "role", "peer", "since", "step", "flags"]), JSON),
)
def test_any_json_is_no_crash(kind, members):
    read_message(json.dumps({"type": kind, **members}))


@given(st.text(max_size=200))
def test_any_text_is_no_crash(text):
    read_message(text)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, '{"type":"error","code":' + "[" * 40 + "]" * 40 + "}"]
)
def test_deep_nesting_is_refused(text):
    with pytest.raises(ProtocolError) as caught:
        decode_message(text)
    assert caught.value.code == "bad-message"


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(word):
    with pytest.raises(ProtocolError) as caught:
        decode_message('{"type":"status","state":"training","step":1,"time":' + word + "}")
    assert caught.value.code == "bad-message"


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(ProtocolError) as caught:
        decode_message('{"type":"goodbye","reason":"leaving","message":"\\ud800"}')
    assert caught.value.code == "bad-message"
    assert (
        decode_message('{"type":"goodbye","reason":"leaving","message":"\\ud83d\\ude00"}')["message"]
        == "\U0001f600"
    )
