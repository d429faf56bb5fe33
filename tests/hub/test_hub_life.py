"""When a hub begins and ends, and what it says of the run meanwhile."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hub_process import ROOT, WAIT, HubProcess, scalars, tensors, until

from megalens.hub.connections import join_hub
from megalens.hub.discovery import live_hubs

pytestmark = pytest.mark.slow


def megalens(*arguments, runtime=None):
    return subprocess.run(
        [sys.executable, "-m", "megalens", *arguments],
        cwd=ROOT,
        env={**os.environ, **({"MEGALENS_RUNTIME_DIR": str(runtime)} if runtime else {})},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )


def test_the_ready_line_says_where_it_is_and_keeps_the_token(hub, runtime):
    assert set(hub.ready) == {"format", "id", "host", "port", "runtime_file"}
    entry = live_hubs(runtime)[0]
    assert (entry.id, entry.port, entry.pid) == (hub.ready["id"], hub.ready["port"], hub.process.pid)
    assert json.loads(Path(hub.ready["runtime_file"]).read_text())["token"] == entry.token
    assert len(entry.token) >= 40


def test_a_producers_name_is_found_in_the_runtime_file(hub, runtime):
    viewer = hub.viewer()
    hub.producer()
    viewer.wait("hello")
    assert live_hubs(runtime)[0].name == "gpt-demo"


def test_states_follow_the_run(hub):
    viewer = hub.viewer()
    states = [viewer.wait("status")["state"]]
    producer = hub.producer()
    producer.send(tensors(1))
    states.append(viewer.wait("status", lambda m: m["step"] == 1)["state"])
    states.append(viewer.wait("status", lambda m: m["state"] != "training")["state"])
    producer.send(tensors(2))
    states.append(viewer.wait("status", lambda m: m["step"] == 2)["state"])
    producer.send({"type": "goodbye", "reason": "finished"})
    states.append(viewer.wait("status", lambda m: m["producers"] == [])["state"])
    assert states == ["waiting", "training", "idle", "training", "finished"]


def test_a_producer_that_goes_without_goodbye_is_lost_until_it_is_back(hub):
    viewer = hub.viewer()
    producer = hub.producer()
    producer.send(tensors(1))
    viewer.wait("status", lambda m: m["state"] == "training")
    producer.socket.socket.close()
    viewer.wait("status", lambda m: m["state"] == "lost")
    hub.producer().send(tensors(2))
    viewer.wait("status", lambda m: m["state"] == "training")


@pytest.mark.slow
def test_status_comes_again_and_again_and_not_more_often_than_every_half_second(hub):
    viewer, producer = hub.viewer(), hub.producer()
    live: list[float] = []
    step = 0
    # However long a slow machine takes: as many as these come, and none sooner than half a second after the one before.
    end = time.monotonic() + 30
    while len(live) < 4 and time.monotonic() < end:
        step += 1
        producer.send(scalars(step))
        viewer.wait_frames(step, "scalars")
        live = [m["time"] for m in viewer.messages if m["type"] == "status"][1:]
        time.sleep(0.01)
    assert len(live) == 4
    assert all(later - earlier > 0.45 for earlier, later in pairwise(live))
    # Also while nothing happens; how often, test_broadcaster tells by a clock of its own.
    for _ in range(3):
        viewer.wait("status")


def test_the_folder_of_a_training_that_goes_on_says_so(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path)
    viewer = hub.viewer()
    producer = hub.producer()
    for step in range(1, 21):
        producer.send(tensors(step))
        viewer.wait("status")
        state = json.loads((hub.record / "run.json").read_text())["state"]
        if state == "training":
            break
    assert state == "training"


def test_figures_of_all_ranks_come_together(hub):
    viewer = hub.viewer()
    for rank in (0, 1):
        producer = hub.producer(rank)
        producer.send(
            {
                "type": "status",
                "state": "training",
                "step": 4,
                "probes": {
                    "fired": 5,
                    "expected": 6,
                    "missing": [f"rank {rank}"],
                    "reasons": [{"reason": "it was not called", "missing": [f"rank {rank}"]}],
                },
                "compiled": {"times": 2 + rank, "again": rank},
                "overhead": {"percent": 0.5 + rank, "low": 0.1, "high": 2.0},
                "dropped": {"producer": 10, "viewer": 0, "recorder": 0},
                "warnings": ["Something."],
            }
        )
    status = viewer.wait("status", lambda m: m.get("probes", {}).get("expected") == 12)
    assert status["probes"] == {
        "fired": 10,
        "expected": 12,
        "missing": ["rank 0", "rank 1"],
        "reasons": [{"reason": "it was not called", "missing": ["rank 0", "rank 1"]}],
    }
    assert status["compiled"] == {"times": 3, "again": 1}
    own = status["overhead"].get("hub", 0) + status["overhead"].get("recorder", 0)
    assert status["overhead"]["percent"] - own == pytest.approx(1.5)
    assert status["dropped"]["producer"] == 20
    assert status["warnings"] == ["Something."]
    assert status["step"] == 4


def test_what_the_hub_and_its_recorder_cost_is_part_of_the_overhead(start_hub, tmp_path):
    hub = start_hub("--record", str(tmp_path))
    viewer, producer = hub.viewer(), hub.producer()
    told = {"percent": 1.25, "low": 1.0, "high": 1.5, "training": 0.75, "producer": 0.5}
    producer.send({"type": "status", "state": "training", "step": 4, "overhead": told})
    overhead = viewer.wait("status", lambda m: "hub" in m.get("overhead", {}))["overhead"]
    assert (overhead["training"], overhead["producer"]) == (0.75, 0.5)
    # Connections and messages cost something, and nothing was recorded but the audit.
    assert overhead["hub"] > 0
    assert overhead["recorder"] >= 0
    for end, told_end in (("percent", 1.25), ("low", 1.0), ("high", 1.5)):
        assert overhead[end] == pytest.approx(told_end + overhead["hub"] + overhead["recorder"])


def test_non_finite_entries_are_counted_with_the_first_place(hub):
    viewer, producer = hub.viewer(), hub.producer()
    producer.send(tensors(1))
    producer.send(tensors(2, layers=(3, 4), nan=2, inf=1))
    producer.send(tensors(3, nan=1))
    status = viewer.wait("status", lambda m: m["step"] == 3)
    assert status["nonfinite"] == {"count": 8, "first": {"step": 2, "layer": 3, "flag": "HiddenStates"}}
    assert status["bytes_per_step"] == len(tensors(1))


@pytest.mark.slow
def test_a_hub_ends_by_itself_once_the_run_is_over_and_nobody_watches(start_hub, runtime):
    hub = start_hub("--linger", 0.5)
    viewer, producer = hub.viewer(), hub.producer()
    producer.send({"type": "goodbye", "reason": "finished"})
    assert producer.closed() == 1000
    viewer.wait("status", lambda m: m["state"] == "finished")
    # It stays while somebody watches, however long after the linger.
    later = viewer.wait("status")["time"] + 1
    viewer.wait("status", lambda m: m["time"] > later)
    viewer.close()
    assert hub.process.wait(WAIT) == 0
    assert live_hubs(runtime) == []
    assert list(runtime.iterdir()) == []


def test_a_hub_whose_parent_is_gone_before_a_producer_came_ends_as_lost(start_hub, tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    hub = start_hub("--linger", 0.2, "--parent-pid", parent.pid, "--record", tmp_path)
    viewer = hub.viewer()
    assert viewer.wait("status")["state"] == "waiting"
    parent.communicate(b"\n")
    viewer.wait("status", lambda m: m["state"] == "lost")
    viewer.close()
    assert hub.process.wait(WAIT) == 0
    assert json.loads((hub.record / "run.json").read_text())["state"] == "lost"


def test_ending_removes_the_runtime_file(hub, runtime):
    assert len(list(runtime.iterdir())) == 1
    assert hub.terminate(signal.SIGTERM) == 0
    assert list(runtime.iterdir()) == []


def test_a_killed_hub_is_no_live_run(hub, runtime):
    hub.process.kill()
    hub.process.wait(WAIT)
    assert len(list(runtime.iterdir())) == 1
    assert live_hubs(runtime) == []


def test_a_port_in_use_is_one_line_and_exit_code_2(hub, runtime):
    second = HubProcess(runtime, "--port", hub.ready["port"])
    try:
        assert second.process.wait(WAIT) == 2
        error = second.process.stderr.read()
        assert len(error.splitlines()) == 1
        assert "--port" in error
        assert second.process.stdout.read() == ""
    finally:
        second.close()


def test_runs_lists_live_runs_without_their_tokens(hub, runtime):
    listed = megalens("runs", "--json", runtime=runtime)
    assert listed.returncode == 0
    assert json.loads(listed.stdout)["id"] == hub.ready["id"]
    assert hub.entry.token not in listed.stdout
    assert hub.ready["id"] in megalens("runs", runtime=runtime).stdout


async def test_no_log_line_of_who_joins_a_hub_has_its_token(hub, caplog):
    caplog.set_level(logging.DEBUG)
    connection, _ = await join_hub(hub.entry, "viewer", "translation")
    await connection.close()
    assert hub.entry.token not in caplog.text


def test_no_live_run_is_said_on_stderr_only(runtime):
    listed = megalens("runs", runtime=runtime)
    assert (listed.returncode, listed.stdout) == (0, "")


def test_version_is_printed():
    assert megalens("--version").stdout.startswith("megalens ")


def test_wrong_arguments_are_exit_code_2():
    assert megalens("hub", "--port", "70000").returncode == 2
    assert megalens("nothing").returncode == 2
    assert megalens().returncode == 2


def test_a_hub_stands_back_behind_the_training(hub):
    hub.viewer()
    assert os.getpriority(os.PRIO_PROCESS, hub.process.pid) >= min(19, os.nice(0) + 10)
    assert os.sched_getscheduler(hub.process.pid) == os.SCHED_BATCH


def test_nothing_is_printed_but_the_ready_line(hub):
    viewer, producer = hub.viewer(), hub.producer()
    producer.send(b"garbage")
    producer.closed()
    viewer.send("{}")
    viewer.wait("error")
    assert hub.terminate() == 0
    assert hub.process.stdout.read() == ""
    assert hub.process.stderr.read() == ""


def test_a_runtime_file_that_is_gone_is_written_anew(hub, runtime):
    (known,) = live_hubs(runtime)
    shutil.rmtree(runtime)
    until(lambda: live_hubs(runtime), "the runtime file")
    assert live_hubs(runtime) == [known]
