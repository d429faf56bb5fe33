"""Hubs of other machines and containers, whose runtime files lie in a home that is shared."""

import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hub_process import ROOT

import megalens
from megalens.hub.discovery import (
    TOUCH_SECONDS,
    HubEntry,
    found_hubs,
    remove_dead_entries,
    runtime_folder,
    touch_entry,
    write_entry,
)
from megalens.hub.machine import node_name, own_namespaces, process_identity
from megalens.server.registry import RunRegistry

OTHER_BOOT = "00000000-0000-4000-8000-000000000000"
CONTAINER = ["unshare", "--pid", "--net", "--mount-proc", "--fork", "--kill-child"]
if os.geteuid() != 0:
    CONTAINER[1:1] = ["--user", "--map-root-user"]


def entry(run="run-1", **changes):
    mine = HubEntry(
        id=run, name="gpt", pid=os.getpid(), host="127.0.0.1", port=40001, token="secret-token", started=time.time(),
        process=process_identity(os.getpid()), node=node_name(), namespaces=own_namespaces(),
    )  # fmt: skip
    return replace(mine, **changes)


def there(run="run-7", **changes):
    """Return the entry of a hub on another machine, whose number a process of this one may have."""
    return entry(run, **{"node": "node7", "process": f"{OTHER_BOOT}:12", **changes})


def ids(folder):
    here, distant = found_hubs(folder)
    return [each.id for each in here], [each.id for each in distant]


def test_a_hub_of_another_machine_is_named_with_the_way_to_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path))
    write_entry(entry(), tmp_path)
    write_entry(there(), tmp_path)
    assert ids(tmp_path) == (["run-1"], ["run-7"])
    said = r"gpt \(run-7\) trains on node7 and cannot be reached from here: megalens tunnel node7"
    with pytest.raises(megalens.ClientError, match=said):
        megalens.connect("run-7")
    listed = subprocess.run(
        [sys.executable, "-m", "megalens", "runs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "megalens tunnel node7" in listed.stdout
    registry = RunRegistry(tmp_path, [], [], logging.getLogger("test"))
    assert [each["id"] for each in registry.listing()["runs"]] == ["run-1"]
    assert any("megalens tunnel node7" in warning for warning in registry.listing()["warnings"])
    assert "secret-token" not in listed.stdout


def test_a_hub_of_another_machine_that_is_silent_is_gone_and_forgotten_after_a_week(tmp_path):
    path = write_entry(there(), tmp_path)
    for seconds, distant, stays in (
        (3 * TOUCH_SECONDS, ["run-7"], True),
        (4 * TOUCH_SECONDS, [], True),
        (8 * 86400, [], False),
    ):
        os.utime(path, (time.time() - seconds,) * 2)
        assert ids(tmp_path) == ([], distant)
        remove_dead_entries(tmp_path)
        assert path.exists() == stays


def test_a_touch_tells_that_a_hub_is_there(tmp_path):
    path = write_entry(there(), tmp_path)
    os.utime(path, (0, 0))
    touch_entry(there(), tmp_path)
    assert ids(tmp_path) == ([], ["run-7"])


def test_a_hub_from_before_this_machine_was_started_anew_is_gone_and_its_file_removed(tmp_path):
    path = write_entry(entry(process=f"{OTHER_BOOT}:12"), tmp_path)
    alive = write_entry(entry("alive"), tmp_path)
    assert ids(tmp_path) == (["alive"], [])
    remove_dead_entries(tmp_path)
    assert not path.exists()
    assert alive.exists()


def test_a_hub_in_a_container_of_its_own_is_named_and_one_with_a_shared_network_is_reached(tmp_path):
    """Two process and network namespaces; then one network. The folder of runtime files is shared."""
    command = [sys.executable, "-m", "megalens", "hub", "--name", "apart"]
    environment = {**os.environ, "MEGALENS_RUNTIME_DIR": str(tmp_path)}
    up = ["sh", "-c", 'ip link set lo up 2>/dev/null; exec "$@"', "sh"]
    for container, expected in (
        (CONTAINER, lambda run: ([], [run])),
        ([each for each in CONTAINER if each != "--net"], lambda run: ([run], [])),
    ):
        hub = subprocess.Popen(
            [*container, *up, *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        run = json.loads(hub.stdout.readline())["id"]
        assert ids(tmp_path) == expected(run)
        if expected(run)[1]:
            assert "another container of this machine" in found_hubs(tmp_path)[1][0].distant_words()
        hub.kill()
        hub.wait()
        hub.stdout.close()
        for path in tmp_path.glob("hub-*.json"):
            path.unlink()


def test_runtime_files_lie_where_jupyter_has_its_own(tmp_path, monkeypatch):
    for name in ("MEGALENS_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = tmp_path / ".local/share/jupyter/runtime/megalens"
    assert runtime_folder() == usual
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "chosen"))
    assert runtime_folder() == tmp_path / "chosen/megalens"
    # A shell that trains without that variable, and a hub of a version before: all are found.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "before"))
    (tmp_path / "before").mkdir(mode=0o700)
    write_entry(entry("usual"), usual)
    write_entry(entry("chosen"))
    write_entry(entry("before"), tmp_path / "before/megalens")
    assert sorted(ids(None)[0]) == ["before", "chosen", "usual"]


def test_a_machine_that_only_trains_uses_the_same_folder(tmp_path, monkeypatch):
    """There jupyter_core is not installed."""
    monkeypatch.delenv("MEGALENS_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "jupyter_core.paths", None)
        trains = runtime_folder()
    assert trains == runtime_folder() == Path(tmp_path, ".local/share/jupyter/runtime/megalens")


def test_a_hub_of_another_machine_that_listens_on_a_network_is_reached(tmp_path):
    write_entry(there(host="192.0.2.7", port=4711), tmp_path)
    seen = (
        "import pathlib, socket, sys; from megalens.hub.discovery import live_hubs; folder = pathlib.Path(sys.argv[1]);"
        "print(len(live_hubs(folder))); listening = socket.create_server(('192.0.2.7', 4711)); print(len(live_hubs(folder)))"
    )
    network = ["sh", "-c", 'ip link set lo up && ip address add 192.0.2.7/32 dev lo && exec "$@"', "sh"]
    inside = subprocess.run(
        [*CONTAINER, *network, sys.executable, "-c", seen, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert inside.stdout.split() == ["0", "1"]
