"""A real hub process, and clients on real sockets."""

import pytest
from hub_process import HubProcess


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    folder = tmp_path / "rt"
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def start_hub(runtime):
    """Start hubs, and end every one that is left."""
    hubs = []

    def start(*options, **settings):
        hub = HubProcess(runtime, *options, **settings)
        hubs.append(hub)
        return hub.wait_ready()

    yield start
    for hub in hubs:
        hub.close()


@pytest.fixture
def hub(start_hub):
    return start_hub()
