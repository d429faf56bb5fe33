"""Sealing while a run is recorded: every program reads it, whoever is killed loses nothing, and the end takes no time."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hub_process import ROOT, WAIT, moments, put, scalars, tensors, until
from recorded_files import all_sealed, file_names, recorded_table, segments_of, tails_of

from megalens.hub import recording_folder, sealer, stream_folder
from megalens.hub.recorder import Recorder

TAIL = 64 * 1024


@pytest.fixture(autouse=True)
def small_tails(monkeypatch):
    monkeypatch.setattr(recording_folder, "_TAIL_BYTES", TAIL)


def record(recorder, first, last, size=400):
    for step in range(first, last + 1):
        put(recorder, tensors(step, size=size))
    until(lambda: not recorder._waiting_bytes)


def sealed_all(recorder, last):
    """Wait until all tails but the growing one are sealed: the recorder looks when rows come."""

    def sealed():
        put(recorder, scalars(last))
        time.sleep(0.05)
        return len(tails_of(recorder._folder.path, "tensors")) == 1

    until(sealed)


def sealed_steps(folder, stream="tensors"):
    """Return the steps in the sealed segments, as each of five programs reads the folder."""
    place = folder / stream
    rows = duckdb.sql(f"select step from '{place}/*.parquet' order by step").fetchall()
    read = [
        [step for (step,) in rows],
        sorted(pd.concat(pd.read_parquet(path) for path in segments_of(folder, stream))["step"].tolist()),
        sorted(pq.read_table([str(path) for path in segments_of(folder, stream)])["step"].to_pylist()),
        sorted(
            ds.dataset([str(path) for path in segments_of(folder, stream)]).to_table()["step"].to_pylist()
        ),
    ]
    # Not everybody who runs the tests has it.
    with contextlib.suppress(ModuleNotFoundError):
        import polars as pl

        read.append(sorted(pl.scan_parquet(f"{place}/*.parquet").select("step").collect()["step"].to_list()))
    assert all(steps == read[0] for steps in read)
    return read[0]


def twice(first, last):
    return [step for step in range(first, last + 1) for _ in (1, 2)]


def test_a_live_and_a_finished_recording_are_read_alike(recorder, tmp_path):
    live, folder = recorder(), tmp_path / "run"
    record(live, 1, 200)
    sealed_all(live, 200)
    steps = sealed_steps(folder)
    assert steps == twice(1, steps[-1])
    assert len(segments_of(folder, "tensors")) > 3
    assert recorded_table(folder, "tensors")["step"].to_pylist() == twice(1, 200)
    live.close({"format": 2})
    assert live.status()["state"] == "closed"
    all_sealed(folder, "tensors")
    assert sealed_steps(folder) == twice(1, 200)
    # The whole folder is a table for who asks for it.
    assert len(pd.read_parquet(folder / "tensors")) == 400
    summary = json.loads((folder / "run.json").read_text())["streams"]["tensors"]
    assert (summary["rows"], summary["first_step"], summary["last_step"]) == (400, 1, 200)
    assert summary["bytes"] == sum(path.stat().st_size for path in segments_of(folder, "tensors"))


def test_segments_begin_with_a_new_step(recorder, tmp_path):
    recording, folder = recorder(), tmp_path / "run"
    for step in range(1, 60):
        for rank in range(3):
            put(recording, tensors(step, size=400, rank=rank))
    recording.close({"format": 2})
    all_sealed(folder, "tensors")
    seen = set()
    assert len(segments_of(folder, "tensors")) > 3
    for path in segments_of(folder, "tensors"):
        steps = set(pq.read_table(path)["step"].to_pylist())
        assert not steps & seen
        assert path.name.endswith(f"-step-{min(steps)}.parquet")
        seen |= steps


def test_a_step_without_an_end_goes_to_further_files(recorder, tmp_path):
    recording, folder = recorder(), tmp_path / "run"
    for rank in range(300):
        put(recording, tensors(7, size=400, rank=rank))
    recording.close({"format": 2})
    all_sealed(folder, "tensors")
    assert len(segments_of(folder, "tensors")) > 1
    assert recorded_table(folder, "tensors")["rank"].to_pylist() == [
        rank for rank in range(300) for _ in (1, 2)
    ]


def test_a_tail_is_sealed_after_a_while_however_small(recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(stream_folder, "_LEAST_SECONDS", 0.1)
    recording, folder = recorder(), tmp_path / "run"
    record(recording, 1, 2, size=8)
    time.sleep(0.2)
    record(recording, 3, 3, size=8)
    sealed_all(recording, 3)
    # What was sealed is removed a moment after it is no tail any more.
    until(lambda: file_names(folder, "tensors") == ["000000-step-1.parquet", "000001-step-3.arrows"])


def test_the_sealer_may_die_again_and_again(recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(sealer, "_MOST_DEATHS", 100)
    recording, folder = recorder(), tmp_path / "run"
    seed = random.Random(3)
    killed = set()
    for step in range(1, 301):
        put(recording, tensors(step, size=400))
        child = recording._folder._sealer._child
        if step % 15 == 0 and child is not None and child.poll() is None:
            time.sleep(seed.random() * 0.3)
            # It may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
                killed.add(child.pid)
    assert killed
    until(lambda: not recording._waiting_bytes)
    assert recorded_table(folder, "tensors")["step"].to_pylist() == twice(1, 300)
    sealed_all(recording, 300)
    recording.close({"format": 2})
    all_sealed(folder, "tensors")
    assert sealed_steps(folder) == twice(1, 300)


def test_a_sealer_that_never_starts_is_named_and_costs_no_row(recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    # However busy the machine is.
    monkeypatch.setattr(recording_folder, "_CLOSE_SECONDS", 60.0)
    recording, folder = recorder(), tmp_path / "run"
    record(recording, 1, 100)

    def named():
        put(recording, scalars(100))
        return "could not be sealed to Parquet" in recording.status().get("message", "")

    until(named)
    assert recording.status()["state"] == "on"
    assert recorded_table(folder, "tensors")["step"].to_pylist() == twice(1, 100)
    # The hub itself seals small ones at the end, but for one that a child has just taken.
    recording.close({"format": 2})
    assert recorded_table(folder, "tensors")["step"].to_pylist() == twice(1, 100)
    assert len(tails_of(folder, "tensors")) <= 1


def test_a_disk_that_is_full_for_sealing_keeps_the_tails(recorder, tmp_path, monkeypatch):
    def full(*given, **named):
        raise OSError(28, os.strerror(28))

    recording, folder = recorder(), tmp_path / "run"
    record(recording, 1, 20, size=8)
    monkeypatch.setattr(recording_folder, "seal_tail", full)
    recording.close({"format": 2})
    assert recording.status()["state"] == "closed"
    assert recording.status()["message"] == (
        "tensors/000000-step-1.arrows could not be sealed to Parquet: No space left on device. It stays readable as it is."
    )
    assert recorded_table(folder, "tensors")["step"].to_pylist() == twice(1, 20)


HUB = """
import sys
import time
from pathlib import Path
sys.path[:0] = ["tests/hub", "tests/kit"]
from hub_process import moments, put, tensors
from megalens.hub import recording_folder
from megalens.hub.recorder import Recorder
recording_folder._TAIL_BYTES = 64 * 1024
recorder = Recorder(Path(sys.argv[1]), {"format": 2}, 1 << 28, 0.02)
step = 0
while True:
    step += 1
    put(recorder, tensors(step, size=400), moments(step))
    print(step, flush=True)
    if step > 400:
        # All that there is to be killed in the midst of; what waits for idle cores to be sealed is not to be much.
        time.sleep(0.02)
