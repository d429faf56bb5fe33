"""Runtime files: who may read them and which of them count."""

import json
import os
import socket
import stat
import subprocess
import sys
import time

import pytest

from megalens.hub.discovery import (
    HubEntry,
    find_hub,
    id_at_address,
    live_hubs,
    remove_entry,
    runtime_folder,
    write_entry,
)
from megalens.hub.machine import process_identity
from megalens.hub.options import HubError


def entry(run="run-1", **changes):
    values = {
        "id": run,
        "name": "gpt-demo",
        "pid": os.getpid(),
        "host": "127.0.0.1",
        "port": 40001,
        "token": "secret-token",
        "started": time.time(),
        "record": None,
    }
    return HubEntry(**{**values, **changes})


def test_an_entry_is_written_privately_and_read_back(tmp_path):
    folder = tmp_path / "rt"
    path = write_entry(entry(), folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert path.name == "hub-run-1.json"
    assert [e.id for e in live_hubs(folder)] == ["run-1"]
    assert list(folder.iterdir()) == [path]


def test_the_token_never_shows_in_a_repr():
    assert "secret-token" not in repr(entry())
    assert "secret-token" not in entry().address


def test_the_newest_hub_comes_first_and_is_found_by_id_or_name(tmp_path):
    now = time.time()
    write_entry(entry("old", started=now - 3, name="a"), tmp_path)
    write_entry(entry("new", started=now, name="b"), tmp_path)
    assert [e.id for e in live_hubs(tmp_path)] == ["new", "old"]
    assert find_hub(folder=tmp_path).id == "new"
    assert find_hub("a", folder=tmp_path).id == "old"
    assert find_hub("old", folder=tmp_path).id == "old"
    assert find_hub("none", folder=tmp_path) is None


def test_a_training_that_goes_on_is_found_before_a_newer_one_that_has_ended(tmp_path):
    now = time.time()
    write_entry(entry("run-1", started=now - 3), tmp_path)
    write_entry(entry("run-2", started=now, ended=now), tmp_path)
    assert [hub.id for hub in live_hubs(tmp_path)] == ["run-2", "run-1"]
    assert find_hub(None, tmp_path).id == "run-1"
    assert find_hub("run-2", tmp_path).ended == now


def test_a_removed_entry_is_gone_and_removing_twice_is_fine(tmp_path):
    one = entry()
    write_entry(one, tmp_path)
    remove_entry(one, tmp_path)
    remove_entry(one, tmp_path)
    assert live_hubs(tmp_path) == []


def test_an_entry_whose_process_ended_is_ignored(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    write_entry(entry(pid=process.pid), tmp_path)
    process.wait()
    assert live_hubs(tmp_path) == []


def test_a_zombie_process_counts_as_gone(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout.read() == b""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    write_entry(entry(pid=process.pid), tmp_path)
    assert live_hubs(tmp_path) == []
    process.wait()
    process.stdout.close()


def test_a_reused_pid_is_not_the_hub(tmp_path):
    # This very process is alive, but it began long after the hub of that entry did.
    write_entry(entry(started=time.time() - 10 * 365 * 86400, port=1), tmp_path)
    assert live_hubs(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2}',
        '{"format": 1}',
        "[" * 30000,
        '{"format": 1, "id": "x", "name": "x", "pid": true, "host": "h", "port": 1, "token": "t", "started": 1, "record": null}',
        '{"format": 1, "id": "x", "name": "x", "pid": 1, "host": "h", "port": 99999, "token": "t", "started": 1, "record": null}',
    ],
)
def test_an_unreadable_file_is_ignored_with_a_warning_and_the_others_stay(tmp_path, text):
    write_entry(entry(), tmp_path)
    bad = tmp_path / "hub-bad.json"
    bad.write_text(text)
    bad.chmod(0o600)
    with pytest.warns(RuntimeWarning, match="hub-bad"):
        assert [e.id for e in live_hubs(tmp_path)] == ["run-1"]


def test_a_file_that_others_can_read_is_ignored_with_a_warning(tmp_path):
    write_entry(entry(), tmp_path).chmod(0o644)
    with pytest.warns(RuntimeWarning, match="others can read"):
        assert live_hubs(tmp_path) == []


def test_a_link_in_the_folder_is_not_followed(tmp_path):
    path = write_entry(entry(), tmp_path / "real")
    (tmp_path / "hub-link.json").symlink_to(path)
    with pytest.warns(RuntimeWarning, match="hub-link"):
        assert live_hubs(tmp_path) == []


def test_a_folder_that_others_can_write_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(HubError, match="MEGALENS_RUNTIME_DIR"):
        write_entry(entry(), folder)
    assert list(folder.iterdir()) == []


def test_a_missing_folder_holds_no_hubs(tmp_path):
    assert live_hubs(tmp_path / "nothing") == []


def test_the_environment_chooses_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "x"))
    assert runtime_folder() == tmp_path / "x"
    monkeypatch.delenv("MEGALENS_RUNTIME_DIR")
    assert runtime_folder().name == "megalens"


def test_a_process_that_has_the_number_of_a_hub_that_ended_is_not_the_hub(tmp_path):
    """Also where it listens on the hub's port, and the clock was set so that it began before the hub."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        mine = process_identity(os.getpid())
        write_entry(entry("same", port=port, process=mine), tmp_path)
        boot, _, ticks = mine.partition(":")
        write_entry(entry("later", port=port, process=f"{boot}:{int(ticks) + 1}"), tmp_path)
        write_entry(entry("boot", port=port, process=f"0000:{ticks}"), tmp_path)
        assert [found.id for found in live_hubs(tmp_path)] == ["same"]


def test_a_runtime_file_that_says_it_is_another_runs_is_ignored(tmp_path):
    path = write_entry(entry("mine"), tmp_path)
    path.rename(tmp_path / "hub-yours.json")
    with pytest.warns(RuntimeWarning, match="of the run 'mine'"):
        assert live_hubs(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        '"started": NaN',
        '"started": 1e999',
        '"started": 1' + "0" * 400,
        '"name": "\\ud800"',
        '"pid": 1' + "0" * 30,
        '"port": 70000',
    ],
)
def test_a_runtime_file_with_values_out_of_range_hides_no_other(tmp_path, text):
    write_entry(entry("good"), tmp_path)
    path = write_entry(entry("odd"), tmp_path)
    others = {name: value for name, value in json.loads(path.read_text()).items() if f'"{name}"' not in text}
    path.write_text(json.dumps(others).rstrip("}") + f", {text}}}")
    with pytest.warns(
        RuntimeWarning, match="must be finite|must be at most|halves of surrogate|port is missing"
    ):
        assert [found.id for found in live_hubs(tmp_path)] == ["good"]


def test_the_name_of_a_hub_that_claims_anothers_run_is_always_the_same():
    one = id_at_address("run", "ws://a:1")
    assert one == id_at_address("run", "ws://a:1") != id_at_address("run", "ws://a:2")
    assert len(id_at_address("r" * 100, "ws://a:1")) <= 100
