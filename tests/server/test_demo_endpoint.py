"""The demo training that the panel starts: one child process, which ends with the server."""

import os
import subprocess
import sys
import time

import pytest

from megalens.hub.discovery import live_hubs
from megalens.server import child_process, demo_training
from megalens.server.demo_training import DemoTraining
from megalens.server.errors import ServerError

WAITS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
FAILS = [sys.executable, "-c", "print('first'); raise SystemExit('no torch here')"]


def until(ask, seconds=60):
    end = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.05)


@pytest.fixture
def training(tmp_path):
    """Make demo trainings, and end every one that is left."""
    made = []

    def make(command, allowed=True):
        made.append(DemoTraining(tmp_path / "runs", allowed, command))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def demo(jp_web_app, training):
    """Let the endpoint start something else than the real demo."""

    def use(command, allowed=True):
        jp_web_app.settings["megalens_demo"].close()
        jp_web_app.settings["megalens_demo"] = training(command, allowed)
        return jp_web_app.settings["megalens_demo"]

    return use


async def test_it_is_idle_starts_once_and_stops(ask, demo):
    demo(WAITS)
    assert (await ask("demo"))[1] == {"state": "idle", "run": None, "message": None}
    assert (await ask("demo", body={}))[1]["state"] == "starting"
    assert (await ask("demo", body={}))[1]["state"] == "starting"
    assert (await ask("demo", method="DELETE"))[:2] == (200, {"state": "idle", "run": None, "message": None})
    assert (await ask("demo", method="DELETE"))[1]["state"] == "idle"


def test_a_second_start_starts_no_second_process(training, monkeypatch):
    started = []
    popen = subprocess.Popen

    def count(*arguments, **named):
        started.append(popen(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(child_process.subprocess, "Popen", count)
    one = training(WAITS)
    one.start()
    one.start()
    assert len(started) == 1
    one.stop()
    assert started[0].poll() is not None
    one.start()
    assert len(started) == 2


async def test_a_request_has_no_say_in_what_is_started(ask, demo):
    demo(WAITS)
    for body in ({"steps": 5}, {"command": "true"}, [], "x"):
        status, answer, _ = await ask("demo", body=body)
        assert status == 400
        assert answer["code"] in ("bad-parameter", "bad-message")
    assert (await ask("demo"))[1]["state"] == "idle"


async def test_a_failed_start_gives_its_last_line(ask, demo):
    one = demo(FAILS)
    await ask("demo", body={})
    until(lambda: one.state()["state"] == "failed")
    assert (await ask("demo"))[1] == {"state": "failed", "run": None, "message": "no torch here"}
    # It can be tried again.
    assert (await ask("demo", body={}))[1]["state"] in ("starting", "failed")


async def test_an_administrator_can_forbid_it(ask, demo):
    demo(WAITS, allowed=False)
    assert (await ask("demo"))[1]["state"] == "off"
    status, answer, _ = await ask("demo", body={})
    assert (status, answer["code"]) == (403, "forbidden")


def test_nothing_starts_once_the_server_ends(training):
    one = training(WAITS)
    one.start()
    one.close()
    one.close()
    assert one.state()["state"] == "idle"
    with pytest.raises(ServerError, match="ending"):
        one.start()


def test_a_training_that_ignores_the_signal_is_killed(training, monkeypatch):
    monkeypatch.setattr(demo_training, "_END_SECONDS", 0.3)
    code = "import signal, sys; signal.signal(15, signal.SIG_IGN); print('up', flush=True); sys.stdin.read()"
    one = training([sys.executable, "-c", code])
    one.start()
    until(lambda: one._training.lines)
    assert one.stop()["state"] == "idle"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_real_demo_becomes_a_live_run_and_ends_with_its_server(runtime, tmp_path):
    """A server that is killed closes nothing by itself: only the pipe tells its child."""
    code = (
        "import sys, time; from pathlib import Path; from megalens.server.demo_training import DemoTraining\n"
        "demo = DemoTraining(Path(sys.argv[1]), True); demo.start()\n"
        "while (now := demo.state())['state'] == 'starting': time.sleep(0.1)\n"
        "print(now['state'], now['run'], now['message'], demo._training.process.pid, flush=True); time.sleep(600)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True
    )
    try:
        state, run, message, pid = server.stdout.readline().split()
        assert (state, message) == ("running", "None")
        assert [hub.id for hub in live_hubs()] == [run]
    finally:
        server.kill()
        server.wait()
    until(lambda: not alive(int(pid)), 60)
    until(lambda: live_hubs() == [], 60)
    assert (tmp_path / "runs" / run / "run.json").is_file()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def test_a_stopped_child_was_asked_first(training):
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
    one = training([sys.executable, "-c", code])
    one.start()
    until(lambda: one._training.lines)
    process = one._training.process
    one.stop()
    assert process.returncode == 0
