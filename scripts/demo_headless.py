"""The demo without a person: train, attach, run the quickstart notebook against the live run, and say how it went."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from megalens.hub.discovery import find_hub, live_hubs
from scripts.demo_process import Child, DemoError, catch_signals, end_process, until

if TYPE_CHECKING:
    from megalens.runs import Run

__all__ = ["run_headless"]

NAME = "gpt-demo"
LEAST_STEPS = 80
MOST_STEPS = 2000
BATCH = 4
"""Windows a step: a quarter of the demo's own, because nobody watches for long."""
CELL_SECONDS = 240
PICTURED = ("heatmap", "trend", "scalars")
"""Ids of the notebook's cells that must have left a picture."""


@dataclass
class Outcome:
    """What a headless demo found. Each failure is one line."""

    first_loss: float = float("nan")
    last_loss: float = float("nan")
    steps: int = 0
    frames_received: int = 0
    frames_dropped: int = 0
    failures: list[str] = field(default_factory=list)


def run_headless(root: Path, folder: Path) -> int:
    """Do it all, print the figures, and return 0, or 1 after one line for each thing that failed."""
    # A folder of its own: no other run of this user is taken for ours, and ours shows up nowhere else.
    runtime = folder / "runtime"
    shutil.rmtree(runtime, ignore_errors=True)
    runtime.mkdir(mode=0o700)
    os.environ["MEGALENS_RUNTIME_DIR"] = str(runtime)
    runs = root / "megalens-runs"
    started = time.monotonic()
    outcome = Outcome()
    training = Child(
        "the training",
        [
            *(sys.executable, "-m", "megalens.demo", "--steps", str(MOST_STEPS), "--batch", str(BATCH)),
            *("--record", str(runs), "--linger", "0"),
        ],
        folder / "training.log",
    )
    run: Run | None = None
    try:
        run = _attach(training)
        _execute(root / "examples" / "quickstart.ipynb", folder, outcome)
        until(
            lambda: run.step >= LEAST_STEPS,
            240,
            f"the training did not reach step {LEAST_STEPS} within four minutes of the notebook's end",
            training.check,
        )
        _end_training(training, run, outcome)
        _read_figures(run, outcome)
        _check_recording(runs / run.id, outcome)
    except DemoError as error:
        outcome.failures.append(str(error))
    finally:
        if run is not None:
            run.close()
        training.end(signal.SIGINT)
        for hub in live_hubs():
            end_process(hub.pid)
    return _report(outcome, time.monotonic() - started)


def _attach(training: Child) -> Run:
    from megalens.runs import ClientError, connect

    until(lambda: find_hub(NAME) is not None, 60, "no live run appeared within 60 s", training.check)
    try:
        return connect(NAME)
    except ClientError as error:
        raise DemoError(f"could not attach to the run: {error}") from error


def _execute(notebook: Path, folder: Path, outcome: Outcome) -> None:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    document = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        document, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    try:
        # What the kernel says about itself is no part of the notebook.
        with (folder / "kernel.log").open("wb") as log:
            client.execute(stdout=log, stderr=log)
    except CellExecutionError as error:
        outcome.failures.append(
            f"the notebook: {error.ename}: {error.evalue.splitlines()[0] if error.evalue else ''}"
        )
    except CellTimeoutError:
        outcome.failures.append(f"the notebook: a cell ran longer than {CELL_SECONDS} s")
    except DeadKernelError:
        outcome.failures.append("the notebook: its kernel died; .demo/kernel.log says more")
    finally:
        catch_signals()
        nbformat.write(document, folder / "quickstart.executed.ipynb")
    cells = {cell.get("id"): cell for cell in document.cells}
    for name in PICTURED:
        outputs = cells.get(name, {}).get("outputs", [])
        if not any("<svg" in str(each.get("data", {}).get("text/html", "")) for each in outputs):
            outcome.failures.append(f"the notebook: its cell {name!r} left no picture")
    if not outcome.failures and not (folder / "quickstart-report.html").stat().st_size:
        outcome.failures.append("the notebook: its report is empty")


def _end_training(training: Child, run: Run, outcome: Outcome) -> None:
    code = training.end(signal.SIGINT, 60)
    if code != 0:
        outcome.failures.append(f"the training ended with exit code {code}: {training.last_line()}")
    try:
        until(lambda: run.state in ("finished", "closed", "lost"), 15, "the run did not say that it finished")
    except DemoError as error:
        outcome.failures.append(str(error))


def _read_figures(run: Run, outcome: Outcome) -> None:
    losses = run.scalars("loss").column("value").to_pylist()
    if len(losses) < 20:
        raise DemoError(f"expected at least 20 losses from the run, got {len(losses)}")
    outcome.first_loss = losses[0]
    outcome.last_loss = sum(losses[-10:]) / 10
    outcome.steps = run.step
    outcome.frames_received = run.received_frames
    dropped = (run.status or {}).get("dropped", {})
    outcome.frames_dropped = run.missed_frames + sum(dropped.values())
    if not outcome.last_loss < outcome.first_loss - 1:
        outcome.failures.append(f"the loss did not fall: {outcome.first_loss:.3f} → {outcome.last_loss:.3f}")
    if outcome.frames_received < outcome.steps:
        outcome.failures.append(
            f"expected a frame for each of {outcome.steps} steps, received {outcome.frames_received}"
        )


def _check_recording(folder: Path, outcome: Outcome) -> None:
    from megalens.runs import ClientError, RunFolder, open_run

    until(lambda: (folder / "run.json").exists(), 10, f"nothing was recorded in megalens-runs/{folder.name}")
    try:
        # The hub closes the recording after the training has said goodbye.
        until(lambda: RunFolder(folder).closed, 60, "the recording was not closed within 60 s")
        with open_run(folder) as recorded:
            rows = recorded.scalars("loss").num_rows
    except (ClientError, DemoError) as error:
        outcome.failures.append(f"the recording: {error}")
        return
    if rows != outcome.steps:
        outcome.failures.append(f"the recording: expected {outcome.steps} losses, found {rows}")


def _report(outcome: Outcome, seconds: float) -> int:
    for failure in outcome.failures:
        print(f"failed: {failure}", file=sys.stderr)
    print(f"loss {outcome.first_loss:.3f} → {outcome.last_loss:.3f} nats/byte")
    print(f"steps {outcome.steps}")
    print(f"frames received {outcome.frames_received}")
    print(f"frames dropped {outcome.frames_dropped}")
    print(f"executed notebook .demo/quickstart.executed.ipynb · {seconds:.0f} s")
    return 1 if outcome.failures else 0
