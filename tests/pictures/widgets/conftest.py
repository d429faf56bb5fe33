"""A live run whose hub is found here."""

import pytest
from live_run import LiveRun


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.chdir(tmp_path)
    live = LiveRun(tmp_path / "runtime").announce()
    yield live
    live.close()
