import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import megalens
from megalens.runs import Run

WORKER = Path(__file__).with_name("worker.py")


class Job:
    """Several real processes of one job, and a viewer of its run."""

    def __init__(self, folder: Path, world: int, **options: str) -> None:
        self.folder = folder
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    str(WORKER),
                    f"--rank={rank}",
                    f"--world={world}",
                    f"--folder={folder}",
                    *arguments,
                ],
                stdout=subprocess.PIPE,
                stderr=(folder / f"rank-{rank}.err").open("wb"),
                text=True,
            )
            for rank in range(world)
        ]

    def connect(self) -> Run:
        """Return the run once its hub is there."""
        for _ in range(600):
            with contextlib.suppress(Exception):
                return megalens.connect("job")
            if any(process.poll() is not None for process in self.processes):
                raise AssertionError(self.complaints())
            time.sleep(0.1)
        raise AssertionError("the job's hub did not come")

    def complaints(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("*.err")))

    def stop(self) -> list[dict]:
        """Let the training end in order and return what each process said."""
        (self.folder / "stop").touch()
        return self.ended()

    def ended(self) -> list[dict]:
        """Wait for the training to end by itself and return what each process said."""
        said = []
        for process in self.processes:
            out, _ = process.communicate(timeout=60)
            assert process.returncode == 0, self.complaints()
            said.append(json.loads(out))
        return said

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def start_job(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    jobs = []

    def start(world: int, **options: str) -> Job:
        jobs.append(Job(tmp_path, world, **options))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()
