"""Hubs that lie, behind the Jupyter server's relay and in its list of runs."""

import json
import random
import socket

import pytest
from hostile import HELLO, PING, STATUS, HostileHub, hostile_frame, lies, told, ws_frame
from test_relay import JOIN, closed, read, until

from megalens.protocol import encode_message

LIES = lies("the-run")
CODES = {"bad-message": 4410, "bad-frame": 4410, "too-large": 4410, "forbidden": 4410}


def hello(run="the-run", **more):
    return told({**HELLO, "run": {"id": run, "name": "gpt", "started": 1.0, **more}})


@pytest.fixture
def hostile():
    hubs = []

    def make(script):
        hubs.append(HostileHub(script))
        return hubs[-1]

    yield make
    for hub in hubs:
        hub.close()


@pytest.fixture
def lying(hostile, ask):
    """Connect a hub by hand that says hello to the server and then, to each viewer, what is asked for."""

    async def connect(*said, first=True, run="the-run", cut=False, token="t"):
        calls = []

        def script(connection):
            calls.append(1)
            connection.recv(65536)
            if len(calls) == 1 or first:
                yield hello(run)
            if len(calls) == 1:
                # The server leaves.
                connection.recv(65536)
                connection.shutdown(socket.SHUT_WR)
                return
            yield from said
            if cut:
                connection.shutdown(socket.SHUT_WR)

        hub = hostile(script)
        status, entry, _ = await ask("hubs", body={"address": hub.address, "token": token})
        assert (status, entry["state"]) == (200, "live")
        return entry

    return connect


@pytest.fixture
def browse(jp_ws_fetch):
    async def open_relay(run_id, join=JOIN):
        viewer = await jp_ws_fetch("megalens", "ws", "runs", run_id, subprotocols=["megalens.v2"])
        await viewer.write_message(encode_message(join))
        return viewer

    return open_relay


@pytest.mark.parametrize("name", list(LIES))
async def test_what_no_hub_may_say_ends_the_relay_with_the_reason(lying, browse, name, jp_web_app):
    said, greeted, error = LIES[name]
    await lying(said, first=greeted)
    viewer = await browse("the-run")
    code, reason = await closed(viewer)
    assert (code, reason["code"]) == (CODES[error], error)
    assert "protocol" in reason["message"]
    assert len(viewer.close_reason.encode()) <= 123
    assert jp_web_app.settings["megalens_broken"].total == 1


async def test_what_comes_after_hello_and_fits_goes_on(lying, browse):
    """A second hello of the same run, and a message of a type that a later version may have, which is left out."""
    await lying(told({"type": "of-tomorrow", "x": 1}), hello(name="renamed"), told({**STATUS, "step": 5}))
    viewer = await browse("the-run")
    types = [json.loads(await read(viewer))["type"] for _ in range(3)]
    assert types == ["hello", "hello", "status"]
    viewer.close()


async def test_another_run_at_the_address_is_no_such_run(lying, browse):
    await lying(hello("another"))
    code, reason = await closed(await browse("the-run"))
    assert (code, reason["code"]) == (4404, "not-found")
    assert "Another hub" in reason["message"]


async def test_another_version_is_said(lying, browse):
    await lying(told({"type": "hello", "protocol": "megalens.v3"}))
    code, reason = await closed(await browse("the-run"))
    assert (code, reason["code"]) == (4406, "version-mismatch")


async def test_pings_without_end_end_the_relay(lying, browse):
    await lying(*[ws_frame(b"x" * 100, PING, masked=False) * 5000] * 20)
    code, _ = await closed(await browse("the-run"))
    assert code in (4410, 4502)


async def test_whatever_a_hub_says_the_relay_ends_with_a_code_or_goes_on(lying, browse, ask):
    for number in range(20):
        chance = random.Random(number)
        frames = [hostile_frame(chance, masked=False) for _ in range(chance.randrange(1, 5))]
        run = f"run-{number}"
        await lying(*frames, run=run, cut=True)
        code, reason = await closed(await browse(run))
        assert code in (1000, 4404, 4406, 4410, 4502), (number, code, reason)
        assert isinstance(reason, dict)
    assert (await ask("runs"))[0] == 200


async def test_a_hub_that_claims_the_id_of_a_live_run_is_another_run(live, lying, browse, ask):
    run = live()
    run.step(3)
    entry = await lying(run=run.id)
    assert entry["id"].startswith(f"{run.id}.at-")
    assert "another hub" in entry["name"]
    _, body, _ = await ask("runs")
    names = {found["id"]: found["name"] for found in body["runs"]}
    assert names[run.id] == "gpt-test"
    assert names[entry["id"]] == entry["name"]
    assert any(run.id in warning and entry["id"] in warning for warning in body["warnings"])
    # The run itself is where it was, and shows its own rows.
    viewer = await browse(run.id)
    own = {"id": run.id, "name": "gpt-test", "started": run.entry.started}
    assert (await until(viewer, "hello"))["run"] == own
    viewer.close()
    # The other one says under which name it goes here.
    viewer = await browse(entry["id"], {**JOIN, "since": 1, "run": entry["id"]})
    told_run = (await until(viewer, "hello"))["run"]
    assert (told_run["id"], "another hub" in told_run["name"]) == (entry["id"], True)
    viewer.close()


async def test_the_own_hub_connected_by_its_address_stays_one_run(live, ask):
    run = live()
    status, entry, _ = await ask("hubs", body={"address": run.address, "token": run.token})
    assert (status, entry["id"], entry["name"]) == (200, run.id, "gpt-test")
    _, body, _ = await ask("runs")
    assert [found["id"] for found in body["runs"]] == [run.id]
    assert body["warnings"] == []


async def test_a_hub_that_claims_the_id_of_a_recorded_run_hides_nothing(run_folder, lying, ask):
    _, before, _ = await ask("runs")
    recorded = before["runs"][0]
    entry = await lying(run=recorded["id"])
    assert entry["id"] != recorded["id"]
    _, after, _ = await ask("runs")
    assert recorded in after["runs"]
    assert len(after["runs"]) == 2


async def test_two_hubs_that_claim_one_id_are_told_apart_by_their_tokens(lying, ask):
    first, second = await lying(run="same"), await lying(run="same", token="other")
    assert (first["id"], second["id"].startswith("same.at-")) == ("same", True)
    # One token and one claim: the same hub at two addresses.
    assert (await lying(run="same"))["id"] == "same"
    assert len((await ask("runs"))[1]["runs"]) == 2
