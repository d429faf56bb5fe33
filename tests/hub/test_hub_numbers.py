"""Numbers at their edges on the way through a hub: clocks that jump, tensors without values, steps and layers as large as they may be."""

import asyncio
import json
import time

import pytest
from hub_process import announce, scalars, tensors
from recorded_files import parquet_of
from viewer import watch

from megalens.hub.connections import join_hub
from megalens.hub.job import Ranks
from megalens.hub.options import HubOptions
from megalens.hub.server import Hub
from megalens.protocol import Pace, encode_frame, encode_message, stream_schema

LAYOUT = {"world_size": 2, "tp": 2, "pp": 1, "dp": 1}


@pytest.mark.slow
async def test_nothing_waits_by_a_clock_that_jumps(runtime, monkeypatch):
    """Wall time falls by a day and rises by two while a run goes on: states, statuses and the end come when they should."""
    real = time.time
    offset = [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])

    hub = Hub(HubOptions(linger=0.2))
    await hub.start()
    serving = asyncio.create_task(hub.serve_until_done(asyncio.Event()))
    viewer, (producer, _) = await watch(hub.entry), await join_hub(hub.entry, "producer", "tracer")
    await producer.send(encode_message(announce()))
    for step, jump in enumerate((-86_400.0, 172_800.0, -1e9), 1):
        offset[0] = jump
        await producer.send(scalars(step))
        status = await viewer.wait("status", lambda m, step=step: m["step"] == step)
        assert (status["state"], status["ranks"][0]["state"]) == ("training", "training")
    await producer.send('{"type":"goodbye","reason":"finished"}')
    await viewer.wait("status", lambda m: m["state"] == "finished")
    await viewer.socket.close()
    await asyncio.wait_for(serving, 30)


@pytest.mark.slow
def test_tensors_without_values_and_the_largest_numbers_are_passed_on_and_recorded(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path)
    viewer, producer = hub.viewer(), hub.producer()
    largest = 2**31 - 1
    producer.send(tensors(2**53 - 1, layers=(0, largest), size=0))
    producer.send(encode_frame("tensors", stream_schema("tensors").empty_table(), step=2**53 - 1))
    frame = viewer.wait_frames(2)[0]
    assert frame.table().column("values").to_pylist() == [[], []]
    producer.send({"type": "goodbye", "reason": "finished"})
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    table = parquet_of(hub.record, "tensors")
    assert table.column("layer").to_pylist() == [0, largest]
    assert json.loads((hub.record / "run.json").read_text())["streams"]["tensors"]["last_step"] == 2**53 - 1


@pytest.mark.slow
@pytest.mark.parametrize("step", [2**53, 2**62, -2])
def test_a_step_that_no_message_could_tell_ends_its_sender_and_not_the_hub(start_hub, step):
    hub = start_hub()
    viewer, producer = hub.viewer(), hub.producer()
    producer.send(tensors(step))
    assert producer.closed() == 4400
    hub.producer().send(tensors(7))
    viewer.wait("status", lambda m: m["step"] == 7)


def test_a_pace_lets_a_few_through_at_once_and_then_so_many_a_second():
    now = [0.0]
    pace = Pace(3, 2.0, lambda: now[0])
    assert [pace.take() for _ in range(5)] == [True, True, True, False, False]
    now[0] = 0.5
    assert [pace.take(), pace.take()] == [True, False]
    now[0] = 1000.0
    assert [pace.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 2000.0
    assert [pace.take(2), pace.take(2), pace.take()] == [True, False, True]


def status(step, **more):
    return {"type": "status", "state": "training", "step": step, **more}


def states(ranks, now):
    return {entry["rank"]: entry["state"] for entry in ranks.states(now)}


def test_a_process_is_silent_after_two_seconds_and_not_because_the_hub_stood_still():
    ranks = Ranks()
    ranks.came(announce(0, layout=LAYOUT), 100.0)
    told = {"rank": 1, "state": "training", "step": 4, "seconds": 0.5}
    ranks.report(0, status(4, ranks=[told]), 101.0)
    assert states(ranks, 102.4) == {0: "training", 1: "training"}
    assert states(ranks, 102.6) == {0: "training", 1: "silent"}
    assert ranks.silent(103.1) == [0, 1]
    ranks.forgive(30.0)
    assert ranks.silent(132.0) == []


def test_who_was_heard_of_last_tells_of_a_process_that_is_no_producer():
    ranks = Ranks()
    for rank in (0, 2):
        ranks.came(announce(rank, layout=LAYOUT), 100.0)
    ranks.report(0, status(4, ranks=[{"rank": 3, "state": "silent", "step": 2, "seconds": 5.0}]), 101.0)
    ranks.report(2, status(4, ranks=[{"rank": 3, "state": "training", "step": 4, "seconds": 0.1}]), 101.0)
    ranks.report(0, status(4, ranks=[{"rank": 3, "state": "silent", "step": 2, "seconds": 6.0}]), 102.0)
    assert states(ranks, 102.0)[3] == "training"
    ranks.report(2, status(4, ranks=[{"rank": 3, "state": "lost", "step": 4, "seconds": 9.0}]), 102.5)
    assert states(ranks, 200.0)[3] == "lost"


def test_an_older_step_does_not_bring_a_process_back_unless_it_says_so():
    ranks = Ranks()
    ranks.came(announce(0), 100.0)
    ranks.heard(0, 101.0, 10)
    ranks.heard(0, 102.0, 9)
    assert ranks.step() == 10
    ranks.report(0, status(3), 103.0)
    assert ranks.step() == 3
