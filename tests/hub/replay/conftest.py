"""Replays of small recordings, each with a hub of its own."""

import pytest


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    folder = tmp_path / "rt"
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(folder))
    return folder
