"""``make demo HEADLESS=1`` and the parts of the demo script."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from megalens.hub.discovery import live_hubs
from scripts.demo_process import Child, DemoError, end_process, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def child(tmp_path: Path) -> Child:
    code = "import sys, time; print('up', flush=True); time.sleep(60)"
    return Child("the sleeper", [sys.executable, "-c", code], tmp_path / "log")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_headless_demo_trains_runs_the_notebook_and_leaves_no_process() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/demo.py", "--headless"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(
        r"loss ([\d.]+) → ([\d.]+) nats/byte\nsteps (\d+)\nframes received (\d+)\nframes dropped 0",
        done.stdout,
    )
    assert found is not None, done.stdout
    assert float(found[2]) < float(found[1]) - 1
    assert int(found[4]) >= int(found[3]) >= 80
    assert live_hubs(ROOT / ".demo" / "runtime") == []
    executed = nbformat.read(ROOT / ".demo" / "quickstart.executed.ipynb", as_version=4)
    pictures = [cell.id for cell in executed.cells if "<svg" in str(cell.get("outputs", ""))]
    assert {"heatmap", "trend", "scalars"} <= set(pictures)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) > 5
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_a_child_is_ended_by_its_id_and_ending_it_twice_is_fine(child: Child) -> None:
    child.check()
    assert child.end() == -signal.SIGTERM
    assert child.end() == -signal.SIGTERM
    assert child.exit_code == -signal.SIGTERM


def test_a_child_that_does_not_end_in_time_is_ended_by_force(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    deaf = Child("the deaf one", [sys.executable, "-c", code], log)
    until(lambda: "deaf" in log.read_text(), 20, "it did not start", deaf.check)
    assert deaf.end(seconds=0.5) == -signal.SIGKILL


def test_a_child_that_ended_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    child = Child(
        "the training", [sys.executable, "-c", "raise SystemExit('no text found')"], tmp_path / "log"
    )
    until(lambda: child.exit_code is not None, 20, "it did not end")
    with pytest.raises(DemoError, match=r"the training ended by itself with exit code 1: no text found"):
        child.check()
    child.end()


def test_waiting_ends_with_what_failed_when_the_time_is_up() -> None:
    with pytest.raises(DemoError, match="no live run appeared"):
        until(lambda: False, 0.01, "no live run appeared")


def test_a_process_that_is_not_ours_is_ended_and_one_that_is_gone_is_no_error(child: Child) -> None:
    end_process(child.pid)
    assert child.end() == -signal.SIGTERM
    end_process(child.pid)


def test_sigterm_ends_the_demo_the_way_ctrl_c_does() -> None:
    code = (
        "import os, signal, sys; from scripts.demo_process import catch_signals\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL); catch_signals()\n"
        "try:\n os.kill(os.getpid(), signal.SIGTERM); signal.pause()\n"
        "except KeyboardInterrupt:\n print('ended what was started')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "ended what was started\n")
