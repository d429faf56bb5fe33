"""Connecting to a foreign hub from the panel: a process of the server translates it into a live run."""

import json
import threading

import pytest
from test_demo_endpoint import until
from websockets.sync.server import serve

import megalens
from megalens.hub.discovery import find_hub, live_hubs


@pytest.fixture
def foreign():
    """A hub of pull request 3606 that sends one layer of one step, and stays."""
    connections = []

    def handle(connection):
        connections.append(connection)
        for text in connection:
            if json.loads(text)["type"] == "run_training_step":
                connection.send(
                    json.dumps({"type": "start", "micro_batch_size": 1, "seq_length": 2, "num_layers": 3})
                )
                update = {"type": "update", "update_type": 4, "layer_id": 1, "args": [1, 2, 3]}
                connection.send(json.dumps({**update, "result": [float("nan"), 1, 2, 3, 4, 5]}))

    server = serve(handle, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
    server.shutdown()
    thread.join()


@pytest.mark.slow
async def test_a_foreign_hub_becomes_a_live_run_until_it_is_left(ask, runtime, foreign):
    config = {
        "flags": {"MLP1_mat_mul": {"samples": None, "compressor": {"name": "Tile", "params": {"tiles": 3}}}}
    }
    body = {"address": foreign, "token": "", "dialect": "3606", "config": config}
    status, entry, _ = await ask("hubs", body=body)
    assert (status, entry["state"]) == (200, "live"), entry
    assert find_hub(entry["id"]) is not None
    # The same address again is the same run: a second connection would take the first one's place.
    assert (await ask("hubs", body=body))[1]["id"] == entry["id"]
    with megalens.connect(entry["id"]) as run:
        run.wait(1, timeout=30)
        (row,) = run.tensors("MLP1_mat_mul").to_pylist()
    assert (row["layer"], row["nan_count"], row["values"][1:]) == (0, 1, [1, 2, 3, 4, 5])
    assert (await ask("hubs", method="DELETE", params={"run": entry["id"]}))[0] == 204
    until(lambda: live_hubs() == [])
    status, answer, _ = await ask("hubs", method="DELETE", params={"run": entry["id"]})
    assert (status, answer["field"]) == (404, "run")


@pytest.mark.slow
async def test_a_translation_ends_with_the_server(ask, runtime, foreign, jp_serverapp):
    assert (await ask("hubs", body={"address": foreign, "dialect": "T2"}))[0] == 200
    (hub,) = live_hubs()
    await jp_serverapp.extension_manager.stop_all_extensions()
    assert live_hubs() == []
    assert hub.pid > 0


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"dialect": "T9"}, 400, "dialect"),
        ({"dialect": ["T1"]}, 400, "dialect"),
        ({"dialect": "T1", "config": "all"}, 400, "config"),
        ({"dialect": "inference"}, 400, "prompts"),
        ({"dialect": "inference", "prompts": [1]}, 400, "prompts"),
        ({"dialect": "inference", "prompts": ["a"], "tokens": 0}, 400, "tokens"),
        ({"dialect": "T1", "address": "ws://10.0.0.1:1"}, 403, "address"),
        ({"dialect": "T1", "address": "--help"}, 400, "address"),
        ({"dialect": "T1", "address": "ws://127.0.0.1:1"}, 502, "address"),
        (
            {"dialect": "T1", "config": {"flags": {"HiddenStates": {"compressor": {"name": "NoOp"}}}}},
            400,
            "config",
        ),
    ],
)
async def test_what_cannot_be_followed_is_refused_by_name(ask, foreign, runtime, body, status, field):
    found, answer, _ = await ask("hubs", body={"address": foreign, **body})
    assert (found, answer["field"]) == (status, field), answer
    assert live_hubs() == []
