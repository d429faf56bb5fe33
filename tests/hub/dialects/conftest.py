"""A translation in this process: a foreign peer, our hub and a viewer, all on real sockets."""

import pytest


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    folder = tmp_path / "rt"
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(folder))
    return folder
