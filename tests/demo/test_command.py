"""``python -m megalens.demo`` as a process."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import megalens
from megalens.demo.model import GPTConfig, load_checkpoint
from megalens.hub.terminal import StateLine

COMMAND = [sys.executable, "-m", "megalens.demo"]


@pytest.mark.slow
def test_a_short_training_says_how_the_loss_went_and_nothing_else_when_piped() -> None:
    done = subprocess.run(
        [*COMMAND, "--no-trace", "--steps", "10", "--batch", "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    first, sample = done.stdout.split("\n", 1)
    assert re.fullmatch(
        r"loss 5\.\d{3} → [345]\.\d{3} · held-out [345]\.\d{3} nats/byte · 10 steps in \d+ s", first
    )
    assert sample.startswith("The ")
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_training_cleanly_and_saves_the_model(
    number: signal.Signals, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--no-trace", "--steps", "100000", "--batch", "2", "--save", tmp_path / "model"],
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        # In a terminal the state line shows the steps; a signal at that point meets a training that runs.
        assert "step 2" in _read_until(ours, b"step 2", 90)
        process.send_signal(number)
        last = _read_until(ours, b" steps in ", 60)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert re.search(r"loss 5\.\d{3} → .* steps in", last)
    assert load_checkpoint(tmp_path / "model").config == GPTConfig()


@pytest.mark.slow
def test_wrong_arguments_are_exit_code_2() -> None:
    done = subprocess.run([*COMMAND, "--steps", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "expected a whole number from 1, got '0'" in done.stderr


@pytest.mark.slow
def test_the_demo_shows_every_system_and_ends_also_where_a_viewer_has_paused_it(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "rt"))
    process = subprocess.Popen(
        [*COMMAND, "--record", str(tmp_path), "--until-stdin-closes", "--batch", "2", "--linger", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        run_id = process.stdout.readline().split()[1]
        with megalens.connect(run_id) as run:
            run.wait(12, timeout=120)
            run.perturb({"weight": "noise1"}, steps=1)
            run.pause()
            end = time.monotonic() + 30
            while run.state != "paused":
                assert time.monotonic() < end
                time.sleep(0.05)
            assert run.status["recording"]["limit_bytes"] == 500_000_000
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    end = time.monotonic() + 30
    while (recorded := megalens.open(tmp_path / run_id)).state != "finished":
        assert time.monotonic() < end
        time.sleep(0.1)
    assert {row["stat"] for row in recorded.table("moments").to_pylist()} >= {"param", "grad", "residual"}
    written = recorded.generation(1)
    assert (written.state, written.prompts, len(written.tokens())) == ("finished", ["The "], 52)
    assert len(written.lens(layers=3)) == 51
    assert written.array("HiddenStates", 1).shape == (52, 64)
    (row, *_) = recorded.tensors("HiddenStates", layers=1).to_pylist()
    assert (row["source_shape"][-1], row["shape"][-1]) == (128, 64)


def test_the_state_line_is_quiet_when_its_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    line = StateLine(stream)
    line.say("step 1")
    line.end()
    assert stream.getvalue() == ""


def test_the_state_line_updates_in_place_and_not_too_often() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    line = StateLine(stream, seconds=1000)
    line.say("step 1")
    line.say("step 2")
    assert stream.getvalue() == "\r\x1b[Kstep 1"


def _read_until(terminal: int, mark: bytes, seconds: float) -> str:
    seen = b""
    deadline = time.monotonic() + seconds
    while mark not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"expected {mark!r} within {seconds} s, read {seen[-500:]!r}")
        seen += os.read(terminal, 4096)
    return seen.decode("utf-8", "replace")
