"""What viewers do to a training of several processes: wait, single steps, and seeing who is stopped."""

import json
import os
import signal

import pytest
from waiting import until

import megalens
from megalens.protocol import Noise1, ProtocolError

pytestmark = pytest.mark.slow


def states(run) -> dict[int, str]:
    return {state["rank"]: state["state"] for state in run.status.get("ranks", [])}


def test_every_rank_waits_at_the_same_step_and_takes_single_ones(start_job) -> None:
    job = start_job(2, allow="pause,watched")
    run = job.connect()
    run.wait(step=3, timeout=60)
    step = run.pause()
    until(lambda: run.status["state"] == "paused" and states(run) == {0: "paused", 1: "paused"})
    assert {state["step"] for state in run.status["ranks"]} == {step - 1}
    run.advance(3)
    until(lambda: {state["step"] for state in run.status["ranks"]} == {step + 2})
    until(lambda: run.status["state"] == "paused")
    run.resume()
    run.wait(step=step + 6, timeout=60)
    with pytest.raises(ProtocolError, match="does not let viewers perturb"):
        run.perturb({"system": Noise1(0.1)})
    # With nobody left to watch it waits, and it goes on for the next one.
    run.watched_only(True)
    at = run.step
    run.close()
    again = job.connect()
    until(lambda: again.status["step"] > at + 3)
    again.watched_only(False)
    again.close()
    said = job.stop()
    assert said[0]["status"]["state"] != "paused"


def test_a_stopped_rank_is_named_and_holds_no_change_up(start_job) -> None:
    job = start_job(2)
    run = job.connect()
    run.wait(step=3, timeout=60)
    until(lambda: set(states(run)) == {0, 1})
    victim = job.processes[1].pid
    os.kill(victim, signal.SIGSTOP)
    try:
        until(lambda: states(run)[1] == "silent")
        assert "rank 1" in next(state["name"] for state in run.status["ranks"] if state["rank"] == 1)
        before = run.config
        with pytest.raises(ProtocolError, match="rank 1"):
            run.configure(HiddenStates=True)
        assert run.config == before
    finally:
        os.kill(victim, signal.SIGCONT)
    until(lambda: states(run)[1] == "training")
    step = run.configure(HiddenStates=True)
    run.wait(step=step + 2, timeout=60)
    run.close()
    said = job.stop()
    assert said[0]["losses"]


def test_the_hub_going_lets_a_paused_training_go_on(start_job) -> None:
    job = start_job(
        2,
        allow="pause",
        flags=json.dumps({"HiddenStates": {"compressor": {"name": "Tile"}, "replicas": "all"}}),
    )
    run = job.connect()
    run.wait(step=3, timeout=60)
    step = run.pause()
    until(lambda: states(run) == {0: "paused", 1: "paused"})
    hub = next(json.loads(path.read_text())["pid"] for path in (job.folder / "runtime").glob("hub-*.json"))
    os.kill(hub, signal.SIGKILL)
    run.close()
    # The hub that is started anew finds the training waiting still; it is resumed by whoever is there.
    again = job.connect()
    until(lambda: again.status["step"] >= step - 1 and set(states(again)) == {0, 1})
    again.resume()
    until(lambda: again.status["step"] > step + 2)
    again.close()
    # Each of them had sent rows of its own that the hub may not have written.
    for rank in job.stop():
        assert any("may be in neither" in text for text in rank["status"]["warnings"]), rank["status"]


def test_a_perturbation_touches_the_same_steps_on_every_rank_and_ends_by_itself(start_job) -> None:
    job = start_job(2, allow="perturb")
    run = job.connect()
    run.wait(step=3, timeout=60)
    # Enough of them that it is still going on when it is asked about.
    first = run.perturb({"system": Noise1(0.1)}, steps=80, seed=3)
    assert run.perturbation["until"] == first + 79
    until(lambda: run.perturbation is None)
    until(lambda: run.status.get("perturbed_steps") == 80)
    run.wait(step=first + 82, timeout=60)
    actions = run.audit().to_pandas()["action"].tolist()
    assert "perturb" in actions
    run.close()
    said = job.stop()
    assert all(one["status"]["perturbed_steps"] == 80 for one in said)


def test_every_rank_knows_whether_anybody_looks(start_job) -> None:
    job = start_job(2)

    def told(*expected: bool) -> bool:
        files = [job.folder / f"watched-{rank}" for rank in range(2)]
        return all(each.exists() and json.loads(each.read_text() or "[]") == [*expected] for each in files)

    # Until it is told, a process takes it that somebody does.
    until(lambda: told(True, False))
    run = job.connect()
    until(lambda: told(True, False, True))
    run.close()
    until(lambda: told(True, False, True, False))
    job.stop()


def test_a_rank_that_dies_is_named_and_what_was_recorded_stays(start_job) -> None:
    job = start_job(2, flags=json.dumps({"HiddenStates": {"compressor": {"name": "Tile"}}}))
    run = job.connect()
    run.wait(step=5, timeout=60)
    until(lambda: set(states(run)) == {0, 1})
    job.processes[1].kill()
    # Rank 0 tells it, unless its own error ends it first: then nobody has heard of rank 1 any more.
    until(lambda: states(run).get(1) in ({"lost", "silent"} if run.state == "lost" else {"lost"}))
    # The training itself ends with the job's own error: its all-reduce has lost a peer.
    assert job.processes[0].wait(60) != 0
    until(lambda: run.state == "lost")
    run.close()
    # What the hub tells is written down a moment later.
    until(lambda: megalens.open(job.folder / "runs").state == "lost")
    assert megalens.open(job.folder / "runs").tensors("HiddenStates").num_rows >= 10
