"""A stream that the hub does not know: announced, checked, kept, recorded, packed, opened and replayed like any other."""

import copy
import time

import pyarrow.parquet as pq
import pytest
from hub_process import WAIT, announce, scalars, tensors
from recorded_files import segments_of, tails_of
from weight_norms import DECLARED, NAMES, NORMS, norms, rows

from megalens.hub.replay import serve
from megalens.protocol import BIT_CAUGHT_UP, STREAMS, Streams, decode_frame, encode_frame
from megalens.runs import ClientError, connect, open_run

STREAMS_HERE = Streams([*STREAMS.values(), NORMS])


def steps_of(viewer):
    return [
        step
        for frame in viewer.of("weight_norms")
        for step in decode_frame(rebuilt(frame), STREAMS_HERE).table()["step"].to_pylist()[::2]
    ]


def rebuilt(frame):
    """Return the whole frame again: the helpers of these tests keep the header apart."""
    return encode_frame(NORMS, frame.table(), step=frame.step, seq=frame.seq, bits=frame.bits)


@pytest.fixture(autouse=True)
def helpers_know_the_stream(monkeypatch):
    monkeypatch.setattr("hub_process.decode_frame", lambda data: decode_frame(data, STREAMS_HERE))


def test_it_reaches_viewers_late_ones_and_those_that_come_back(hub):
    viewer = hub.viewer()
    assert "weight_norms" not in viewer.hello["streams"]
    producer = hub.producer(streams=DECLARED)
    for step in range(1, 9):
        producer.send(norms(step))
        producer.send(scalars(step))
    viewer.wait_frames(8, "weight_norms")
    assert steps_of(viewer) == list(range(1, 9))
    # The hello that declares it comes before its first frame, whatever else was told a moment ago.
    told = [m for m in viewer.messages if m["type"] == "hello"][-1]["streams"]
    assert told["weight_norms"]["policy"] == DECLARED["weight_norms"]["policy"]
    assert told["tensors"]["instrument"] == "tensors"
    late = hub.viewer()
    assert all(frame.bits & BIT_CAUGHT_UP for frame in late.wait_frames(8, "weight_norms"))
    assert steps_of(late) == list(range(1, 9))
    seq = late.of("weight_norms")[3].seq
    late.close()
    back = hub.viewer(since=seq, run=viewer.hello["run"]["id"])
    back.wait_frames(4, "weight_norms")
    assert steps_of(back) == [5, 6, 7, 8]
    status = back.wait("status", lambda m: m["streams"].get("weight_norms", {}).get("rows") == 16)
    figures = status["streams"]["weight_norms"]
    assert (figures["first_step"], figures["last_step"]) == (1, 8)
    assert figures["nonfinite"] == {"count": 1, "first": {"step": 5, "name": "lm_head"}}
    assert status["streams"]["scalars"]["rows"] == 8


def test_it_is_bounded_in_the_hub_and_what_went_is_counted(hub):
    declared = copy.deepcopy(DECLARED)
    declared["weight_norms"]["policy"]["hub_bytes"] = 3 * len(norms(1))
    viewer, producer = hub.viewer(), hub.producer(streams=declared)
    for step in range(1, 9):
        producer.send(norms(step))
    seq = viewer.wait_frames(8, "weight_norms")[0].seq
    back = hub.viewer(since=seq, run=viewer.hello["run"]["id"])
    back.wait_frames(3, "weight_norms")
    assert steps_of(back) == [6, 7, 8]
    assert (back.hello["resumed"]["missed_frames"], back.hello["resumed"]["missed_rows"]) == (4, 8)


