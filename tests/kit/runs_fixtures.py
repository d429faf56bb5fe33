"""Real hubs with a producer each, and connected runs; all closed at the end."""

from contextlib import ExitStack

import pytest
from live_run import live_runs

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
    with live_runs(runtime) as start:
        yield start


@pytest.fixture
def attach():
    with ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(connect(*arguments, **named))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder for raw-moment JSONL of one run, and an empty cache."""
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "big run" / "tensorboard" / "training_stats"
    folder.mkdir(parents=True)
    return folder
