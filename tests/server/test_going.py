"""A run that goes from live to gone is there at every moment in between."""

import asyncio
import json

from megalens.protocol import SUBPROTOCOL


async def test_a_killed_hub_leaves_no_gap(ask, live, outside):
    run = live("--record", outside)
    run.step(3)
    states = []
    assert (await ask("runs", run.id))[1]["state"] == "live"
    run.kill_hub()
    for _ in range(40):
        status, body, _ = await ask("runs", run.id)
        assert status == 200, body
        states.append("recorded" if "hello" in body else body["state"])
        await ask("runs")
    assert states[-1] == "recorded"
    assert "live" not in states[states.index("recorded") :]


async def test_a_run_without_a_recording_is_gone_and_not_unknown(ask, live):
    run = live()
    run.step(3)
    assert (await ask("runs", run.id))[1]["state"] == "live"
    run.kill_hub()
    status, body, _ = await ask("runs", run.id)
    assert (status, body["id"], body["state"], body["folder"]) == (200, run.id, "gone", None)
    # There is nothing to look at, so it is not in the list.
    assert [entry["id"] for entry in (await ask("runs"))[1]["runs"]] == []
    status, body, _ = await ask("runs", run.id, "index")
    assert status == 404


async def test_a_run_that_never_was_is_unknown(ask):
    status, body, _ = await ask("runs", "no-such-run")
    assert (status, body["code"]) == (404, "not-found")


async def test_a_run_that_has_finished_is_recorded_at_once_though_its_hub_is_still_there(ask, live, outside):
    run = live("--record", outside, "--linger", "600")
    run.step(3)
    assert (await ask("runs"))[1]["runs"][0]["state"] == "live"
    run.finish()
    for _ in range(1200):
        entry = (await ask("runs"))[1]["runs"][0]
        if entry["state"] != "live":
            break
        await asyncio.sleep(0.05)
    assert entry["state"] == "recorded"
    assert entry["ended"] is not None
    assert run.process.poll() is None
    # Who opens it now reads the whole recording.
    assert (await ask("runs", run.id))[1]["status"]["step"] == 3


async def test_a_run_without_a_recording_has_ended_once_its_hub_said_so(ask, live, jp_ws_fetch):
    run = live("--linger", "600")
    run.step(3)
    assert (await ask("runs"))[1]["runs"][0]["ended"] is None
    socket = await jp_ws_fetch("megalens", "ws", "runs", run.id, subprotocols=[SUBPROTOCOL])
    join = {
        "type": "join",
        "protocol": SUBPROTOCOL,
        "role": "viewer",
        "peer": {"name": "t", "version": "0"},
    }
    await socket.write_message(json.dumps(join))
    run.finish()
    while True:
        message = await socket.read_message()
        assert message is not None
        if isinstance(message, str) and json.loads(message).get("state") == "finished":
            break
    entry = (await ask("runs"))[1]["runs"][0]
    assert entry["state"] == "live"
    assert entry["ended"] is not None
    socket.close()


async def test_a_run_that_nobody_chose_has_ended_once_its_hub_says_so_in_its_runtime_file(ask, live):
    run = live("--linger", "600")
    run.step(3)
    assert (await ask("runs"))[1]["runs"][0]["ended"] is None
    run.finish()
    for _ in range(1200):
        entry = (await ask("runs"))[1]["runs"][0]
        if entry["ended"] is not None:
            break
        await asyncio.sleep(0.05)
    assert (entry["state"], entry["ended"] is None) == ("live", False)
    assert run.process.poll() is None


async def test_a_lost_run_has_stopped_though_its_hub_is_still_there(ask, live, outside):
    run = live("--record", outside, "--linger", "600")
    run.step(3)
    run._socket.socket.shutdown(2)
    for _ in range(1200):
        entry = (await ask("runs"))[1]["runs"][0]
        if entry["state"] != "live":
            break
        await asyncio.sleep(0.05)
    assert entry["state"] == "gone"
    assert (await ask("runs", run.id))[1]["status"]["state"] == "lost"
