"""Spans of a model whose work a device does later, beside the times at which it did it."""

import threading
import time
from typing import ClassVar

import numpy as np
import pandas
import pytest
import torch
from test_timeline import Slow, recorded, train

from megalens import trace
from megalens.instruments.timeline.step_clock import StepClock
from megalens.runs import open_run

LATE = 0.05


class Device:
    """A device that comes to each event 50 ms after it was queued, and whose clock began at another time."""

    name = "late:0"
    began = 7_000_000_123

    class Event:
        # When the thread that trains waited for one.
        waited: ClassVar[list[int]] = []

        def __init__(self) -> None:
            self.passes = 0

        def query(self) -> bool:
            return time.perf_counter_ns() >= self.passes

        def synchronize(self) -> None:
            if threading.current_thread() is threading.main_thread():
                self.waited.append(time.perf_counter_ns())
            time.sleep(max(0, self.passes - time.perf_counter_ns()) * 1e-9)

        def elapsed_time(self, end: "Device.Event") -> float:
            # As a device gives it: milliseconds in float32.
            return float(torch.tensor((end.passes - self.passes) * 1e-6, dtype=torch.float32))

    def __init__(self, works: bool = True) -> None:
        self.works = works
        self.queued: set[Device.Event] = set()

    def event(self) -> Event:
        return Device.Event()

    def queue(self, event: Event) -> bool:
        if not self.works:
            raise RuntimeError("this device is lost")
        self.queued.add(event)
        event.passes = time.perf_counter_ns() + round(LATE * 1e9)
        return True

    def pass_now(self, event: Event) -> None:
        event.passes = time.perf_counter_ns()


@pytest.fixture
def device(monkeypatch) -> Device:
    device = Device()
    Device.Event.waited.clear()

    def follow(clock: StepClock, roots) -> None:
        clock.read(device)

    monkeypatch.setattr(StepClock, "follow", follow)
    return device


@pytest.mark.parametrize("timeline", ["phases", "operations"])
def test_spans_are_when_the_device_worked_and_the_step_does_not_wait_for_it(
    gpt, ids, tmp_path, own_hub, device, timeline
) -> None:
    model = Slow(gpt)
    rows = recorded(model, ids, tmp_path, own_hub, timeline)
    passes = rows[rows["kind"].eq("forward") & rows["name"].eq("")].sort_values("start")
    assert set(rows["device"]) == {"late:0"}
    assert len(passes) == len(model.seen) > 2
    seen = np.array([each[1:] for each in model.seen]) + LATE * 1e9
    # But where the system takes the processor between the two.
    assert (np.median(np.abs(passes[["start", "end"]].to_numpy() - seen), axis=0) < 2e6).all()
    steps = rows[rows["kind"] == "step"].sort_values("step")
    starts, ends = steps["start"].to_numpy(), steps["end"].to_numpy()
    # Queued one after the other, also where the device is several steps behind.
    began, ended = np.array([each[1:] for each in model.seen]).reshape(len(steps), -1, 2).T
    assert np.median(starts[1:] - ends[:-1] - (began[0, 1:] - ended[-1, :-1])) <= 2e6
    # Until the end nobody waits for it.
    assert not [at for at in Device.Event.waited if model.seen[0][1] < at < model.seen[-1][2]]
    assert (rows["blocked"] <= rows["end"] - rows["start"]).all()


def test_memory_is_told_at_the_times_of_the_device(gpt, ids, tmp_path, own_hub, device) -> None:
    spans = recorded(gpt, ids, tmp_path, own_hub, {"granularity": "layers", "memory": True})
    memory = open_run(next(tmp_path.glob("*/run.json")).parent).table("memory").to_pandas()
    joined = memory.merge(
        spans, left_on=["step", "phase", "name", "start"], right_on=["step", "kind", "name", "start"]
    )
    assert len(joined) == len(memory) > 0
    assert not device.Event.waited


def test_events_are_used_again(gpt, ids, tmp_path, own_hub, device, monkeypatch) -> None:
    read = threading.Semaphore(0)
    give = StepClock.give

    def noted(clock: StepClock, marks) -> None:
        give(clock, marks)
        if marks and threading.current_thread() is not threading.main_thread():
            read.release()

    def one_by_one(model, ids, tracer, steps: int) -> None:
        for _ in range(steps):
            train(model, ids, tracer, 1)
            assert read.acquire(timeout=60)

    monkeypatch.setattr(StepClock, "give", noted)
    recorded(gpt, ids, tmp_path / "few", own_hub, "phases", 3, one_by_one)
    few, device.queued = len(device.queued), set()
    recorded(gpt, ids, tmp_path / "many", own_hub, "phases", 12, one_by_one)
    # As many, though the steps are four times as many.
    assert len(device.queued) == few > 2


def test_a_device_that_fails_leaves_the_times_of_the_host_and_says_so_once(
    gpt, ids, tmp_path, own_hub, device
) -> None:
    device.works = False
    with trace(gpt, record=tmp_path, linger=0.1, timeline="phases") as tracer:
        own_hub.add(tracer.hub_pid)
        began = time.perf_counter_ns()
        train(gpt, ids, tracer)
        ended = time.perf_counter_ns()
        warnings = tracer.status()["warnings"]
    rows: pandas.DataFrame = open_run(tracer.folder).table("spans").to_pandas()
    assert set(rows["device"]) == {"cpu"}
    assert rows["start"].min() >= began
    assert rows["end"].max() <= ended
    assert [each for each in warnings if "device" in each] == [
        "The times of the device could not be read, so that passes are timed until their work is queued: RuntimeError: this device is lost"
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_pass_on_a_gpu_lasts_until_its_work_is_done(tmp_path, own_hub) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).cuda()
    batch = torch.randn(4096, 4096, device="cuda")
    model(batch)
    torch.cuda.synchronize()
    began = time.perf_counter()
    model(batch)
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    with trace(model, record=tmp_path, linger=0.1, timeline="phases") as tracer:
        own_hub.add(tracer.hub_pid)
        for _ in range(5):
            with tracer.step():
                model(batch).square().mean().backward()
    rows = open_run(tracer.folder).table("spans").to_pandas()
    passes = rows[rows["kind"] == "forward"]
    assert set(passes["device"]) == {"cuda:0"}
    assert (passes["end"] - passes["start"]).median() == pytest.approx(took * 1e9, rel=0.3)
