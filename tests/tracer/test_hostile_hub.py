"""A hub that sends what it likes: it costs the training a bounded amount, never an error, a token or memory that grows."""

import logging
import queue
import random
import socket
import threading
import time

import pytest
from hostile import HELLO, PING, STATUS, HostileHub, hostile_frame, lies, told, ws_frame

from megalens.tracer.health import ProducerHealth
from megalens.tracer.sending import hub_link
from megalens.tracer.sending.hub_link import HubLink, HubLinkLost
from megalens.tracer.sending.hub_process import HubAddress
from megalens.tracer.sending.worker import _MOST_WAITING, StepCost, Worker

PEER = {"name": "tracer", "version": "1"}
STATUSES = told({**STATUS, "step": 1}) * 50
FLOODS = {
    "messages": STATUSES,
    "pings": ws_frame(b"x" * 100, PING, masked=False) * 500,
    "no JSON": told("no json") * 500,
    "large texts": told(" " * (1 << 20)),
}


@pytest.fixture
def hostile():
    hubs = []

    def make(*said, endless=b"", first=True):
        def script(connection):
            if first:
                yield told(HELLO)
            yield from said
            while endless:
                yield endless
            connection.shutdown(socket.SHUT_WR)

        hubs.append(HostileHub(script))
        return HubAddress(hubs[-1].address, "let-me-in")

    yield make
    for hub in hubs:
        hub.close()


def listen(address):
    """Join a hub; return the link, if it came up, and a queue of what it gave."""
    got = queue.Queue()
    try:
        return HubLink(address, PEER, lambda link, message: got.put(message)), got
    except HubLinkLost:
        return None, got


def to_the_end(link, got):
    while got.get(timeout=20) is not None:
        link.taken()
    link.close()


@pytest.mark.parametrize("name", list(lies("r")))
def test_what_no_hub_may_say_is_told_or_ends_the_connection(hostile, name):
    said, greeted, _ = lies("r")[name]
    link, got = listen(hostile(said, first=greeted))
    if link is not None:
        to_the_end(link, got)


def test_whatever_a_hub_sends_the_link_ends_without_an_error_of_another_kind(hostile, monkeypatch):
    errors = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    for number in range(60):
        chance = random.Random(number)
        frames = [hostile_frame(chance, masked=False) for _ in range(chance.randrange(1, 5))]
        link, got = listen(hostile(*frames, first=chance.random() < 0.8))
        if link is not None:
            to_the_end(link, got)
    assert errors == []


@pytest.mark.parametrize("flood", list(FLOODS))
def test_a_flood_takes_little_of_the_process(hostile, flood):
    began = time.monotonic()
    link, got = listen(hostile(endless=FLOODS[flood]))
    count, end = 0, time.monotonic() + 1
    while time.monotonic() < end:
        try:
            message = got.get(timeout=0.1)
        except queue.Empty:
            continue
        if message is None:
            break
        count += 1
        link.taken()
    elapsed = time.monotonic() - began
    link.abort()
    # 200 at once, then each waits 20 ms while room for as many more comes; the flood alone would be thousands.
    assert count <= 201 + 2 * 50 * elapsed


def test_what_nobody_deals_with_is_not_read_on(hostile):
    link, got = listen(hostile(endless=STATUSES))
    while got.qsize() < 64:
        time.sleep(0.01)
    assert not threading.Event().wait(0.3)
    assert got.qsize() == 64
    # It ends all the same.
    link.abort()
    link.close()
    assert not link._reader.is_alive()


def test_the_messages_of_a_right_hub_come_at_once(hostile, monkeypatch):
    taken, take = [], hub_link.Pace.take

    def noted(self, cost):
        taken.append(take(self, cost))
        return taken[-1]

    monkeypatch.setattr(hub_link.Pace, "take", noted)
    link, got = listen(hostile(told({**STATUS, "step": 1}) * 100))
    to_the_end(link, got)
    # None of them had to wait for its turn.
    assert len(taken) > 100
    assert all(taken)


def test_the_token_is_in_no_log(hostile, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("websockets").setLevel(logging.DEBUG)
    link, _ = listen(hostile(endless=STATUSES))
    link.abort()
    link.close()
    assert "let-me-in" not in caplog.text


def test_a_hub_that_says_hello_and_leaves_is_asked_ever_more_rarely(gpt, traced, hostile):
    hello_only = hostile(ws_frame(b"\x03\xe8", 8, masked=False))
    tracer = traced(gpt, hub=(hello_only.url, hello_only.token))
    end = time.monotonic() + 20
    while not any("trying again" in text for text in tracer.status()["warnings"]):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_many_different_sentences_are_few_lines_of_the_trainings_log(caplog):
    health = ProducerHealth()
    for number in range(1000):
        health.warn(f"The hub refused something: {number}")
    assert len(caplog.records) <= 60
    assert len(health.status()["warnings"]) == 20


@pytest.mark.slow
def test_steps_that_wait_for_a_hub_that_stands_still_are_bounded_and_their_numbers_counted():
    worker = Worker()
    for step in range(_MOST_WAITING + 5):
        worker.step_ended(StepCost(step, scalars=(1, 2)))
    assert worker._queue.qsize() == _MOST_WAITING
    assert worker.health.dropped == 10
