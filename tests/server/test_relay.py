"""The relay between a browser and a hub, on real sockets."""

import asyncio
import json

import pytest
from live_run import WAIT, tensors_frame

from megalens.protocol import decode_frame, decode_message, encode_message

pytestmark = pytest.mark.slow

JOIN = {
    "type": "join",
    "protocol": "megalens.v2",
    "role": "viewer",
    "peer": {"name": "panel", "version": "0"},
    "since": None,
}


async def read(socket):
    return await asyncio.wait_for(socket.read_message(), WAIT)


async def closed(socket):
    """Read to the end; return the close code and the parsed reason."""
    while await read(socket) is not None:
        pass
    return socket.close_code, json.loads(socket.close_reason or "null")


async def until(socket, kind, test=lambda message: True):
    while True:
        data = await read(socket)
        assert data is not None, f"closed with {socket.close_code} {socket.close_reason} before {kind}"
        if isinstance(data, str):
            message = decode_message(data)
            if message["type"] == kind and test(message):
                return message


async def frames(socket, test):
    while True:
        data = await read(socket)
        assert data is not None
        if isinstance(data, bytes) and test(decode_frame(data)):
            return decode_frame(data)


@pytest.fixture
def browse(jp_ws_fetch):
    """Open a relay and join."""

    async def open_relay(run_id, subprotocols=("megalens.v2",), join=True, **options):
        socket = await jp_ws_fetch(
            "megalens", "ws", "runs", run_id, subprotocols=list(subprotocols), **options
        )
        if join:
            await socket.write_message(encode_message(JOIN))
        return socket

    return open_relay


async def test_a_live_run_is_listed_with_the_step_that_a_relay_saw(ask, live, browse):
    run = live()
    run.step(7)
    _, body, _ = await ask("runs")
    assert [(entry["id"], entry["name"], entry["state"]) for entry in body["runs"]] == [
        (run.id, "gpt-test", "live")
    ]
    socket = await browse(run.id)
    await until(socket, "status", lambda status: status["step"] == 7)
    status, entry, _ = await ask("runs", run.id)
    assert (status, entry["step"], entry["folder"]) == (200, 7, None)
    socket.close()


async def test_messages_and_frames_cross_as_they_are(live, browse):
    run = live()
    socket = await browse(run.id)
    hello = await until(socket, "hello")
    assert socket.selected_subprotocol == "megalens.v2"
    assert hello["run"]["id"] == run.id
    run.step()
    frame = await frames(socket, lambda frame: frame.stream == "tensors")
    sent = decode_frame(tensors_frame(1, (0, 1, 2, 3)))
    # As text, where NaN equals NaN.
    assert repr(frame.table().to_pylist()) == repr(sent.table().to_pylist())
    await socket.write_message(
        encode_message(
            {
                "type": "configure",
                "id": "c-1",
                "patch": {"flags": {"HiddenStates": {"compressor": {"name": "Empty"}}}},
            }
        )
    )
    applied = await until(socket, "configured", lambda message: message["applied"])
    assert applied["config"]["flags"]["HiddenStates"]["compressor"]["name"] == "Empty"
    socket.close()


async def test_two_browsers_have_a_hub_connection_each(live, browse):
    run = live()
    first, second = await browse(run.id), await browse(run.id)
    status = await until(first, "status", lambda status: status["viewers"] == 2)
    assert status["viewers"] == 2
    second.close()
    await until(first, "status", lambda status: status["viewers"] == 1)
    first.close()


@pytest.mark.parametrize("offered", ["megalens.v3", None])
async def test_another_version_gets_the_error_and_4406_from_the_hub(live, browse, offered):
    run = live()
    socket = await browse(run.id, subprotocols=(offered,) if offered else (), join=False)
    assert socket.selected_subprotocol == offered
    assert (await until(socket, "error"))["code"] == "version-mismatch"
    assert (await closed_code(socket))[0] == 4406


async def closed_code(socket):
    while await read(socket) is not None:
        pass
    return socket.close_code, socket.close_reason


async def test_an_unknown_run_is_closed_with_4404_and_a_typed_reason(browse, runtime):
    socket = await browse("no-such-run", join=False)
    code, reason = await closed(socket)
    assert (code, reason["code"]) == (4404, "not-found")
    assert len(socket.close_reason.encode()) <= 123


async def test_a_recorded_run_is_not_relayed(browse, run_folder):
    socket = await browse(run_folder.name, join=False)
    assert (await closed(socket))[0] == 4404


async def test_a_hub_that_is_killed_closes_the_relay_with_4404_and_leaves_a_recording(
    ask, live, browse, outside
):
    run = live("--record", outside)
    socket = await browse(run.id)
    run.step(5)
    await frames(socket, lambda frame: frame.step == 5)
    run.kill_hub()
    code, reason = await closed(socket)
    assert (code, reason["code"]) == (4404, "not-found")
    assert len(socket.close_reason.encode()) <= 123
    _, body, _ = await ask("runs")
    assert [(entry["id"], entry["state"]) for entry in body["runs"]] == [(run.id, "gone")]
    again = await browse(run.id, join=False)
    assert (await closed(again))[0] == 4404


@pytest.mark.slow
async def test_a_hub_that_accepts_no_connection_is_4502(live, browse, ask):
    run = live()
    await ask("runs")
    run.process.send_signal(19)
    try:
        socket = await browse(run.id, join=False)
        code, reason = await asyncio.wait_for(closed(socket), WAIT)
        assert (code, reason["code"]) == (4502, "unreachable")
    finally:
        run.process.send_signal(18)


