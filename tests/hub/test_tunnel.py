"""Runs of another machine, by a real ssh server on loopback."""

import json
import os
import signal
import subprocess
import sys

import pytest
from hub_process import ROOT, HubProcess, until
from ssh_server import SshServer

import megalens
from megalens.hub.discovery import found_hubs, live_hubs
from megalens.hub.options import HubError
from megalens.hub.tunnel import Tunnel
from megalens.runs import connecting

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The other machine: an ssh server whose sessions know another folder of runtime files."""
    folder = tmp_path_factory.mktemp("there")
    server = SshServer(folder, {"MEGALENS_RUNTIME_DIR": str(folder / "runtime")})
    server.runtime = folder / "runtime"
    server.start()
    yield server
    server.cut()


@pytest.fixture
def here(tmp_path, there, monkeypatch):
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("PATH", f"{there.binaries}:{os.environ['PATH']}")
    yield tmp_path / "runtime"
    # One that a notebook opened lives on, and would tell the next test of the hub over there.
    for each in connecting._tunnels.values():
        each.close()


@pytest.fixture
def hub(there):
    hub = HubProcess(there.runtime, "--name", "far").wait_ready()
    yield hub
    hub.process.terminate()
    hub.process.wait()


@pytest.fixture
def tunnel(here):
    process = subprocess.Popen(
        [sys.executable, "-m", "megalens", "tunnel", "there", "--batch"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0, process.stderr.read()
    assert live_hubs(here) == []


def test_a_run_of_another_machine_is_a_live_run_here_until_it_ends(there, here, hub, tunnel):
    assert tunnel.stdout.readline() == f"far ({hub.entry.id}) on there is among the live runs here.\n"
    (entry,) = live_hubs(here)
    assert (entry.id, entry.via, entry.record, entry.host) == (hub.entry.id, "there", None, "127.0.0.1")
    assert entry.port != hub.entry.port
    with megalens.connect("far") as run:
        assert run.id == hub.entry.id
    listed = subprocess.run(
        [sys.executable, "-m", "megalens", "runs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert listed.stdout.rstrip().endswith("on there")
    assert hub.entry.token not in listed.stdout
    hub.process.terminate()
    assert tunnel.stdout.readline() == f"{hub.entry.id} has ended.\n"
    until(lambda: live_hubs(here) == [])


def test_a_connection_that_is_cut_comes_back_and_viewers_go_on(there, here, hub, tunnel):
    tunnel.stdout.readline()
    with megalens.connect("far") as run:
        before = live_hubs(here)
        there.cut()
        assert "is gone; it is opened again" in tunnel.stdout.readline()
        assert [(each.id, each.port) for each in live_hubs(here)] == [(each.id, each.port) for each in before]
        until(lambda: run.state.startswith("reconnect") or not run.connected)
        there.start()
        until(lambda: run.connected)


def test_a_notebook_reaches_a_run_by_its_ssh_address(there, here, hub):
    with megalens.connect("ssh://there/far", timeout=30) as run:
        assert run.id == hub.entry.id
    with pytest.raises(megalens.ClientError, match=r"No live run is called 'near' on there. Live there: far"):
        megalens.connect("ssh://there/near", timeout=0.2)


def test_a_machine_that_ssh_cannot_reach_is_said_in_its_own_words(here):
    with pytest.raises(
        megalens.ClientError, match=r"ssh could not reach nowhere\.invalid: .*resolve.*`ssh nowhere"
    ):
        megalens.connect("ssh://nowhere.invalid/far", timeout=30)


@pytest.mark.parametrize("destination", ["-oProxyCommand=touch owned", "a b", "", "ssh://", "x" * 301])
def test_a_destination_is_never_an_option_of_ssh(destination):
    with pytest.raises(HubError, match="no machine that ssh could reach"):
        Tunnel(destination, say=print)


@pytest.fixture
def files_of_no_hub(there):
    """Runtime files of a hub that was killed, and of one of a third machine that shares the home folder."""
    killed = HubProcess(there.runtime, "--name", "killed").wait_ready()
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    ours = there.runtime / f"hub-{killed.entry.id}.json"
    third = there.runtime / "hub-0.json"
    third.write_text(json.dumps({**json.loads(ours.read_text()), "id": "0", "node": "node9"}))
    third.chmod(0o600)
    yield
    ours.unlink(missing_ok=True)
    third.unlink()


def test_a_hub_that_was_killed_and_one_of_a_third_machine_are_not_forwarded(
    here, files_of_no_hub, hub, tunnel
):
    assert tunnel.stdout.readline().startswith("far ")
    assert [each.name for each in found_hubs(here)[0]] == ["far"]
