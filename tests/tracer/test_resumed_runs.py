"""A training that restarts from a checkpoint goes on with its recording; what it trains again is kept as an earlier attempt."""

import json
import os
import signal

import pytest
from recorded_files import tails_of
from waiting import until

import megalens
from megalens import Tile, trace
from megalens.runs import open_run
from megalens.runs.answers import RunAnswers
from megalens.runs.opening import compared_answers
from megalens.tracer import TracerError

pytestmark = pytest.mark.slow

FLAGS = {"MLP1_mat_mul": Tile(2)}


@pytest.fixture
def train(gpt, ids, tmp_path, own_hub):
    """Train steps, the loss of an attempt being its own; the hub is killed in the end, or ends in order."""

    def run(first, last, loss, *, killed=False, **options):
        tracer = trace(gpt, name="own", flags=FLAGS, linger=0, **options)
        own_hub.add(tracer.hub_pid)
        assert tracer.connected(30)
        megalens.log_statistics(gpt, tracer=tracer, param=1)
        for step in range(first, last + 1):
            with tracer.step():
                gpt(ids)
                tracer.log(loss=loss + step)
        if killed:
            until(lambda: "loss" in recorded(tracer.folder, last) and loss_of(tracer.folder).get(last))
            os.kill(tracer.hub_pid, signal.SIGKILL)
            tracer._coordinator.worker.hub._process = None
        tracer.close()
        return tracer

    return run


def recorded(folder, step):
    with open_run(folder) as run:
        return run.scalars(steps=step)["name"].to_pylist() if step else []


def loss_of(folder):
    with open_run(folder) as run:
        rows = run.scalars("loss").to_pylist()
    assert len({row["step"] for row in rows}) == len(rows)
    return {row["step"]: row["value"] for row in rows}


@pytest.mark.parametrize("killed", [False, True])
def test_steps_that_are_trained_again_come_as_they_were_trained_last(train, tmp_path, killed):
    first = train(1, 8, 100, record=tmp_path / "runs", killed=killed)
    folder = first.folder
    assert bool(tails_of(folder, "tensors")) == killed
    second = train(6, 9, 200, resume=folder, first_step=6)
    assert (second.run_id, second.folder) == (first.run_id, folder)
    assert loss_of(folder) == {
        **{step: 100 + step for step in range(1, 6)},
        **{step: 200 + step for step in range(6, 10)},
    }
    with open_run(folder) as run:
        assert (run.state, run.step, run.id) == ("finished", 9, first.run_id)
        (index,) = RunAnswers(run).index()
        assert index["steps"] == list(range(1, 10))
        assert run.tensors("MLP1_mat_mul", layers=0)["step"].to_pylist() == list(range(1, 10))
        moments = run.moments("param", by=[])
        assert moments["step"].tolist() == list(range(1, 10))
        (stat,) = RunAnswers(run).moments_index()["stats"]
        assert (stat["first"], stat["last"], stat["steps"]) == (1, 9, 9)
        assert (
            f"Steps from 6 on were trained again; what was recorded of them before is the run {run.id}.attempt-1."
            in run.warnings
        )
        (attempt,) = run.attempts
    assert (attempt.id, attempt.name) == (f"{first.run_id}.attempt-1", "own, attempt 1")
    assert loss_of(attempt.folder) == {step: 100 + step for step in range(1, 9)}


def test_several_attempts_lie_over_one_another(train, tmp_path):
    first = train(1, 8, 100, record=tmp_path / "runs")
    train(6, 9, 200, resume=first.folder, first_step=6)
    train(3, 4, 300, resume=first.run_id, record=tmp_path / "runs", first_step=3)
    assert loss_of(first.folder) == {1: 101, 2: 102, 3: 303, 4: 304}
    with open_run(first.folder) as run:
        attempts = {attempt.id.rpartition(".")[2]: attempt for attempt in run.attempts}
        assert list(attempts) == ["attempt-1", "attempt-2"]
        assert run.moments("param", by=[])["step"].tolist() == [1, 2, 3, 4]
        with compared_answers(run) as beside:
            lines = [beside(f"{run.id}.attempt-{number}") for number in (1, 2)]
            totals = [json.loads(json.dumps(line.moments_index()["stats"][0]["steps"])) for line in lines]
            assert totals == [8, 4]
            assert beside(f"{run.id}.attempt-3") is None
            assert beside(f"{run.id}.attempt-1/../1") is None
        with compared_answers(attempts["attempt-2"]) as beside:
            assert beside(run.id).moments_index()["stats"][0]["steps"] == 4


