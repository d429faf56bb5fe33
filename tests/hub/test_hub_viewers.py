"""Viewers that are slow, that come late and that come back."""

import os
import time

import pytest
from hub_process import WAIT, scalars, tensors

from megalens.protocol import BIT_CAUGHT_UP, decode_frame

pytestmark = pytest.mark.slow


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_viewer_that_comes_late_is_sent_what_was(hub):
    early, producer = hub.viewer(), hub.producer()
    for step in range(1, 21):
        producer.send(tensors(step))
        producer.send(scalars(step))
    early.wait_frames(20, "scalars")
    late = hub.viewer()
    late.wait_frames(20)
    assert all(frame.bits & BIT_CAUGHT_UP for frame in late.frames)
    assert "resumed" not in late.hello
    producer.send(tensors(21))
    live = late.wait_frames(21)[-1]
    assert (live.bits, live.step) == (0, 21)
    rows = [step for frame in late.of("scalars") for step in frame.table().column("step").to_pylist()]
    assert rows == list(range(1, 21))


def test_a_viewer_that_comes_back_gets_what_it_lacks_once(hub):
    first, producer = hub.viewer(), hub.producer()
    run = first.hello["run"]["id"]
    for step in range(1, 31):
        producer.send(tensors(step))
        producer.send(scalars(step))
        if step == 12:
            first.wait_frames(12, "scalars")
            first.close()
    steps = {name: [f.step for f in first.of(name)] for name in ("tensors", "scalars")}
    second = hub.viewer(since=first.frames[-1].seq, run=run)
    assert second.hello["resumed"]["missed_frames"] == 0
    while 30 not in steps["tensors"] or 30 not in steps["scalars"]:
        frame = second.read()
        if not isinstance(frame, dict) and frame.stream in steps:
            steps[frame.stream] += sorted(set(frame.table().column("step").to_pylist()))
    assert steps == {name: list(range(1, 31)) for name in steps}


def test_viewers_that_come_amid_frames_of_all_sizes_are_sent_each_once(hub):
    """Frames are put together once for all viewers that keep up: small ones, large ones, and many at a time."""
    producer, viewers, payloads = hub.producer(), [hub.viewer()], []
    for step in range(1, 241):
        payloads.append(tensors(step, size=(8, 8, 8, 8_000, 8, 8_200, 40_000)[step % 7]))
        producer.send(payloads[-1])
        if step % 60 == 0:
            viewers.append(hub.viewer())
    for viewer in viewers:
        frames = viewer.wait_frames(240)
        assert [frame.step for frame in frames] == list(range(1, 241))
        numbers = [frame.seq for frame in viewer.frames]
        assert numbers == sorted(set(numbers))
        assert all(
            frame.body == decode_frame(sent).body for frame, sent in zip(frames, payloads, strict=True)
        )


def test_what_the_buffer_no_longer_holds_is_told(start_hub):
    hub = start_hub("--backlog-bytes", 5 * len(tensors(1)))
    first, producer = hub.viewer(), hub.producer()
    for step in range(1, 21):
        producer.send(tensors(step))
    since = first.wait_frames(20)[1].seq
    second = hub.viewer(since=since, run=first.hello["run"]["id"])
    assert [frame.step for frame in second.wait_frames(5)] == [16, 17, 18, 19, 20]
    assert second.hello["resumed"] == {
        "since": since,
        "missed_frames": 13,
        "missed_rows": 26,
        "first_step": 3,
        "last_step": 15,
    }


def test_a_place_in_another_run_or_in_the_future_is_a_first_connection(hub):
    first, producer = hub.viewer(), hub.producer()
    producer.send(tensors(1))
    seq = first.wait_frames(1)[0].seq
    for options in ({"since": seq, "run": "another"}, {"since": seq + 1000, "run": first.hello["run"]["id"]}):
        again = hub.viewer(**options)
        assert "resumed" not in again.hello
        assert again.wait_frames(1)[0].step == 1


def test_a_viewer_that_wants_no_past_tensors_gets_all_scalars(hub):
    first, producer = hub.viewer(), hub.producer()
    for step in (1, 2, 3):
        producer.send(tensors(step))
        producer.send(scalars(step))
    first.wait_frames(3, "scalars")
    viewer = hub.viewer(backlog=0)
    producer.send(tensors(4))
    assert [frame.step for frame in viewer.wait_frames(1)] == [4]
    rows = [step for frame in viewer.of("scalars") for step in frame.table().column("step").to_pylist()]
    assert rows == [1, 2, 3]


def test_a_stalled_viewer_costs_bounded_memory_and_then_gets_the_newest_rows(start_hub):
    limit = 4_000_000
    hub = start_hub("--queue-bytes", limit, "--backlog-bytes", limit)
    quick, stalled = hub.viewer(), hub.viewer(max_queue=1)
    producer = hub.producer()
    size = 50_000
    before = 0
    for step in range(1, 301):
        producer.send(tensors(step, size=size))
        # No more than may wait for it is ever on its way to the quick one.
        if step % 5 == 0:
            quick.wait_frames(step)
        if step == 20:
            before = resident_bytes(hub.process.pid)
    # 110 MB have passed.
    assert resident_bytes(hub.process.pid) - before < 4 * limit
    assert [frame.step for frame in quick.frames if frame.stream == "tensors"] == list(range(1, 301))
    status = stalled.wait("status", lambda m: m["dropped"]["viewer"] > 0 and m["step"] == 300)
    got = [frame.step for frame in stalled.of("tensors")]
    while got[-1] < 300:
        frame = stalled.read()
        if not isinstance(frame, dict):
            got.append(frame.step)
    assert got == sorted(set(got))
    assert status["dropped"]["viewer"] == 2 * (300 - len(got))
    assert quick.wait("status", lambda m: m["step"] == 300)["dropped"]["viewer"] == 0


def test_a_viewer_too_slow_for_scalars_is_closed_with_4429_and_comes_back(start_hub):
    hub = start_hub("--queue-bytes", 400_000)
    stalled, watcher = hub.viewer(max_queue=1, sock=hub.small_socket()), hub.viewer()
    producer = hub.producer()
    names = [f"scalar {number} " + "x" * 1000 for number in range(10)]
    watcher.wait("status", lambda m: m["viewers"] == 2)
    end = time.monotonic() + WAIT
    sent = 0
    while watcher.messages[-1].get("viewers") == 2 or watcher.messages[-1]["type"] != "status":
        assert time.monotonic() < end
        for _ in range(20):
            sent += 1
            producer.send(scalars(sent, names))
        watcher.wait_frames(sent, "scalars")
    assert stalled.closed() == 4429
    back = hub.viewer(since=stalled.frames[-1].seq, run=stalled.hello["run"]["id"])
    rows = [
        row for c in (stalled, back) for f in c.of("scalars") for row in f.table().column("step").to_pylist()
    ]
    while rows[-1] < sent:
        frame = back.read()
        if not isinstance(frame, dict):
            rows += frame.table().column("step").to_pylist()
    assert rows == [step for step in range(1, sent + 1) for _ in names]