def test_a_viewer_that_reads_nothing_is_told_what_of_it_went(start_hub):
    hub = start_hub("--queue-bytes", 100_000)
    slow = hub.viewer(sock=hub.small_socket(), max_queue=1)
    quick, producer = hub.viewer(), hub.producer(streams=DECLARED)
    # More than the system takes for a socket that is not read, 4 MB.
    for step in range(1, 10_001):
        producer.send(norms(step))
    quick.wait_frames(1, "weight_norms")
    producer.send({"type": "goodbye", "reason": "finished"})
    status = slow.wait("status", lambda m: m["state"] == "finished" and m["dropped"]["viewer"] > 0)
    assert status["streams"]["weight_norms"]["dropped"] == status["dropped"]["viewer"]


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("fields", 2, "type"), "complex64", "streams.weight_norms.fields.2.type"),
        (("policy", "identity"), ["nothing"], "streams.weight_norms.policy.identity"),
        (("policy", "keep"), "all", "streams.weight_norms.policy.keep"),
        (("policy", "ask"), {"value": "equal"}, "streams.weight_norms.policy.ask.value"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name_and_may_be_sent_again(standing_hub, path, value, field):
    declared = copy.deepcopy(DECLARED)
    inner = declared["weight_norms"]
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    producer = standing_hub.producer(streams=declared)
    error = producer.wait("error")
    assert (error["code"], error["field"]) == ("bad-parameter", field)
    viewer = standing_hub.viewer()
    producer.send(announce(0))
    viewer.wait("status", lambda m: m["producers"] == [0])


def test_a_name_that_is_no_file_name_is_refused(standing_hub):
    producer = standing_hub.producer(streams={"../x": DECLARED["weight_norms"]})
    assert producer.wait("error")["code"] == "bad-parameter"


def test_a_frame_of_it_that_is_not_one_ends_its_producer_and_nobody_else(hub):
    viewer = hub.viewer()
    good, bad = hub.producer(streams=DECLARED), hub.producer(announce_as=1, streams=DECLARED)
    frame = norms(1)
    for broken in (frame.replace(b"value", b"valve"), frame[:64] + b"\0" * (len(frame) - 64)):
        bad.send(broken)
        assert bad.wait("error")["code"] == "bad-frame"
        assert bad.closed() == 4400
        bad = hub.producer(announce_as=1, streams=DECLARED)
    good.send(norms(2))
    assert viewer.wait_frames(1, "weight_norms")[0].step == 2


def test_it_is_recorded_packed_opened_and_replayed(start_hub, tmp_path, monkeypatch, runtime):
    hub = start_hub("--record", tmp_path / "runs")
    producer = hub.producer(streams=DECLARED)
    with connect(hub.entry.id) as live:
        for step in range(1, 9):
            producer.send(norms(step))
            producer.send(tensors(step))
        live.wait(8, WAIT)
        assert live.table("weight_norms", steps=range(4, 9), name="lm_head")["value"].to_pylist() == [
            row["value"] for step in range(4, 9) for row in rows(step) if row["name"] == "lm_head"
        ]
        assert "weight_norms" in dir(live.table)
        assert live.table.weight_norms.num_rows == 16
        producer.send({"type": "goodbye", "reason": "finished"})
        viewer = hub.viewer()
        viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    packed = pq.ParquetFile(*segments_of(hub.record, "weight_norms"))
    columns = packed.metadata.row_group(0)
    assert columns.column(2).compression == "LZ4"
    expected = [row for step in range(1, 9) for row in rows(step)]
    with open_run(hub.record) as run:
        assert run.table("weight_norms").to_pylist() == expected
        assert run.table("weight_norms", steps=3, name=NAMES[0])["value"].to_pylist() == [3.0]
        with pytest.raises(ClientError, match="one of tensors"):
            run.table("nothing")
        with pytest.raises(ClientError, match="step, name"):
            run.table("weight_norms", value=1)
    with serve(hub.record) as replay, connect(replay.id) as again:
        replay.wait(WAIT)
        again.wait(8, WAIT)
        assert again.table("weight_norms").to_pylist() == expected


def _recorded_steps(folder):
    try:
        with open_run(folder) as run:
            return max(run.table("weight_norms")["step"].to_pylist(), default=0)
    except ClientError:
        return 0


def test_a_recording_that_was_cut_is_read_as_far_as_it_goes(start_hub, tmp_path, runtime):
    hub = start_hub("--record", tmp_path / "runs")
    viewer, producer = hub.viewer(), hub.producer(streams=DECLARED)
    for step in range(1, 9):
        producer.send(norms(step))
    viewer.wait_frames(8, "weight_norms")
    deadline = time.monotonic() + WAIT
    while _recorded_steps(hub.record) < 8:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    hub.process.kill()
    hub.process.wait(WAIT)
    (path,) = tails_of(hub.record, "weight_norms")
    path.write_bytes(path.read_bytes()[:-20])
    with open_run(hub.record) as run:
        assert run.table("weight_norms")["step"].to_pylist()[::2] == list(range(1, 8))
        assert "weight_norms" in run.truncated
