"""Rows of the stream memory, beside sizes that the test itself takes, and limits that it writes."""

import mmap
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from processes import run_job
from test_timeline import recorded, train
from torch import nn

from megalens import trace
from megalens.instruments.timeline.memory_rows import memory_rows
from megalens.instruments.timeline.noted_span import Span
from megalens.protocol import ProtocolError
from megalens.runs import open_run
from megalens.tracer import memory
from megalens.tracer.memory import MemoryReader, MemorySizes, allocator_sizes, memory_limit, memory_reader

MIB = 1 << 20
KEPT, PASSING = 48, 160


def of_the_system(mib: int) -> torch.Tensor:
    """Take memory that is not from the heap, in which another test may have left as much."""
    taken = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(taken, dtype=torch.float32).fill_(1)


class Greedy(nn.Module):
    """Keeps 48 MiB more with each call, and takes 160 MiB for the time of its call alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.append(of_the_system(KEPT))
        passing = of_the_system(PASSING)
        return self.inner(x) + passing[0] - 1


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), Greedy(), nn.Linear(8, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def memory_of(folder: Path) -> pandas.DataFrame:
    with open_run(next(folder.glob("*/run.json")).parent) as run:
        return run.table("memory").to_pandas()


@pytest.mark.slow
def test_a_layer_that_keeps_memory_is_the_one_whose_rows_grow_and_peak(tmp_path, own_hub) -> None:
    settings = {"granularity": "layers", "memory": True}
    # This process may have been larger in another test: its peak is from now on.
    Path("/proc/self/clear_refs").write_text("5")
    spans = recorded(Model(), torch.randn(4, 8), tmp_path, own_hub, settings)
    rows = memory_of(tmp_path)
    # What they are of, and when it was, is what the spans say.
    joined = rows.merge(
        spans,
        left_on=["step", "phase", "name", "start", "end"],
        right_on=["step", "kind", "name", "start", "end"],
    )
    assert (
        len(joined) == len(rows) == (spans["kind"].isin(["step", "forward", "backward", "optimizer"])).sum()
    )
    forward = rows[(rows["phase"] == "forward") & (rows["name"] != "")]
    grown = (forward["allocated"] - forward["before"]) / MIB
    greedy = forward["name"] == "layers.1"
    assert (np.abs(grown[greedy] - KEPT) < 8).all()
    assert (np.abs(grown[~greedy]) < 8).all()
    # Each call keeps more, so that the largest of all times is new each time.
    above = (forward["peak"] - forward["before"])[greedy] / MIB
    assert (np.abs(above - KEPT - PASSING) < 24).all()
    step = rows[rows["phase"] == "step"]
    assert (step["peak"].to_numpy() >= forward[greedy].groupby("step")["peak"].max().to_numpy()).all()
    assert (rows["reserved"] >= rows["allocated"]).all()
    assert (rows["peak"] >= rows[["before", "allocated"]].max(axis=1)).all()
    assert set(rows["device"]) == {"cpu"}
    assert set(zip(rows["limit"], rows["limit_of"], strict=True)) == {memory_limit()}


@pytest.mark.slow
def test_sums_have_one_row_for_each_phase_of_a_step(gpt, ids, tmp_path, own_hub) -> None:
    recorded(gpt, ids, tmp_path, own_hub, {"granularity": "steps", "memory": True})
    rows = memory_of(tmp_path)
    for _, mine in rows.groupby("step"):
        assert sorted(mine["phase"]) == ["backward", "forward", "optimizer", "step"]
        assert set(mine["name"]) == {""}


@pytest.mark.slow
def test_a_training_is_the_same_with_its_memory_read_and_no_stream_is_there_without(
    gpt, ids, tmp_path, own_hub
) -> None:
    start = {name: value.clone() for name, value in gpt.state_dict().items()}
    losses = []
    for number, wanted in enumerate((False, True)):
        gpt.load_state_dict(start)
        settings = {"granularity": "operations", "memory": wanted}
        with trace(gpt, record=tmp_path / str(number), linger=0.1, timeline=settings) as tracer:
            own_hub.add(tracer.hub_pid)
            losses.append(train(gpt, ids, tracer))
        with open_run(tracer.folder) as run:
            assert (len(run.table("memory")) > 0) is wanted
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_every_rank_says_its_own_memory(tmp_path) -> None:
    settings = {"granularity": "phases", "memory": True}
    run_job(2, "timeline_work:timed", "ddp", str(tmp_path), settings)
    rows = memory_of(tmp_path)
    assert sorted(rows["rank"].unique()) == [0, 1]
    counts = rows.groupby(["rank", "step", "phase"]).size()
    assert counts.groupby("rank").sum().nunique() == 1
    assert (rows["allocated"] > 0).all()


def test_the_peak_of_a_span_is_the_largest_of_the_readings_within_it() -> None:
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.integers(1, 9, 400))
    allocated = rng.integers(1, 1000, 400)
    peaks = np.maximum(allocated, rng.integers(1, 2000, 400))
    readings = {
        int(time): MemorySizes(int(size), int(size) * 2, int(peak))
        for time, size, peak in zip(times, allocated, peaks, strict=True)
    }
    ends = np.sort(rng.integers(0, 400, (300, 2)), axis=1)
    spans = [Span("forward", int(times[a]), int(times[b]), f"layers.{at}") for at, (a, b) in enumerate(ends)]
    codes: dict[str, int] = {}
    reader = MemoryReader("cuda:0", lambda: (0, MemorySizes(0, 0, 0)), 5000, "device")
    found = memory_rows(7, spans, spans, readings, reader, False, codes)
    for (a, b), row in zip(ends, found, strict=True):
        inside = max([allocated[a], *peaks[a + 1 : b + 1]])
        assert row[5:10] == (allocated[a], allocated[b], 2 * allocated[b], inside, 5000)
    # Of what began or ended without a reading nothing is said.
    assert (
        memory_rows(
            7, [Span("forward", -5, int(times[3]))], [Span("forward", -5, 1)], readings, reader, False, {}
        )
        == []
    )


def test_a_peak_is_that_of_the_counter_where_it_rose_or_was_reset() -> None:
    told = iter([(10, 10), (50, 20), (50, 30), (50, 25), (28, 28), (28, 5)])

    def counters() -> tuple[int, MemorySizes]:
        top, allocated = next(told)
        return top, MemorySizes(allocated, 64, top)

    reader = MemoryReader("cuda:0", counters, 0, "")
    # Risen, not risen (twice), reset by the script, and not risen.
    assert [reader.read().peak for _ in range(5)] == [50, 30, 30, 28, 28]


def test_the_counters_of_several_devices_are_summed_and_those_of_an_unused_one_are_none() -> None:
    def of(allocated: int, reserved: int, peak: int) -> dict:
        return {
            "allocated_bytes": {"all": {"current": allocated, "peak": peak, "allocated": 9, "freed": 9}},
            "reserved_bytes": {"all": {"current": reserved, "peak": reserved}},
        }

    assert allocator_sizes([of(5, 8, 7), of(1, 2, 1), {}]) == (8, MemorySizes(6, 10, 8))
    # Without a device torch gives what it gives for one that is not used yet.
    if not torch.cuda.is_available():
        assert allocator_sizes([torch.cuda.memory_stats_as_nested_dict()]) == (0, MemorySizes(0, 0, 0))


def test_mapped_files_do_not_count_as_allocated(tmp_path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"1" * (96 * MIB))
    reader = memory_reader([nn.Linear(2, 2)])
    before = reader.read()
    mapped = np.memmap(path, np.uint8, "r")
    assert int(mapped.sum(dtype=np.int64)) > 0
    after = reader.read()
    assert after.reserved - before.reserved > 80 * MIB
    assert after.allocated - before.allocated < 8 * MIB
    assert after.peak - before.allocated < 8 * MIB


@pytest.mark.parametrize(
    ("groups", "files", "wanted"),
    [
        ("0::/job/part", {"job/memory.max": "3000000", "job/part/memory.max": "max"}, 3_000_000),
        ("0::/job", {"job/memory.max": "3000000", "memory.max": "2000000"}, 2_000_000),
        ("4:cpu,memory:/job", {"memory/job/memory.limit_in_bytes": "5000000"}, 5_000_000),
        # From inside of a container the group's own path is not seen.
        ("4:memory:/far/away", {"memory/memory.limit_in_bytes": "6000000"}, 6_000_000),
        ("4:memory:/job", {"memory/job/memory.limit_in_bytes": str((1 << 63) - 4096)}, None),
        ("0::/", {}, None),
    ],
)
def test_the_limit_is_the_smallest_of_the_control_groups_or_the_machines(
    groups, files, wanted, tmp_path, monkeypatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content + "\n")
    (tmp_path / "groups").write_text(groups + "\n")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    limit, of = memory_limit()
    if wanted is None:
        assert of == "machine"
        assert limit > 1 << 28
    else:
        assert (limit, of) == (wanted, "cgroup")


def test_wrong_settings_are_refused_by_their_name(gpt) -> None:
    with pytest.raises(ProtocolError, match="memory must be true or false, got 'yes'") as raised:
        trace(gpt, hub=None, timeline={"memory": "yes"})
    assert raised.value.field == "instruments.timeline.memory"
