"""Strangers without the token, and clients with it that send what costs: the run goes on, and who is allowed in gets in."""

import contextlib
import json
import os
import random
import re
import resource
import socket
import time

import pytest
from hostile import BINARY, CONTINUED, PING, TEXT, hostile_frame, hostile_request, upgrade, ws_frame
from hub_process import WAIT, HubProcess, peer, scalars, tensors
from recorded_files import parquet_of
from websockets.exceptions import ConnectionClosed

from megalens.hub.connections import HalfOpen, MinuteLog

FILES = 256
CASES = 60
JOIN = {"type": "join", "protocol": "megalens.v2", "peer": peer("x")}


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def place(hub):
    return hub.ready["host"], hub.ready["port"]


def raw(hub, data=b"", *, token=False, on=None):
    """Return a plain socket to a hub, that has sent ``data``; with the token, one that is a WebSocket already."""
    client = on or socket.create_connection(place(hub))
    client.settimeout(WAIT)
    if token:
        client.sendall(upgrade(hub.entry.token))
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        assert b" 101 " in head
    with contextlib.suppress(OSError):
        client.sendall(data)
    return client


def ended(client):
    """Read to the end, and return what came."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65536):
            got += piece
    client.close()
    return got


def serves(hub, step):
    viewer, producer = hub.viewer(backlog=0), hub.producer()
    producer.send(tensors(step))
    assert viewer.wait_frames(1)[-1].step == step
    producer.close()
    viewer.close()


@pytest.fixture
def small_hub(runtime, tmp_path):
    """A hub that may have few files open."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))  # noqa: E731
    hub = HubProcess(runtime, "--record", tmp_path / "runs", "--linger", 0, preexec=limit).wait_ready()
    yield hub
    hub.close()


def test_half_open_connections_cost_the_recording_nothing_and_shut_nobody_out(small_hub):
    producer = small_hub.producer()
    crowd = []
    for step in range(1, 601):
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.connect_ex(place(small_hub))
        crowd.append(stranger)
        producer.send(scalars(step))
    viewer = small_hub.viewer()
    # A stream that is new by now, for which the recorder opens a file.
    producer.send(tensors(601))
    status = viewer.wait("status", lambda m: m["step"] == 601 and "warnings" in m)
    assert status["recording"]["state"] == "on"
    assert any("without the token" in warning for warning in status["warnings"])
    assert len(os.listdir(f"/proc/{small_hub.process.pid}/fd")) < FILES - 32
    producer.send({"type": "goodbye", "reason": "finished"})
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    assert parquet_of(small_hub.record, "scalars").column("step").to_pylist() == list(range(1, 601))
    assert small_hub.terminate() == 0
    said = small_hub.process.stderr.read()
    assert len(said.splitlines()) <= 2
    assert "cut off" in said
    assert "Traceback" not in said
    for stranger in crowd:
        stranger.close()


def test_who_is_let_in_takes_no_place_of_those_that_come(small_hub):
    """Viewers fill every place that is theirs; the next is told so in words, which takes a handshake."""
    clients = []
    with contextlib.suppress(Exception):
        while len(clients) < FILES:
            clients.append(raw(small_hub, token=True))
    assert 100 < len(clients) < FILES
    answer = ended(raw(small_hub, upgrade(small_hub.entry.token)))
    assert b" 503 " in answer
    clients.pop().close()
    end = time.monotonic() + WAIT
    while b" 101 " not in (answer := raw(small_hub, upgrade(small_hub.entry.token)).recv(4096)):
        assert time.monotonic() < end, answer
    for client in clients:
        client.close()


def test_a_head_that_never_ends_is_cut_off_by_time_and_by_size(start_hub):
    hub = start_hub("--join-seconds", 0.5)
    slow, endless = raw(hub), raw(hub, b"GET / HTTP/1.1\r\n")
    with contextlib.suppress(OSError):
        for number in range(100):
            endless.sendall(b"X-%d: " % number + b"y" * 1000 + b"\r\n")
    assert b" 101 " not in ended(endless)
    for byte in upgrade(hub.entry.token)[:10]:
        slow.sendall(bytes([byte]))
    assert b" 101 " not in ended(slow)
    serves(hub, 1)


def test_garbage_in_place_of_a_request_opens_nothing_and_says_little(start_hub):
    hub = start_hub("--join-seconds", 0.5)
    for number in range(CASES):
        client = raw(hub, hostile_request(random.Random(number)))
        client.shutdown(socket.SHUT_WR)
        assert b" 101 " not in ended(client), number
    serves(hub, 1)
    assert hub.terminate() == 0
    said = hub.process.stderr.read()
    assert len(said.splitlines()) <= 2
    assert "Traceback" not in said
    assert hub.entry.token not in said


