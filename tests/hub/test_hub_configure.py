"""A change of what is traced: from a viewer over the hub to the producers and back to everybody."""

import json

from hub_process import announce
from test_control_check import TILE


def configure(patch, id="c1"):
    return {"type": "configure", "id": id, "patch": {"flags": patch}}


def configured(request, step, applied, config=None):
    return {
        "type": "configured",
        "id": request["id"],
        "applied": applied,
        "step": step,
        "config": {"flags": config or {k: v for k, v in request["patch"]["flags"].items() if v is not None}},
    }


def test_a_change_is_accepted_applied_told_to_all_and_audited(hub):
    asker, other = hub.viewer(name="panel"), hub.viewer(name="kernel")
    producer = hub.producer()
    asker.wait("hello")
    asker.send(configure({"HiddenStates": {"layers": "1-3", "compressor": TILE}}))
    request = producer.wait("configure")
    producer.send(configured(request, 5, False))
    producer.send(configured(request, 5, True))
    for viewer in (asker, other):
        first = viewer.wait("configured")
        second = viewer.wait("configured")
        assert (first["applied"], second["applied"]) == (False, True)
        assert second["step"] == 5
        assert second["by"]["name"] == "panel"
    assert asker.messages[-1]["id"] == "c1"
    assert other.messages[-1]["id"] != "c1"
    audit = [row for frame in asker.wait_frames(2, "audit") for row in frame.table().to_pylist()]
    assert [row["action"] for row in audit] == ["connect", "configure"]
    assert (audit[1]["who"], audit[1]["step"]) == ("panel", 5)
    assert json.loads(audit[1]["detail"])["patch"]["flags"]["HiddenStates"]["layers"] == "1-3"
    assert hub.viewer().hello["config"]["flags"]["HiddenStates"]["compressor"] == TILE


def test_what_the_hub_can_check_never_reaches_a_producer(hub):
    """What that is, test_control_check shows."""
    viewer, producer = hub.viewer(), hub.producer()
    viewer.wait("hello")
    viewer.send(configure({"Nothing": None}, "bad"))
    error = viewer.wait("error")
    assert (error["code"], error["field"], error["reply_to"]) == ("unknown-flag", "flags.Nothing", "bad")
    viewer.send(configure({"HiddenStates": None}, "good"))
    assert producer.wait("configure")["id"].endswith("good")


def test_a_malformed_configure_names_its_field_and_its_id(hub):
    viewer = hub.viewer()
    hub.producer()
    viewer.send(
        '{"type":"configure","id":"x","patch":{"flags":{"HiddenStates":{"every":0,"compressor":{"name":"Tile"}}}}}'
    )
    error = viewer.wait("error")
    assert (error["code"], error["field"], error["reply_to"]) == (
        "bad-message",
        "flags.HiddenStates.every",
        "x",
    )


CONFIGURABLE = {"monitor": {"title": "Rules", "schema": {"type": "object"}}}


def test_settings_of_an_instrument_are_applied_told_audited_and_recorded(hub):
    viewer = hub.viewer(name="panel")
    now = {"flags": {}, "instruments": {"monitor": {"muted": []}}}
    producer = hub.producer(configurable=CONFIGURABLE, config=now)
    assert viewer.wait("hello")["configurable"] == CONFIGURABLE
    patch = {"flags": {}, "instruments": {"monitor": {"muted": [{"rule": "dead"}]}}}
    viewer.send({"type": "configure", "id": "c1", "patch": patch})
    request = producer.wait("configure")
    assert request["patch"] == patch
    after = {"flags": {}, "instruments": patch["instruments"]}
    producer.send({"type": "configured", "id": request["id"], "applied": True, "step": 5, "config": after})
    assert viewer.wait("configured")["config"] == after
    assert hub.viewer().hello["config"] == after
    audit = [row for frame in viewer.wait_frames(2, "audit") for row in frame.table().to_pylist()]
    assert (audit[1]["who"], audit[1]["action"], audit[1]["step"]) == ("panel", "configure", 5)
    assert json.loads(audit[1]["detail"])["patch"] == patch


