"""``megalens serve`` as a shell starts it, and ``python -m megalens.demo --save``."""

import os
import signal
import subprocess
import sys

import pytest
from live_run import ROOT, WAIT, eventually
from writers import demo

import megalens
from megalens.demo.model import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Starts ``python -m …`` and ends it."""
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "rt"))
    processes = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of the demo."""
    save_checkpoint(demo(), tmp_path / "tiny")
    return tmp_path / "tiny"


def run_of(process):
    """The run that a process says it serves."""
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line.split(" as run ")[1].split(". ")[0]


def test_a_folder_is_served_until_it_is_ended_and_recorded(command, checkpoint, tmp_path):
    process = command(
        "megalens", "serve", "--model", checkpoint, "--record", tmp_path / "runs", "--flags", "HiddenStates,MLP1_mat_mul"
    )  # fmt: skip
    with megalens.connect(run_of(process)) as run:
        assert run.name == "tiny"
        assert sorted(run.config) == ["HiddenStates", "MLP1_mat_mul"]
        text = run.generate("The", 12, seed=1).texts
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT) == 0
    recorded = megalens.open(tmp_path / "runs")
    assert recorded.generation(1).texts == text
    assert recorded.generation(1).array("MLP1_mat_mul", 0).shape[0] == 15


def test_a_server_that_is_killed_in_mid_stream_leaves_what_it_wrote(command, checkpoint):
    process = command("megalens", "serve", "--model", checkpoint)
    with megalens.connect(run_of(process)) as run:
        written = run.generate("The", 100_000, wait=False)
        eventually(lambda: len(written.tokens()) > 20, "tokens stream")
        process.kill()
        eventually(lambda: run.status["state"] == "lost", "the run is lost")
        assert len(written.tokens()) > 20
        with pytest.raises(megalens.MegalensError):
            run.generate("The", 3, timeout=WAIT)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "nowhere"], "'nowhere' is not there"),
        (["--model", "."], "holds no model"),
        ([], "--model"),
        (["--model", "{checkpoint}", "--flags", "{"], "JSON object of flag settings"),
        (["--model", "{checkpoint}", "--flags", "Nothing"], "Nothing"),
    ],
)
def test_wrong_arguments_end_with_2_and_a_sentence(command, checkpoint, arguments, sentence):
    process = command(
        "megalens", "serve", *[each.replace("{checkpoint}", str(checkpoint)) for each in arguments]
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2, errors
    assert sentence in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("stopped", [False, True])
def test_the_demo_saves_its_model_at_the_end_and_when_it_is_stopped(command, tmp_path, stopped):
    steps = 100_000 if stopped else 3
    process = command(
        "megalens.demo", "--steps", steps, "--batch", 2, "--save", tmp_path / "demo", "--linger", 0.1, "--until-stdin-closes"
    )  # fmt: skip
    if stopped:
        run = next(line for line in iter(process.stdout.readline, "") if line.startswith("run "))
        with megalens.connect(run.split()[1]) as run:
            eventually(lambda: run.step > 2, "steps are taken")
        process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "steps in" in output
    assert load_checkpoint(tmp_path / "demo").config.layers == 4