@pytest.mark.parametrize("role", ["viewer", "producer"])
def test_whatever_a_client_with_the_token_sends_the_hub_goes_on(start_hub, role):
    hub = start_hub("--join-seconds", 0.5)
    before = resident_bytes(hub.process.pid)
    for number in range(CASES):
        chance = random.Random(number)
        client = raw(hub, token=True)
        with contextlib.suppress(OSError):
            if chance.random() < 0.9:
                client.sendall(ws_frame(json.dumps({**JOIN, "role": role}).encode(), TEXT))
            for _ in range(chance.randrange(1, 6)):
                client.sendall(hostile_frame(chance))
            client.shutdown(socket.SHUT_WR)
        ended(client)
    watcher = hub.viewer(backlog=0)
    watcher.wait("status", lambda m: m["producers"] == [])
    # Whatever a producer made of the run, another one is taken once it is gone.
    serves(hub, 5)
    assert resident_bytes(hub.process.pid) - before < 500 * 1024 * 1024
    assert hub.terminate() == 0
    assert "Traceback" not in hub.process.stderr.read()
    assert not any(
        "error of its own" in warning for m in watcher.messages for warning in m.get("warnings", ())
    )


def test_pings_that_never_end_close_the_connection_that_sends_them(hub):
    other = hub.viewer()
    client = raw(hub, token=True)
    before = resident_bytes(hub.process.pid)
    flood = ws_frame(b"x" * 125, PING) * 1000
    with contextlib.suppress(OSError):
        for _ in range(200):
            client.sendall(flood)
    client.close()
    assert resident_bytes(hub.process.pid) - before < 30 * 1024 * 1024
    other.wait("status", lambda m: m["viewers"] == 1)
    serves(hub, 1)


def test_a_viewer_that_does_not_read_is_owed_one_pong_only(hub):
    client = raw(hub, on=hub.small_socket(), token=True)
    client.sendall(ws_frame(json.dumps({**JOIN, "role": "viewer"}).encode(), TEXT))
    watcher, producer = hub.viewer(), hub.producer()
    watcher.wait("status", lambda m: m["viewers"] == 2)
    # More than the sockets take: the rest of the frame waits in the hub.
    producer.send(tensors(1, layers=(1,), size=4_000_000))
    watcher.wait_frames(1)
    for number in range(300):
        client.sendall(ws_frame(b"%03d" % number, PING))
    producer.send(tensors(2))
    watcher.wait_frames(2)
    got = b""
    while b"\x8a\x03299" not in got:
        got += client.recv(1 << 20)
    assert len(re.findall(rb"\x8a\x03\d{3}", got)) < 100
    client.close()


def test_a_message_in_endless_pieces_is_closed(hub):
    client = raw(hub, token=True)
    with contextlib.suppress(OSError):
        client.sendall(ws_frame(b"{", TEXT, fin=False))
        client.sendall(ws_frame(b"", CONTINUED, fin=False) * 20_000)
    ended(client)
    serves(hub, 1)


@pytest.mark.parametrize("claimed", [1 << 21, (1 << 63) - 1])
def test_a_lying_length_holds_no_memory(hub, claimed):
    serves(hub, 1)
    before = resident_bytes(hub.process.pid)
    clients = [raw(hub, ws_frame(b"x" * 100, BINARY, claimed=claimed), token=True) for _ in range(20)]
    serves(hub, 2)
    assert resident_bytes(hub.process.pid) - before < 30 * 1024 * 1024
    # They hold up neither others nor the hub's end.
    started = time.monotonic()
    assert hub.terminate() == 0
    assert time.monotonic() - started < 30
    for client in clients:
        client.close()


def test_compressed_frames_are_a_breach_of_the_protocol(hub):
    client = raw(hub, ws_frame(b"\x00" * 50, TEXT, rsv=4), token=True)
    assert b"\x03\xea" in ended(client)[:6]


def test_a_viewer_that_sends_without_end_waits_for_itself(hub):
    busy = hub.viewer(backlog=0)
    sent = 0
    started = time.monotonic()
    with contextlib.suppress(ConnectionClosed):
        for number in range(300):
            sent = number
            busy.send({"type": "error", "code": "internal", "message": "x"})
        busy.send({"type": "goodbye", "reason": "leaving"})
        busy.closed()
    assert sent == 299
    assert time.monotonic() - started > 0.5
    serves(hub, 1)


class Transport:
    def __init__(self, address):
        self.address = address
        self.aborted = False

    def get_extra_info(self, name):
        return (self.address, 1)

    def abort(self):
        self.aborted = True


def test_the_oldest_of_the_address_with_the_most_is_cut_off():
    cut = []
    half_open = HalfOpen(lambda: 3, lambda: cut.append(1))
    one, *many = [Transport("good"), *(Transport("bad") for _ in range(10))]
    for transport in (one, *many):
        half_open.begin(transport)
    assert (one.aborted, [each.aborted for each in many]) == (False, [True] * 8 + [False] * 2)
    assert len(cut) == 8
    half_open.end(one)
    half_open.end(one)
    assert len(half_open) == 2
    half_open.close()
    assert all(each.aborted for each in many)


def test_trouble_is_one_line_a_minute_with_counts():
    now = 0.0
    lines = []
    log = MinuteLog(lines.append, lambda: now)
    for _ in range(1000):
        log.count("garbage")
    assert lines == ["garbage: 1."]
    now = 61.0
    log.tick()
    assert lines[1] == "garbage: 999."
    for number in range(1000):
        log.count(f"kind {number}")
    now = 122.0
    log.tick()
    assert len(lines) == 3
    assert "others: 968" in lines[2]