def test_without_a_producer_the_answer_is_no_producer(hub):
    viewer = hub.viewer()
    viewer.send(configure({}))
    error = viewer.wait("error")
    assert (error["code"], error["reply_to"]) == ("no-producer", "c1")


def test_a_producers_refusal_goes_to_the_viewer_that_asked_only(hub):
    asker, other, producer = hub.viewer(), hub.viewer(), hub.producer()
    asker.wait("hello")
    asker.send(
        configure({"HiddenStates": {"compressor": {"name": "Tile", "params": {"reduction": "mean("}}}})
    )
    request = producer.wait("configure")
    refusal = {"type": "error", "code": "bad-reduction", "message": "A bracket is open.", "column": 5}
    producer.send({**refusal, "reply_to": request["id"]})
    assert asker.wait("error") == {**refusal, "reply_to": "c1"}
    other.wait("status", lambda m: m["viewers"] == 2)
    assert [m for m in other.messages if m["type"] == "error"] == []


def test_two_viewers_with_the_same_id_do_not_meet(hub):
    one, two, producer = hub.viewer(name="one"), hub.viewer(name="two"), hub.producer()
    for viewer in (one, two):
        viewer.wait("hello")
        viewer.send(configure({"HiddenStates": None}, "same"))
    requests = [producer.wait("configure"), producer.wait("configure")]
    assert requests[0]["id"] != requests[1]["id"]
    for step, request in enumerate(requests, 10):
        producer.send(configured(request, step, False))
        producer.send(configured(request, step, True))
    by = {}
    for viewer in (one, two):
        got = [viewer.wait("configured", lambda m: m["applied"]) for _ in requests]
        by[viewer] = {m["by"]["name"] for m in got if m["id"] == "same"}
        assert len({m["id"] for m in got}) == 2
    assert by == {one: {"one"}, two: {"two"}}


def test_with_two_ranks_the_latest_step_counts_once_both_have_answered(hub):
    viewer = hub.viewer()
    ranks = [hub.producer(0), hub.producer(1)]
    viewer.wait("status", lambda m: m["producers"] == [0, 1])
    viewer.send(configure({"HiddenStates": None}))
    for step, rank in zip((7, 9), ranks, strict=True):
        request = rank.wait("configure")
        rank.send(configured(request, step, False))
        rank.send(configured(request, step, True))
    answers = [viewer.wait("configured"), viewer.wait("configured")]
    assert [(m["applied"], m["step"]) for m in answers] == [(False, 9), (True, 9)]


def test_a_producer_that_goes_before_it_answers_is_said(hub):
    viewer, producer = hub.viewer(), hub.producer()
    viewer.wait("hello")
    viewer.send(configure({"HiddenStates": None}))
    producer.wait("configure")
    producer.close()
    error = viewer.wait("error")
    assert (error["code"], error["reply_to"]) == ("no-producer", "c1")


def test_a_change_that_the_training_script_makes_is_told_and_audited(hub):
    viewer, producer = hub.viewer(), hub.producer()
    producer.send(
        configured({"id": "local", "patch": {"flags": {}}}, 4, True, {"HiddenStates": {"compressor": TILE}})
    )
    told = viewer.wait("configured")
    assert told["by"]["name"] == "tracer-0"
    assert told["config"]["flags"]["HiddenStates"]["compressor"] == TILE
    assert viewer.wait_frames(2, "audit")[-1].table().to_pylist()[0]["action"] == "configure"


def test_a_second_announcement_replaces_the_first(hub):
    viewer, producer = hub.viewer(), hub.producer()
    viewer.wait("hello")
    producer.send(announce(layers=(1,)))
    assert viewer.wait("hello")["flags"][0]["layers"] == [1]


def test_a_tracer_that_announces_more_has_not_connected_again(hub):
    viewer, producer = hub.viewer(), hub.producer()
    viewer.wait("hello")
    producer.send(announce())
    audit = [row for frame in viewer.wait_frames(2, "audit") for row in frame.table().to_pylist()]
    assert [row["action"] for row in audit] == ["connect", "announce"]
