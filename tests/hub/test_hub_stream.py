"""Frames from a producer through a real hub to viewers."""

from hub_process import announce, scalars, tensors

from megalens.protocol import decode_frame


def test_a_frame_reaches_every_viewer_with_the_runs_sequence_number(hub):
    viewers = [hub.viewer(), hub.viewer()]
    producer = hub.producer()
    for step in (1, 2, 3):
        producer.send(tensors(step))
        producer.send(scalars(step))
    for viewer in viewers:
        viewer.wait_frames(3, "tensors")
        viewer.wait_frames(3, "scalars")
        assert [frame.seq for frame in viewer.frames] == list(range(1, len(viewer.frames) + 1))
        assert [frame.step for frame in viewer.of("tensors")] == [1, 2, 3]
        assert {frame.bits for frame in viewer.of("tensors")} == {0}


def test_an_announcement_gives_every_viewer_a_fresh_hello(hub):
    viewer = hub.viewer()
    assert viewer.hello["model"] is None
    assert viewer.hello["flags"] == []
    hub.producer()
    fresh = viewer.wait("hello")
    assert fresh["run"]["name"] == "gpt-demo"
    assert [flag["name"] for flag in fresh["flags"]] == [flag["name"] for flag in announce()["flags"]]
    assert fresh["versions"]["torch"] == "2.9"


def test_ranks_with_other_layers_make_one_list_of_flags(hub):
    viewer = hub.viewer()
    hub.producer(0, layers=(1, 2))
    hub.producer(1, layers=(3, 4))
    hello = viewer.wait("hello", lambda m: len(m["flags"]) and len(m["flags"][0]["layers"]) == 4)
    assert hello["flags"][0]["layers"] == [1, 2, 3, 4]
    status = viewer.wait("status", lambda m: len(m["producers"]) == 2)
    assert status["producers"] == [0, 1]


def test_frames_and_messages_of_one_producer_keep_their_order(hub):
    """Frames are taken where they are read, and messages in a task of their own: neither may overtake the other."""
    viewer, producer = hub.viewer(), hub.producer()
    config = {"flags": {}}
    for step in range(1, 41):
        producer.send(tensors(step))
        answer = {"type": "configured", "id": f"own-{step}", "applied": True, "step": step, "config": config}
        producer.send(answer)
    told = []
    while len(told) < 80:
        got = viewer.read()
        if isinstance(got, dict):
            told += [got["step"]] if got["type"] == "configured" and got["applied"] else []
        elif got.stream == "tensors":
            told.append(got.step)
    assert told == [step for step in range(1, 41) for _ in ("frame", "message")]


def test_frames_before_a_bad_one_arrive_and_none_after_it(hub):
    viewer, producer = hub.viewer(), hub.producer()
    good = [tensors(step) for step in range(1, 31)]
    bad = bytearray(tensors(31))
    # An offset of the text of the first column that has one, which numbers alone never are.
    at = bytes(bad).index(b"train") - 16
    bad[at : at + 16] = b"\xff" * 16
    for data in (*good, bytes(bad), tensors(32)):
        producer.send(data)
    assert producer.wait("error")["code"] == "bad-frame"
    assert producer.closed() == 4400
    viewer.wait("status", lambda m: not m["producers"] and m["step"] == 30)
    assert [frame.step for frame in viewer.of("tensors")] == list(range(1, 31))


def test_frames_of_every_size_arrive_byte_for_byte(hub):
    """The head of a WebSocket message has three forms, and a large body is sent in parts."""
    viewer, producer = hub.viewer(), hub.producer()
    sizes = (1, 10, 7_000, 8_000, 100_000, 700_000, 3)
    sent = [tensors(step, size=size) for step, size in enumerate(sizes, 1)]
    for data in sent:
        producer.send(data)
    for frame, data in zip(viewer.wait_frames(len(sizes)), sent, strict=True):
        assert bytes(frame.body) == data[64:]
        assert frame.step == decode_frame(data).step
