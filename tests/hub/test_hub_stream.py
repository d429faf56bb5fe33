"""Frames from a producer through a real hub to viewers."""

from hub_process import announce, scalars, tensors


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
