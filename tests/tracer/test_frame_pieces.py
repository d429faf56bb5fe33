"""Frames reach a hub whole, whether their pieces are sent as they are, as within a machine, or together."""

import os
import queue
import socket
import threading

import pytest
from hostile import HELLO
from websockets.sync.server import serve

from megalens.protocol import encode_message
from megalens.tracer.sending.hub_link import HubLink, HubLinkLost
from megalens.tracer.sending.hub_process import HubAddress

SIZES = (0, 1, 125, 126, 65535, 65536, 3_000_000)


@pytest.fixture
def hub():
    """A hub that says hello, and then hands on what it receives while it may."""
    got, may = queue.Queue(), threading.Event()
    may.set()

    def handler(connection):
        connection.recv()
        connection.send(encode_message(HELLO))
        for message in connection:
            got.put(message)
            may.wait(20)

    with serve(handler, "127.0.0.1", 0, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host, port = server.socket.getsockname()
        link = HubLink(
            HubAddress(f"ws://{host}:{port}/", "token"), {"name": "tracer", "version": "1"}, lambda *_: None
        )
        yield link, got, may
        may.set()
        link.abort()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("near", [True, False])
def test_each_arrives_as_one_message_between_others(hub, monkeypatch, near) -> None:
    link, got, _ = hub
    assert link._ws._near
    monkeypatch.setattr(link._ws, "_near", near)
    for size in SIZES:
        data = os.urandom(size)
        link.send([data[:64], memoryview(data)[64:100], memoryview(data)[100:]])
        assert got.get(timeout=20) == data
        link.send("between")
        assert got.get(timeout=20) == "between"
    link.send([bytes([number % 256]) for number in range(5000)])
    assert got.get(timeout=20) == bytes(number % 256 for number in range(5000))


def test_what_a_socket_does_not_take_in_one_go_follows(hub, monkeypatch) -> None:
    link, got, _ = hub
    data = os.urandom(1_000_000)

    class Slow(socket.socket):
        def sendmsg(self, pieces):
            return super().send(b"".join(pieces)[:70_000])

    slow = Slow(fileno=os.dup(link._ws.socket.fileno()))
    monkeypatch.setattr(link._ws, "socket", slow)
    link.send([data[:50], data[50:]])
    assert got.get(timeout=20) == data
    slow.close()


def test_who_waits_for_a_hub_that_reads_nothing_goes_on_once_the_connection_is_cut(hub) -> None:
    link, got, may = hub
    may.clear()
    ended = queue.Queue()

    def send() -> None:
        try:
            while True:
                link.send([bytes(1 << 20)])
        except HubLinkLost as error:
            ended.put(str(error))

    sender = threading.Thread(target=send)
    sender.start()
    assert got.get(timeout=20) == bytes(1 << 20)
    link.abort()
    assert "broke" in ended.get(timeout=20)
    sender.join()
