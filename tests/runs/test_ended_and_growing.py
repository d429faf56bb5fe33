"""What of a run is found once it has ended, and while it grows beyond what is kept in memory."""

import re

import pytest
from live_run import WAIT, eventually

from megalens.pictures.report.build import build_report, traced_flags
from megalens.runs import ClientError
from megalens.runs.answers import RunAnswers
from megalens.runs.query import Query
from megalens.runs.run_folder import RunFolder

pytestmark = pytest.mark.slow

STEPS = 400


def ended(training, run):
    training.finish()
    eventually(lambda: run.status.get("recording", {}).get("state") == "closed", "a closed recording")
    run.close()
    training.close()


@pytest.fixture
def forgetful(live, attach, tmp_path):
    """A live run of which hub and kernel hold the newest steps only."""
    training = live("--record", tmp_path / "megalens-runs", "--backlog-bytes", 100_000)
    training.step(STEPS)
    run = attach()
    run.wait(STEPS, timeout=WAIT)
    assert min(run._received("tensors", Query())["step"].to_pylist()) > 1
    # The hub writes behind what it sends.
    eventually(lambda: RunFolder(run.folder).newest_step("tensors") == STEPS, "the recording of every step")
    return training, run


def test_a_run_that_has_ended_is_opened_from_its_recording(live, attach, tmp_path, monkeypatch):
    training = live("--record", tmp_path / "megalens-runs", "--linger", "0")
    training.step(3)
    ended(training, attach())
    deeper = tmp_path / "examples" / "deep"
    deeper.mkdir(parents=True)
    for place in (tmp_path, deeper):
        monkeypatch.chdir(place)
        run = attach(training.id)
        assert (run.live, run.state, run.id) == (False, "finished", training.id)
        assert set(run.tensors()["step"].to_pylist()) == {1, 2, 3}


def test_only_the_recording_of_that_very_run_is_opened(live, attach, tmp_path):
    training = live("--record", tmp_path / "megalens-runs", "--linger", "0")
    training.step(3)
    ended(training, attach())
    (tmp_path / "megalens-runs" / training.id).rename(tmp_path / "megalens-runs" / "another-run")
    for wanted in ("another-run", training.id, "../megalens-runs/another-run", "gpt-test"):
        with pytest.raises(ClientError, match="none is live"):
            attach(wanted)


def test_a_live_run_is_asked_for_all_that_its_recording_has(forgetful):
    training, run = forgetful
    answers = RunAnswers(run)
    (index,) = answers.index()
    assert index["steps"] == list(range(1, STEPS + 1))
    assert "warnings" not in answers.detail()["status"]
    (traced,) = traced_flags(run)
    assert (traced["first"], traced["last"], traced["steps"]) == (1, STEPS, STEPS)
    training.step(5)
    run.wait(STEPS + 5, timeout=WAIT)
    eventually(lambda: traced_flags(run)[0]["steps"] == STEPS + 5, "the recording of what came since")


def test_the_server_reads_it_as_well(forgetful, attach):
    training, _ = forgetful
    by_address = attach(training.address, token=training.token)
    assert RunAnswers(by_address).index()[0]["steps"] == list(range(1, STEPS + 1))


def test_a_report_of_a_live_run_has_every_step(forgetful):
    _, run = forgetful
    text = build_report(run, [{"view": "trend", "flag": "HiddenStates"}]).decode()
    assert re.search(rf"1 to {STEPS}\b", re.sub(r"<[^>]+>", " ", text))


def test_without_a_recording_the_steps_that_are_left_are_named(live, attach):
    training = live("--backlog-bytes", 100_000)
    training.step(STEPS)
    run = attach()
    run.wait(STEPS, timeout=WAIT)
    first = min(run.tensors()["step"].to_pylist())
    (warning,) = RunAnswers(run).detail()["status"]["warnings"]
    assert first > 1
    assert warning.startswith(f"Of traced tensors only steps {first} to {STEPS} are here")
