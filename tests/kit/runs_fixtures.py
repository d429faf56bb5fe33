"""Real hubs with a producer each, and connected runs; all closed at the end."""

import pytest
from live_run import LiveRun

from megalens.runs import connect

__all__ = ["runtime", "live", "attach", "home"]


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    folder = tmp_path / "runtime"
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def live(runtime):
    runs = []

    def start(*options, **named):
        runs.append(LiveRun(runtime, *options, **named).announce())
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.fixture
def attach():
    runs = []

    def attach(*arguments, **named):
        runs.append(connect(*arguments, **named))
        return runs[-1]

    yield attach
    for run in runs:
        run.close()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder for raw-moment JSONL of one run, and an empty cache."""
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "big run" / "tensorboard" / "training_stats"
    folder.mkdir(parents=True)
    return folder
