"""The hub process that the tracer starts, for real."""

import json
import os
import re
import resource
import signal
from functools import partial
from pathlib import Path

import pytest
from recorded_files import tails_of
from waiting import until

from megalens import Tile, trace
from megalens.runs import open_run
from megalens.tracer import TracerError

pytestmark = pytest.mark.slow


def steps(tracer, gpt, ids, count: int) -> None:
    for _ in range(count):
        with tracer.step():
            gpt(ids)
            tracer.log(loss=1.0)


def state(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())


def test_a_run_is_recorded_by_a_hub_of_its_own_that_then_ends(gpt, ids, tmp_path, own_hub) -> None:
    tracer = trace(gpt, name="own", flags={"MLP1_mat_mul": Tile(2)}, record=tmp_path / "runs", linger=0.2)
    pid = tracer.hub_pid
    own_hub.add(pid)
    steps(tracer, gpt, ids, 5)
    process = tracer._coordinator.worker.hub._process
    tracer.close()
    folder = tracer.folder
    assert folder == tmp_path / "runs" / tracer.run_id
    assert re.fullmatch(r"\d{8}-\d{6}-own-[0-9a-f]{8}", folder.name)
    until(lambda: not process.alive)
    found = state(folder)
    assert found["run"]["name"] == "own"
    assert found["state"] == "finished"
    assert found["streams"]["tensors"]["rows"] == 10
    assert (found["streams"]["tensors"]["first_step"], found["streams"]["tensors"]["last_step"]) == (1, 5)


def test_a_recording_is_whole_when_the_tracer_is_closed_and_until_then_known_to_be_written(
    gpt, ids, tmp_path, own_hub
) -> None:
    for _ in range(3):
        tracer = trace(gpt, flags={"MLP1_mat_mul": Tile(2)}, record=tmp_path, linger=0.2)
        own_hub.add(tracer.hub_pid)
        assert tracer.connected(20)
        folder = tmp_path / tracer.run_id
        steps(tracer, gpt, ids, 5)
        until(partial(tails_of, folder, "tensors"))
        with open_run(folder) as run:
            assert run.state != "lost"
            assert run.warnings == ["The recording is still being written: its hub runs."]
            assert run.status["recording"]["state"] == "on"
        tracer.close()
        with open_run(folder) as run:
            assert (run.state, run.step, run.warnings) == ("finished", 5, [])
        assert not list(folder.rglob("*.arrows"))


def test_a_recording_says_what_was_warned_of_and_a_hub_that_was_killed_is_lost(
    gpt, ids, tmp_path, own_hub
) -> None:
    tracer = trace(gpt, flags={"MLP1_mat_mul": Tile(2)}, record=tmp_path, linger=0.2)
    own_hub.add(tracer.hub_pid)
    assert tracer.connected(20)
    # As a compiled model does: nothing is called.
    for _ in range(2):
        with tracer.step():
            pass
    for number in range(12):
        tracer.warn(f"Something of number {number}.")
    tracer.close()
    with open_run(tmp_path / tracer.run_id) as run:
        rows = [row for row in run.audit().to_pylist() if row["action"] == "warning"]
        texts = [json.loads(row["detail"])["text"] for row in rows]
        assert (
            sum(
                text.startswith(
                    "Step 1 has no rows of MLP1 output, layer 0; MLP1 output, layer 1: its module was"
                )
                for text in texts
            )
            == 1
        )
        # Those that differ by a number only are cut short.
        assert sum(text.startswith("Something") for text in texts) == 8
        assert (
            sum(text.startswith("Further warnings like this one are not recorded: ") for text in texts) == 1
        )
        assert set(texts) <= set(run.warnings)
        assert {row["who"] for row in rows} == {"tracer"}
    tracer = trace(gpt, flags={"MLP1_mat_mul": Tile(2)}, record=tmp_path, linger=0.2)
    assert tracer.connected(20)
    folder = tmp_path / tracer.run_id
    steps(tracer, gpt, ids, 2)
    until(lambda: tails_of(folder, "tensors"))
    os.kill(tracer.hub_pid, signal.SIGKILL)

    def state_now() -> str:
        with open_run(folder) as run:
            return run.state

    until(lambda: state_now() == "lost")
    tracer.close()
    own_hub.add(tracer.hub_pid)