async def test_an_ended_hub_says_goodbye_through_the_relay(live, browse):
    run = live("--linger", "0.2")
    socket = await browse(run.id)
    await until(socket, "hello")
    run.process.terminate()
    assert (await until(socket, "goodbye"))["reason"] == "shutdown"
    code, reason = await closed(socket)
    assert code == 1001
    assert reason["code"] == "closed"


async def test_a_data_frame_from_a_browser_is_refused_by_the_hub(live, browse):
    run = live()
    socket = await browse(run.id)
    await until(socket, "hello")
    await socket.write_message(tensors_frame(1), binary=True)
    assert (await until(socket, "error"))["code"] == "forbidden"
    assert (await closed_code(socket))[0] == 4403


async def test_an_oversized_message_is_refused_and_others_stay(live, browse):
    run = live()
    other, socket = await browse(run.id), await browse(run.id)
    await until(socket, "hello")
    await socket.write_message(" " * (2 * 1024 * 1024))
    assert (await closed_code(socket))[0] == 1009
    run.step()
    assert (await frames(other, lambda frame: frame.stream == "tensors")).step == 1
    other.close()


async def test_a_slow_browser_costs_bounded_memory_and_gets_the_newest_rows(live, browse, jp_web_app):
    """While the browser does not read, the relay stops reading from the hub, whose queue then keeps the newest."""
    run = live("--queue-bytes", 4 * 1024 * 1024, "--backlog-bytes", 4 * 1024 * 1024)
    socket = await browse(run.id)
    await until(socket, "hello")
    # The client library reads on its own; without this pause it would empty the socket.
    stream = socket.protocol.stream
    stream.io_loop.remove_handler(stream.socket)
    size, count = 65536, 120
    for _ in range(count):
        await asyncio.to_thread(run.step, 1, size)
    (relay,) = jp_web_app.settings["megalens_relays"]
    await asyncio.sleep(0)
    # One message may be under way; the rest waits in the hub. All frames together are 120 MB.
    waiting = relay.ws_connection.stream._write_buffer
    assert len(waiting) <= 3 * 4 * size * 4
    stream._state = None
    stream._add_io_state(stream.io_loop.READ)
    steps = []
    while not steps or steps[-1] < count:
        steps.append((await frames(socket, lambda frame: frame.stream == "tensors")).step)
    assert steps[-1] == count
    assert len(steps) < count
    dropped = await until(socket, "status", lambda status: status["dropped"]["viewer"] > 0)
    assert dropped["dropped"]["viewer"] > 0
    socket.close()


async def test_a_browser_that_leaves_lets_go_of_its_hub_connection(live, browse, jp_web_app):
    run = live()
    socket = await browse(run.id)
    watcher = await browse(run.id)
    await until(watcher, "status", lambda status: status["viewers"] == 2)
    socket.close()
    await until(watcher, "status", lambda status: status["viewers"] == 1)
    assert len(jp_web_app.settings["megalens_relays"]) == 1
    watcher.close()


async def test_a_hub_elsewhere_is_connected_by_address_and_token(ask, live, browse, monkeypatch, tmp_path):
    run = live()
    run.step(3)
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "another"))
    assert (await ask("runs"))[1]["runs"] == []
    status, entry, _ = await ask("hubs", body={"address": run.address, "token": run.token})
    assert (status, entry["id"], entry["state"], entry["name"]) == (200, run.id, "live", "gpt-test")
    assert [found["id"] for found in (await ask("runs"))[1]["runs"]] == [run.id]
    socket = await browse(run.id)
    await until(socket, "hello")
    socket.close()


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"address": "ws://10.1.2.3:99", "token": "t"}, 403, "forbidden", "address"),
        ({"address": "ws://localhost:99", "token": "t"}, 403, "forbidden", "address"),
        ({"address": "http://127.0.0.1:99", "token": "t"}, 400, "bad-parameter", "address"),
        ({"address": "ws://127.0.0.1:99@evil:1", "token": "t"}, 400, "bad-parameter", "address"),
        ({"address": "ws://127.0.0.1:99/?token=t", "token": "t"}, 400, "bad-parameter", "address"),
        ({"address": "ws://127.0.0.1:0", "token": "t"}, 400, "bad-parameter", "address"),
        ({"address": None, "token": "t"}, 400, "bad-parameter", "address"),
        ({"address": "ws://127.0.0.1:99"}, 400, "bad-parameter", "token"),
        ({"address": "ws://127.0.0.1:99", "token": "a\r\nX: y"}, 400, "bad-parameter", "token"),
        ({"address": "ws://127.0.0.1:1", "token": "t"}, 502, "unreachable", "address"),
    ],
)
async def test_a_hub_that_may_not_or_cannot_be_reached_is_a_typed_error(
    ask, runtime, body, status, code, field
):
    found, answer, _ = await ask("hubs", body=body)
    assert (found, answer["code"], answer["field"]) == (status, code, field)


async def test_a_wrong_token_for_a_hub_elsewhere_is_said(ask, live):
    run = live()
    status, answer, _ = await ask("hubs", body={"address": run.address, "token": "wrong"})
    assert (status, answer["code"], answer["field"]) == (502, "unauthorized", "token")


async def test_a_live_run_keeps_its_new_name(ask, live):
    run = live()
    status, entry, _ = await ask("runs", run.id, method="PATCH", body={"name": "renamed"})
    assert (status, entry["name"]) == (200, "renamed")
    assert (await ask("runs"))[1]["runs"][0]["name"] == "renamed"
