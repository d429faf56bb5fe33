"""Bad input at the hub's door and after it: each a typed error, the right close code, and everybody else goes on."""

import asyncio
import json
import socket

import pytest
from hub_process import WAIT, announce, peer, scalars, tensors
from websockets.exceptions import InvalidStatus

from megalens.hub.options import HubOptions
from megalens.hub.server import Hub
from megalens.protocol import encode_frame, stream_schema


def refused_status(hub, **options):
    with pytest.raises(InvalidStatus) as caught:
        hub.connect(**options)
    return caught.value.response.status_code


def still_serves(hub):
    viewer = hub.viewer(backlog=0)
    producer = hub.producer()
    producer.send(tensors(7))
    assert viewer.wait_frames(1)[-1].step == 7


def test_without_the_token_no_websocket_opens(standing_hub):
    assert refused_status(standing_hub, token=False) == 401
    assert refused_status(standing_hub, token="wrong") == 401
    assert refused_status(standing_hub, token=standing_hub.entry.token + "x") == 401
    assert (
        refused_status(
            standing_hub, token=False, headers={"Authorization": f"Basic {standing_hub.entry.token}"}
        )
        == 401
    )
    assert refused_status(standing_hub, token=False, headers={"Authorization": "Bearer \xff"}) == 401
    still_serves(standing_hub)


def test_a_token_in_the_address_lets_nobody_in(standing_hub):
    assert refused_status(standing_hub, token=False, path=f"?token={standing_hub.entry.token}") == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1"])
def test_a_browser_is_refused_even_with_the_token(standing_hub, origin):
    assert refused_status(standing_hub, headers={"Origin": origin}) == 403


def test_another_path_is_not_found(standing_hub):
    assert refused_status(standing_hub, path="elsewhere") == 404


@pytest.mark.parametrize("offered", [["megalens.v3"], ["other.v1"], None])
def test_another_version_is_told_so_and_closed_with_4406(standing_hub, offered):
    client = standing_hub.connect(subprotocols=offered)
    error = client.wait("error")
    assert error["code"] == "version-mismatch"
    assert client.closed() == 4406
    if offered == ["megalens.v3"]:
        assert client.socket.subprotocol == "megalens.v3"


def test_the_right_version_is_chosen_among_several(standing_hub):
    assert (
        standing_hub.connect(subprotocols=["megalens.v3", "megalens.v2"]).socket.subprotocol == "megalens.v2"
    )


def test_a_join_of_another_protocol_is_closed_with_4406(standing_hub):
    client = standing_hub.connect()
    client.send({"type": "join", "protocol": "megalens.v9", "role": "viewer", "peer": peer("x")})
    assert client.wait("error")["code"] == "version-mismatch"
    assert client.closed() == 4406


def test_no_join_in_time_is_closed_with_4408(start_hub):
    hub = start_hub("--join-seconds", 0.3)
    client = hub.connect()
    assert client.wait("error")["code"] == "join-expected"
    assert client.closed() == 4408


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ('{"type":"goodbye","reason":"leaving"}', "join-expected"),
        (b"garbage", "join-expected"),
        ("garbage", "bad-message"),
        ('{"type":"join"}', "bad-message"),
        (
            '{"type":"join","protocol":"megalens.v2","role":"king","peer":{"name":"x","version":"0"}}',
            "bad-message",
        ),
    ],
)
def test_a_first_message_that_is_no_join_is_closed_with_4400(standing_hub, first, code):
    client = standing_hub.connect()
    client.send(first)
    assert client.wait("error")["code"] == code
    assert client.closed() == 4400


