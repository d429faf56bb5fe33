"""Hubs that lie, seen from a kernel."""

import random
import socket
import sys
import threading

import pytest
from hostile import FRAMES, HELLO, STATUS, HostileHub, hostile_frame, lies, told, ws_frame
from live_run import WAIT, eventually

from megalens.protocol import ProtocolError
from megalens.runs import ClientError, connect

LIES = lies("the-run")
ENDS = {
    "a text that is too long",
    "bits that mean compression",
    "bytes that are no text",
    "a length of terabytes",
}
READY = told({**STATUS, "state": "training", "step": 1, "time": 1.0})


def hello(run="the-run", **more):
    return told({**HELLO, "run": {"id": run, "name": "gpt", "started": 1.0, **more}})


FIRST = (hello(), READY, READY)


@pytest.fixture
def hostile(runtime):
    hubs, runs = [], []

    def make(*said, first=FIRST, cut=False):
        def script(connection):
            connection.recv(65536)
            yield from (*first, *said)
            if cut:
                connection.shutdown(socket.SHUT_WR)

        hubs.append(HostileHub(script))
        return hubs[-1]

    def attach(*said, **named):
        runs.append(connect(make(*said, **named).address, token="t", timeout=WAIT))
        return runs[-1]

    make.attach = attach
    yield make
    for run in runs:
        run.close()
    for hub in hubs:
        hub.close()


@pytest.mark.parametrize("name", [name for name, (_, greeted, _) in LIES.items() if greeted])
def test_what_no_hub_may_say_is_counted_and_in_the_end_ends_the_link_with_the_reason(hostile, name):
    said = LIES[name][0]
    run = hostile.attach(*[said] * 10)
    eventually(lambda: not run.live, "the run ended")
    assert (run.state, run.id, run.name) == ("lost", "the-run", "gpt")
    assert any("broke the protocol" in warning for warning in run.warnings)
    assert run._bad == (0 if name in ENDS else 10)


def test_a_few_messages_that_cannot_be_read_are_counted_and_what_follows_is_taken(hostile):
    later = told({**STATUS, "state": "training", "step": 9, "time": 2.0})
    run = hostile.attach(told({"type": "of-tomorrow"}), told("x"), later)
    eventually(lambda: run.step == 9, "what followed came")
    assert run.live
    assert "2 messages could not be read." in run.warnings


@pytest.mark.parametrize("first", [(READY,), (ws_frame(FRAMES[0], masked=False),)])
def test_nothing_is_taken_before_hello(hostile, first):
    hub = hostile(first=first * 10)
    with pytest.raises(ProtocolError, match="before hello"):
        connect(hub.address, token="t", timeout=WAIT)


def test_another_run_on_the_same_connection_is_refused(hostile):
    run = hostile.attach(hello("another"))
    eventually(lambda: not run.live, "the run ended")
    assert run.id == "the-run"
    assert any("Another hub answers" in warning for warning in run.warnings)


def test_a_hub_that_claims_the_id_of_a_live_run_has_another_name(live, hostile):
    own = live()
    run = hostile.attach(first=(hello(own.id), READY, READY))
    assert run.id.startswith(f"{own.id}.at-")
    assert "another hub" in run.name
    assert any(own.id in warning for warning in run.warnings)
    found = connect(own.id)
    assert (found.id, found.name) == (own.id, "gpt-test")
    found.close()


def test_another_hub_at_the_port_of_one_that_was_found_is_not_taken_for_it(live, hostile, monkeypatch):
    """The port of a runtime file may be another program's by now."""
    own = live()
    hub = hostile(first=(hello("another"), READY, READY))
    entry = own.entry.__class__(**{**vars(own.entry), "port": int(hub.address.rpartition(":")[2])})
    module = sys.modules["megalens.runs.connecting"]
    monkeypatch.setattr(module, "find_hub", lambda *_: entry)
    monkeypatch.setattr(module, "live_hubs", lambda *_: [entry])
    with pytest.raises(ProtocolError, match="Another hub answers"):
        connect(own.id, timeout=WAIT)


def test_whatever_a_hub_says_the_kernel_has_a_run_or_a_typed_error(hostile):

    def links():
        return sum(thread.name == "megalens-link" for thread in threading.enumerate())

    before = links()
    said = []
    for number in range(40):
        chance = random.Random(number)
        frames = [hostile_frame(chance, masked=False) for _ in range(chance.randrange(1, 9))]
        greeted = chance.random() < 0.7
        hub = hostile(*frames, first=(hello(), READY, READY) if greeted else (), cut=True)
        try:
            run = connect(hub.address, token="t", timeout=2)
        except (ClientError, ProtocolError) as error:
            said.append(str(error))
            continue
        eventually(lambda run=run: not run.connected, "the connection ended")
        assert isinstance(run.warnings, list)
        assert run.tensors() is not None
        run.close()
    eventually(lambda: links() <= before, "threads ended")
    assert all(said)