"""


@pytest.mark.parametrize("steps", [30, 120, 333])
def test_a_hub_that_is_killed_loses_no_row_and_duplicates_none(tmp_path, steps):
    folder = tmp_path / "run"
    hub = subprocess.Popen([sys.executable, "-c", HUB, folder], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    reached = next((step for step in map(int, hub.stdout) if step >= steps), None)
    assert reached == steps, "the hub ended by itself"
    until(lambda: segments_of(folder, "tensors") or steps < 100)
    before = recorded_table(folder, "tensors")["step"].to_pylist()
    hub.kill()
    hub.wait(WAIT)
    hub.stdout.close()
    for stream, rows in (("tensors", 2), ("moments", 1)):
        # The sealer may be at work still, and then ends by itself.
        for _ in range(20):
            found = recorded_table(folder, stream)["step"].to_pylist()
            assert found == [step for step in range(1, len(found) // rows + 1) for _ in range(rows)]
            time.sleep(0.02)
        assert len(found) >= len(before) // (2 // rows) - 4
    until(lambda: not [name for name in file_names(folder, "tensors") if name.endswith(".partial")])
    assert recorded_table(folder, "tensors")["step"].to_pylist()[: len(before)] == before
    if segments_of(folder, "tensors"):
        steps = sealed_steps(folder)
        assert steps == twice(1, steps[-1])


def test_what_takes_too_long_at_the_end_is_sealed_after_it(recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(recording_folder, "_SEALED_PER_SECOND", 1)
    recording, folder = recorder(), tmp_path / "run"
    record(recording, 1, 100)
    recording.close({"format": 2})
    assert recording.status()["state"] == "closed"
    assert "message" not in recording.status()
    assert recorded_table(folder, "tensors")["step"].to_pylist() == twice(1, 100)
    all_sealed(folder, "tensors")
    assert sealed_steps(folder) == twice(1, 100)


def test_many_bytes_that_wait_are_sealed_in_a_hurry(recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(sealer, "_HURRY_BYTES", 3 * TAIL)
    started = []
    start = sealer._start
    monkeypatch.setattr(sealer, "_start", lambda hurries: started.append(hurries) or start(hurries))
    recording, folder = recorder(), tmp_path / "run"
    record(recording, 1, 300)
    sealed_all(recording, 300)
    # Whether one began before so much waited depends on how busy the machine is.
    assert True in started
    assert recorded_table(folder, "tensors")["step"].to_pylist() == twice(1, 300)
    # One tail after another: so little waits that there is no hurry, however slow the child is.
    for first in range(301, 361, 20):
        record(recording, first, first + 19)
        sealed_all(recording, first + 19)
    assert started[-1] is False


@pytest.mark.slow
def test_the_end_of_a_recording_seals_no_more_than_it_does_in_half_a_second(tmp_path, monkeypatch):
    """How long the end of 400 MB takes, `python -m bench sealing` measures."""
    monkeypatch.setattr(recording_folder, "_TAIL_BYTES", 32 << 20)
    sealed, seal = [], recording_folder.seal_tail

    def counted(path, *given, **named):
        sealed.append(path.stat().st_size)
        return seal(path, *given, **named)

    monkeypatch.setattr(recording_folder, "seal_tail", counted)
    recording, folder = Recorder(tmp_path / "run", {"format": 2}, 1 << 29, 1.0), tmp_path / "run"
    step = size = 0
    while size < 60_000_000:
        step += 1
        data = tensors(step, layers=range(1, 9), size=20_000)
        put(recording, data)
        put(recording, moments(step))
        size += len(data)
    until(lambda: not recording._waiting_bytes)
    recording.close({"format": 2})
    assert sum(sealed) <= 16 * 1024 * 1024
    assert recording.status()["state"] == "closed"
    all_sealed(folder, "tensors")
    assert pq.read_metadata(segments_of(folder, "tensors")[0]).num_row_groups > 1
    assert sorted(set(sealed_steps(folder))) == list(range(1, step + 1))
