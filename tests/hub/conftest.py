"""A real hub process, and clients on real sockets. Tests may be coroutines."""

import asyncio
import inspect

import pytest
from hub_process import HubProcess

from megalens.hub.recorder import Recorder


def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    folder = tmp_path / "rt"
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def recorder(tmp_path):
    """Make recorders that try again soon, of ``tmp_path / "run"``, and close every one."""
    made = []

    def make(queue_bytes=1 << 28, **options):
        made.append(Recorder(tmp_path / "run", {"format": 2}, queue_bytes, 0.02, **options))
        return made[-1]

    yield make
    for each in made:
        each.close({"format": 2})


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


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory):
    """One hub for the tests of a module that show that it stays up."""
    # Between two tests that use it others may start hubs of their own, which takes long on a busy machine.
    hub = HubProcess(tmp_path_factory.mktemp("runtime") / "rt", "--linger", "600").wait_ready()
    yield hub
    hub.close()


@pytest.fixture
def standing_hub(shared_hub):
    """The shared hub, free of the clients of the test before."""
    yield shared_hub
    for client in shared_hub.clients:
        client.close()
    shared_hub.clients.clear()
    watcher = shared_hub.viewer()
    watcher.wait("status", lambda m: m["producers"] == [] and m["viewers"] == 1)
    watcher.close()
    shared_hub.clients.clear()