def cut(frame):
    return frame[: len(frame) // 2]


def negative_step(frame):
    return frame[:16] + (-5).to_bytes(8, "little", signed=True) + frame[24:]


def of_another_stream(frame):
    return frame[:40] + b"scalars".ljust(24, b"\0") + frame[64:]


@pytest.mark.parametrize(
    "spoil", [cut, lambda frame: b"garbage" * 100, lambda frame: b"", negative_step, of_another_stream]
)
def test_a_bad_frame_of_a_producer_is_closed_with_4400_and_reaches_nobody(standing_hub, spoil):
    viewer = standing_hub.viewer(backlog=0)
    producer = standing_hub.producer()
    producer.send(spoil(tensors(1)))
    assert producer.wait("error")["code"] == "bad-frame"
    assert producer.closed() == 4400
    second = standing_hub.producer()
    second.send(tensors(2))
    assert [frame.step for frame in viewer.wait_frames(1)] == [2]


def test_a_frame_of_another_header_version_is_refused_by_name(standing_hub):
    producer = standing_hub.producer()
    frame = tensors(1)
    producer.send(frame[:4] + b"\x02\0" + frame[6:])
    assert producer.wait("error")["code"] == "version-mismatch"
    assert producer.closed() == 4400


def test_an_unknown_stream_is_skipped_and_said(hub):
    viewer = hub.viewer()
    producer = hub.producer()
    frame = scalars(1)
    producer.send(frame[:40] + b"sounds".ljust(24, b"\0") + frame[64:])
    producer.send(tensors(2))
    viewer.wait_frames(1)
    assert viewer.of("sounds") == []
    status = viewer.wait("status", lambda m: "warnings" in m)
    assert "sounds" in status["warnings"][0]


def test_a_viewer_that_sends_a_frame_is_closed_with_4403(standing_hub):
    viewer = standing_hub.viewer()
    viewer.send(tensors(1))
    assert viewer.wait("error")["code"] == "forbidden"
    assert viewer.closed() == 4403


@pytest.mark.parametrize("role", ["viewer", "producer"])
def test_a_message_that_the_role_may_not_send_is_closed_with_4403(standing_hub, role):
    client = standing_hub.viewer() if role == "viewer" else standing_hub.producer()
    client.send(announce() if role == "viewer" else {"type": "configure", "id": "1", "patch": {"flags": {}}})
    assert client.wait("error")["code"] == "forbidden"
    assert client.closed() == 4403


def test_a_viewers_message_that_is_too_large_is_closed_with_1009(standing_hub):
    viewer = standing_hub.viewer()
    viewer.send(json.dumps({"type": "goodbye", "reason": "leaving", "message": "x" * 1_100_000}))
    assert viewer.wait("error")["code"] == "too-large"
    assert viewer.closed() == 1009
    still_serves(standing_hub)


def test_a_producers_message_that_is_too_large_is_closed_with_1009(standing_hub):
    producer = standing_hub.producer()
    producer.socket.send(bytes(65 * 1024 * 1024))
    assert producer.closed() == 1009
    still_serves(standing_hub)


def test_a_producers_large_frame_is_taken(standing_hub):
    viewer = standing_hub.viewer(backlog=0)
    producer = standing_hub.producer()
    producer.send(tensors(1, layers=(1,), size=2_000_000))
    assert viewer.wait_frames(1)[0].table().column("values")[0].as_py()[-1] == 1.0


def test_a_bad_message_is_answered_and_the_connection_stays_until_the_tenth(standing_hub):
    viewer = standing_hub.viewer()
    for _ in range(9):
        viewer.send("{}")
        assert viewer.wait("error")["code"] == "bad-message"
    viewer.send({"type": "configure", "id": "c", "patch": {"flags": {}}})
    assert viewer.wait("error")["code"] == "no-producer"
    viewer.send("[")
    assert viewer.wait("error")["code"] == "bad-message"
    assert viewer.closed() == 4400


def test_bytes_that_are_no_websocket_disturb_nobody(standing_hub):
    for data in (b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", b"GET " + b"a" * 100_000):
        with socket.create_connection(
            (standing_hub.ready["host"], standing_hub.ready["port"]), timeout=WAIT
        ) as raw:
            raw.sendall(data)
    still_serves(standing_hub)


def test_half_a_websocket_message_disturbs_nobody(hub):
    producer = hub.producer()
    # The head of a masked binary message of 1,000 bytes, and ten of them.
    producer.socket.socket.sendall(b"\x82\xfe\x03\xe8\0\0\0\0" + b"MLNS" + bytes(6))
    producer.socket.socket.shutdown(socket.SHUT_RDWR)
    viewer = hub.viewer()
    assert viewer.wait("status", lambda m: m["producers"] == [])["state"] == "lost"
    still_serves(hub)


def test_an_empty_frame_is_passed_on(standing_hub):
    viewer = standing_hub.viewer(backlog=0)
    producer = standing_hub.producer()
    producer.send(encode_frame("tensors", stream_schema("tensors").empty_table(), step=3))
    assert viewer.wait_frames(1)[0].rows == 0


def test_goodbye_is_closed_with_1000(standing_hub):
    viewer = standing_hub.viewer()
    viewer.send({"type": "goodbye", "reason": "leaving"})
    assert viewer.closed() == 1000


def test_shutdown_says_goodbye_to_everybody_with_1001(hub):
    clients = [hub.viewer(), hub.producer(), hub.viewer()]
    assert hub.terminate() == 0
    for client in clients:
        assert client.wait("goodbye")["reason"] == "shutdown"
        assert client.closed() == 1001


def test_an_error_of_the_hubs_own_ends_neither_the_hub_nor_the_telling(monkeypatch, capsys):
    async def serve():
        hub, stop = Hub(HubOptions()), asyncio.Event()
        ticks = iter([RuntimeError("\x1bnobody foresaw it"), True, True])

        def tick(changed):
            came = next(ticks, None)
            if isinstance(came, Exception):
                raise came
            if came is None:
                stop.set()
            return bool(came)

        monkeypatch.setattr(hub.clients.broadcaster, "tick", tick)
        await hub.serve_until_done(stop)
        return hub.state.status()

    status = asyncio.run(serve())
    assert any("nobody foresaw it" in text and "\x1b" not in text for text in status["warnings"])