def test_a_live_run_has_the_scalars_of_its_earlier_attempts(train, gpt, ids, tmp_path, own_hub):
    first = train(1, 8, 100, record=tmp_path / "runs")
    tracer = trace(gpt, flags=FLAGS, linger=0, resume=first.folder, first_step=6)
    own_hub.add(tracer.hub_pid)
    assert tracer.connected(30)
    with tracer.step():
        gpt(ids)
        tracer.log(loss=206)
    with megalens.connect(tracer.run_id) as run:
        run.wait(6, timeout=60)
        until(lambda: run.scalars("loss")["value"].to_pylist()[-1] == 206)
        assert run.scalars("loss")["step"].to_pylist() == list(range(1, 7))
        assert run.scalars("loss", steps=range(4, 7))["value"].to_pylist() == [104, 105, 206]
        assert [attempt.id for attempt in run.attempts] == [f"{run.id}.attempt-1"]
    tracer.close()


def test_what_cannot_be_resumed_is_refused_before_the_training_begins(train, gpt, tmp_path, own_hub):
    first = train(1, 3, 100, record=tmp_path / "runs")
    before = sorted(path.name for path in first.folder.iterdir())

    def refused(words, **options):
        with pytest.raises(TracerError, match=words):
            trace(gpt, flags=FLAGS, linger=0, **options)

    refused("resume=… needs first_step", resume=first.folder)
    refused("neither .* holds a run.json", resume="no-such-run", first_step=4, record=tmp_path / "runs")
    refused("resume=… must be a run folder", resume=4, first_step=4)
    refused("needs hub='spawn'", resume=first.folder, first_step=4, hub=("127.0.0.1:1", "token"))
    old = tmp_path / "old"
    old.mkdir()
    (old / "run.json").write_text('{"format": 1, "run": {"id": "old", "name": "old", "started": 1}}')
    refused("older version", resume=old, first_step=4)
    (old / "run.json").write_text("{")
    refused("cannot go on", resume=old, first_step=4)
    assert sorted(path.name for path in first.folder.iterdir()) == before
    train(3, 4, 200, resume=first.folder, first_step=3)
    refused("an earlier attempt", resume=first.folder / "attempts" / "1", first_step=2)


def test_a_run_that_is_live_is_refused_and_one_that_only_serves_viewers_is_taken_over(
    gpt, ids, tmp_path, own_hub
):
    live = trace(gpt, flags=FLAGS, linger=600, record=tmp_path / "runs")
    own_hub.add(live.hub_pid)
    assert live.connected(30)
    with live.step():
        gpt(ids)
    until(lambda: live.folder is not None and tails_of(live.folder, "tensors"))
    with pytest.raises(
        TracerError, match=r"is live: its hub \(process \d+\) still records a training. End that"
    ):
        trace(gpt, flags=FLAGS, linger=0, resume=live.folder, first_step=2)
    live.close()
    again = trace(gpt, flags=FLAGS, linger=0, resume=live.folder, first_step=2)
    own_hub.add(again.hub_pid)
    assert again.hub_pid != live.hub_pid
    with again.step():
        gpt(ids)
    again.close()
    with open_run(live.folder) as run:
        assert run.tensors("MLP1_mat_mul", layers=0)["step"].to_pylist() == [1, 2]


def test_a_training_of_another_model_is_said(train, ids, tmp_path, own_hub):
    from megalens.demo.model import GPT, GPTConfig

    first = train(1, 3, 100, record=tmp_path / "runs")
    other = GPT(GPTConfig(vocabulary=50, layers=3, hidden=16, heads=2, sequence=12))
    tracer = trace(other, flags=FLAGS, linger=0, resume=first.folder, first_step=3)
    own_hub.add(tracer.hub_pid)
    with tracer.step():
        other(ids)
    tracer.close()
    with open_run(first.folder) as run:
        assert any(
            "goes on with something else than before: it was of the model" in text for text in run.warnings
        )