def _unwritten(warnings: list[str]) -> tuple[int, int]:
    found = re.search(r"rows of steps (\d+) to (\d+) may be in neither", " ".join(warnings))
    assert found, warnings
    return int(found[1]), int(found[2])


def _recorded_steps(folder: Path) -> set[int]:
    return set(open_run(folder).tensors()["step"].to_pylist()) if folder.exists() else set()


def test_a_connection_that_broke_names_the_steps_that_may_be_missing(gpt, ids, tmp_path, own_hub) -> None:
    # The hub waits longer than it takes to connect again, however busy the machine is: it must not be started anew.
    with trace(gpt, flags={"MLP1_mat_mul": Tile(2)}, record=tmp_path / "runs", linger=60) as tracer:
        assert tracer.connected(20)
        run = tracer.run_id
        own_hub.add(tracer.hub_pid)
        steps(tracer, gpt, ids, 3)
        # What was not sent yet cannot be missing.
        until(lambda: tracer.status()["step"] == 3)
        tracer._coordinator.worker.hub.abort()

        def named() -> str:
            steps(tracer, gpt, ids, 1)
            return next(
                (text for text in tracer.status()["warnings"] if "connection to the hub broke" in text), ""
            )

        until(named)
        first, last = re.search(r"Rows of steps (\d+) to (\d+) may be missing", named()).groups()
        assert int(first) <= 3 <= int(last)
        assert tracer.run_id == run


def test_a_killed_hub_is_started_once_more_and_then_training_goes_on_untraced(
    gpt, ids, tmp_path, own_hub
) -> None:
    tracer = trace(gpt, flags={"MLP1_mat_mul": Tile(2)}, record=tmp_path / "runs", linger=0.2)
    assert tracer.connected(20)
    first_run, first_pid = tracer.run_id, tracer.hub_pid
    own_hub.add(first_pid)
    steps(tracer, gpt, ids, 2)
    # What the producer thread has not taken yet is no step that the first hub may have lost.
    until(lambda: tracer.status()["step"] == 2)
    os.kill(first_pid, signal.SIGKILL)

    def restarted() -> bool:
        steps(tracer, gpt, ids, 1)
        return tracer.run_id != first_run

    until(restarted)
    second_pid = tracer.hub_pid
    own_hub.add(second_pid)
    assert tracer.connected(20)
    until(lambda: any("restarted at step" in text for text in tracer.status()["warnings"]))
    first, last = _unwritten(tracer.status()["warnings"])
    # Both steps were sent a moment before the hub died, and the training was further when the new one was there.
    assert first <= 2 <= last
    steps(tracer, gpt, ids, 3)
    until(lambda: _recorded_steps(tmp_path / "runs" / tracer.run_id))
    assert min(_recorded_steps(tmp_path / "runs" / tracer.run_id)) <= last + 1
    os.kill(second_pid, signal.SIGKILL)

    def untraced() -> bool:
        steps(tracer, gpt, ids, 1)
        return not any(m._forward_hooks for m in gpt.modules())

    until(untraced)
    assert any("goes on untraced" in text for text in tracer.status()["warnings"])
    tracer.close()


def test_a_hub_that_cannot_start_says_why(gpt, tmp_path, own_hub) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TracerError, match=r"Could not start the hub: .*Pass hub=None"):
        trace(gpt, record=tmp_path / "file" / "runs")


def test_a_hub_starts_from_a_training_that_has_many_files_open(gpt, own_hub) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with trace(gpt, linger=0.1) as tracer:
            own_hub.add(tracer.hub_pid)
            assert tracer.run_id is not None
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
