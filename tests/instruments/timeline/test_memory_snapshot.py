"""Memory snapshots with the structure that torch's allocator writes, beside torch's own reader of them."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import tracemalloc

import pytest
from torch.cuda import _memory_viz

import megalens
from megalens.instruments.timeline import flight_pickle
from megalens.runs import ClientError
from megalens.runs.answers import RunAnswers

TORCH = {"filename": "/site/torch/nn/modules/linear.py", "line": 125, "name": "forward"}
NATIVE = {"filename": "??", "line": 0, "name": "at::native::empty_cuda"}
LINES = [
    {"filename": "/project/gpt/model.py", "line": 40 + at, "name": name}
    for at, name in enumerate(("attention", "mlp", "head"))
]
START_US = 1_790_000_000_000_000


def stack(line):
    return [NATIVE, TORCH, line, {"filename": "/project/train.py", "line": 9, "name": "<module>"}]


def snapshot(seed=0, events=600, before=3, device=0):
    """Return a snapshot of a random allocator, and what it held over time by line."""
    rng = random.Random(seed)
    live = {at * 4096: (512 * (at + 1), None) for at in range(before)}
    trace, held, total, course = [], {None: sum(size for size, _ in live.values())}, 0, []
    total = held[None]
    for at in range(events):
        time = START_US + 10 * at
        if live and rng.random() < 0.4:
            address = rng.choice([*live])
            size, line = live.pop(address)
            held[line] -= size
            total -= size
            for action in ("free_requested", "free_completed"):
                trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": time})
        else:
            address, size, line = 10**12 + at * 65536, 512 * rng.randint(1, 100), rng.randrange(3)
            live[address] = (size, line)
            held[line] = held.get(line, 0) + size
            total += size
            frames = stack(LINES[line])
            trace.append(
                {
                    "action": "alloc",
                    "addr": address,
                    "size": size,
                    "stream": 0,
                    "time_us": time,
                    "frames": frames,
                }
            )
        course.append((total, dict(held)))
    blocks = [
        {
            "address": address, "size": size, "requested_size": size - 7, "state": "active_allocated",
            "frames": [] if line is None else stack(LINES[line]),
        }
        for address, (size, line) in live.items()
    ]  # fmt: skip
    blocks.append({"address": 1, "size": 4096, "requested_size": 0, "state": "inactive", "frames": []})
    segment = {
        "device": device, "address": 0, "total_size": total + 4096, "allocated_size": total, "active_size": total,
        "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
        "blocks": blocks,
    }  # fmt: skip
    made = {"segments": [segment], "device_traces": [[]] * device + [trace], "allocator_settings": {}}
    return made, course


def named(line):
    return "no stack" if line is None else f"gpt/model.py:{LINES[line]['line']} {LINES[line]['name']}"


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_what_each_line_holds_now_and_at_the_peak_and_the_course_of_all(tmp_path, form) -> None:
    made, course = snapshot()
    path = tmp_path / f"snapshot.{form}"
    path.write_bytes(pickle.dumps(made) if form == "pickle" else json.dumps(made).encode())
    with megalens.open(path) as run:
        rows = run.table("memory").to_pandas()
        assert run.warnings == []
    held = rows[rows["phase"] == "held"].set_index("name")
    last, top = course[-1], max(course, key=lambda each: each[0])
    assert held["allocated"].to_dict() == {
        named(line): size for line, size in last[1].items() if size or top[1].get(line, 0)
    }
    assert held["peak"].to_dict() == {name: held.loc[name, "peak"] for name in held.index}
    assert {name: size for name, size in held["peak"].items() if size} == {
        named(line): size for line, size in top[1].items() if size
    }
    trace = rows[rows["phase"] == "trace"]
    assert trace["peak"].max() == top[0]
    assert trace["allocated"].iloc[-1] == last[0]
    assert trace["before"].iloc[0] == 512 * 6
    assert set(trace["reserved"]) == {last[0] + 4096}
    assert (trace["end"] >= trace["start"]).all()
    assert trace["start"].iloc[0] == START_US * 1000
    # torch's own readers take the same file: it has the structure that they expect.
    assert _memory_viz.segsum(made)
    assert _memory_viz.trace(made)
    assert _memory_viz.calc_active(made["segments"][0]) == trace["allocated"].iloc[-1]


def test_the_timeline_draws_it_and_names_the_lines_that_hold_most(tmp_path) -> None:
    made, course = snapshot(seed=4, events=9000)
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(made))
    with megalens.open(tmp_path / "snapshot.pickle") as run:
        answer = RunAnswers(run).answer("timeline", {"request": {"columns": 300}})[0]
    memory = answer["memory"]
    assert memory["scale"] == max(memory["pieces"]["peak"]) == max(total for total, _ in course)
    assert memory["peak"]["phase"] == "trace"
    most = sorted(course[-1][1].items(), key=lambda each: -each[1])
    assert memory["holders"][0] == {"name": named(most[0][0]), "bytes": most[0][1]}


def test_snapshots_of_several_ranks_are_one_run_by_the_numbers_in_their_names(tmp_path) -> None:
    for rank in (0, 2, 10):
        made, _ = snapshot(seed=rank, device=rank % 4)
        (tmp_path / f"mem_rank{rank}.pickle").write_bytes(pickle.dumps(made))
    (tmp_path / "notes.json").write_text('{"segments": 3}')
    (tmp_path / "broken.pickle").write_bytes(pickle.dumps(snapshot()[0])[:-100])
    with megalens.open(tmp_path) as run:
        rows = run.table("memory").to_pandas()
        problems = " ".join(run.warnings)
    devices = rows.groupby("rank")["device"].first()
    assert devices.to_dict() == {0: "cuda:0", 1: "cuda:2", 2: "cuda:2"}
    assert "rank 2 is device 2 of mem_rank10.pickle" in problems
    assert "broken.pickle: it is no snapshot of plain values" in problems
    assert "notes.json: it holds no memory of a device" in problems


def test_a_snapshot_without_history_says_what_is_held(tmp_path) -> None:
    made, course = snapshot()
    made["device_traces"] = []
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(made))
    with megalens.open(tmp_path / "snapshot.pickle") as run:
        rows = run.table("memory").to_pandas()
    assert rows[rows["phase"] == "trace"]["allocated"].tolist() == [course[-1][0]]
    assert rows[rows["phase"] == "held"]["allocated"].sum() == course[-1][0]


class Hostile:
    def __reduce__(self):
        return (print, ("run",))


def test_a_snapshot_that_names_a_function_is_refused_and_runs_nothing(tmp_path, capfd) -> None:
    made, _ = snapshot()
    made["allocator_settings"] = Hostile()
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(made))
    with pytest.raises(ClientError, match="it is no snapshot of plain values"):
        megalens.open(tmp_path / "snapshot.pickle")
    assert capfd.readouterr().out == ""


def test_damaged_snapshots_are_read_or_refused_and_take_no_memory_here(tmp_path) -> None:
    whole = pickle.dumps(snapshot(events=40)[0])
    rng = random.Random(1)
    tracemalloc.start()
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            # What the child computes, without its process.
            devices = flight_pickle.summary(bytes(damaged))
        except Exception:
            continue
        assert len(json.dumps(devices)) < 1 << 20
    assert tracemalloc.get_traced_memory()[1] < 256 << 20
    tracemalloc.stop()


def test_the_child_reads_no_more_than_it_may(tmp_path) -> None:
    command = [sys.executable, "-I", "-S", flight_pickle.__file__, "memory"]
    large = b"{" + b" " * flight_pickle.MOST_SNAPSHOT
    child = subprocess.run(command, input=large, capture_output=True, check=False)
    assert child.returncode != 0
    assert b"too large" in child.stderr
