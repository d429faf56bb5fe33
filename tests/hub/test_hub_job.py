"""A job of several processes at one hub: who answers for whom, what viewers are told of all of them, and a second job at the door."""

import json
import time

import pytest
from hub_process import announce, scalars, tensors
from test_control_check import NOISE, TILE

pytestmark = pytest.mark.slow

LAYOUT = {"world_size": 4, "tp": 2, "pp": 2, "dp": 1}
PLACES = [{"rank": rank, "tp": rank % 2, "pp": rank // 2, "dp": 0, "host": "node-1"} for rank in range(4)]


def site(layers):
    return {"name": "system", "title": "Between layers", "layers": layers, "kinds": [NOISE]}


def stages(hub, **changes):
    """Return two pipeline stages of one job; rank 0 leads, ranks 1 and 3 speak through them."""
    layout = {**LAYOUT, "ranks": PLACES}
    first = hub.producer(0, layers=(1, 2), layout=layout, sites=[site([1, 2])], **changes)
    second = hub.producer(2, layers=(3, 4), layout=LAYOUT, sites=[site([3, 4])], leader=0)
    return first, second


def status(step, state="training", **more):
    return {"type": "status", "state": state, "step": step, **more}


def configure(id="c1", flags=None, **more):
    return {"type": "configure", "id": id, "patch": {"flags": flags or {}, **more}}


def answer(request, step, config, applied=True):
    return {"type": "configured", "id": request["id"], "applied": applied, "step": step, "config": config}


def rank_states(message):
    return {entry["rank"]: entry["state"] for entry in message.get("ranks", ())}


def audit_rows(viewer, count):
    """Return the rows of ``audit`` so far, without who came and went, once there are ``count``."""
    while True:
        rows = [row for frame in viewer.of("audit") for row in frame.table().to_pylist()]
        rows = [row for row in rows if row["action"] not in ("connect", "announce", "disconnect")]
        if len(rows) >= count:
            return rows
        viewer.read()


def test_hello_shows_the_job_as_one(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path)
    viewer = hub.viewer()
    origin = {"kind": "replay", "steps": "counted"}
    stages(hub, controls=["perturb", "pause"], origin=origin)
    hello = viewer.wait("hello", lambda m: m["flags"] and m["flags"][0]["layers"] == [1, 2, 3, 4])
    assert hello["layout"]["ranks"] == PLACES
    assert hello["sites"] == [site([1, 2, 3, 4])]
    assert (hello["controls"], hello["origin"]) == (["perturb", "pause"], origin)
    end = time.monotonic() + 60
    while "sites" not in json.loads((hub.record / "run.json").read_text()):
        assert time.monotonic() < end
    run = json.loads((hub.record / "run.json").read_text())
    assert {name: run[name] for name in ("controls", "origin", "layout")} == {
        name: hello[name] for name in ("controls", "origin", "layout")
    }


def test_only_the_leader_is_asked_and_answers_for_all(hub):
    viewer = hub.viewer()
    first, second = stages(hub)
    viewer.wait("status", lambda m: m["producers"] == [0, 2])
    viewer.send(configure(flags={"HiddenStates": {"layers": "2-3", "compressor": TILE}}))
    request = first.wait("configure")
    config = {"flags": request["patch"]["flags"]}
    # What another process says of it is nobody's answer.
    second.send(answer(request, 99, config))
    first.send(answer(request, 7, config, applied=False))
    first.send(answer(request, 7, config))
    told = [viewer.wait("configured"), viewer.wait("configured")]
    assert [(m["applied"], m["step"]) for m in told] == [(False, 7), (True, 7)]
    assert [row["action"] for row in audit_rows(viewer, 1)] == ["configure"]
    first.close()
    viewer.wait("status", lambda m: m["producers"] == [2])
    viewer.send(configure("c2"))
    error = viewer.wait("error")
    assert (error["code"], error["reply_to"]) == ("no-producer", "c2")
    assert "Rank 0 (tp 0, pp 0) on node-1" in error["message"]
    second.send({"type": "goodbye", "reason": "finished"})
    second.closed()
    assert [m["type"] for m in second.messages if m["type"] == "configure"] == []


def test_what_does_more_than_look_is_passed_on_and_audited(hub):
    viewer = hub.viewer()
    first, _ = stages(hub, controls=["perturb", "pause"])
    viewer.wait("hello", lambda m: m.get("sites") == [site([1, 2, 3, 4])])

    def perturb(**more):
        kind = {"name": "noise1", "params": {"coefficient": 0.1}}
        return {"sites": {"system": {"kind": kind, "layers": "3-4"}}, **more}

    armed = {"flags": {}, "perturb": perturb(seed=7, until=60)}
    steps = [
        ({"perturb": perturb(seed=7)}, armed),
        ({"mode": {"paused": True}}, {**armed, "mode": {"paused": True}}),
        ({"mode": {"steps": 3}}, {**armed, "mode": {"paused": True}}),
        ({"mode": {"paused": False}}, armed),
        ({"budget": 1}, {**armed, "budget": 1}),
    ]
    for number, (patch, config) in enumerate(steps):
        viewer.send(configure(f"c{number}", **patch))
        request = first.wait("configure")
        assert request["patch"] == {"flags": {}, **patch}
        first.send(answer(request, 10 + number, config))
        viewer.wait("configured", lambda m: m["applied"])
    assert hub.viewer().hello["config"] == {**armed, "budget": 1}
    # The perturbation ends by itself.
    first.send(answer({"id": "expired"}, 61, {"flags": {}, "budget": 1}))
    rows = audit_rows(viewer, 6)
    assert [row["action"] for row in rows] == ["perturb", "pause", "step", "resume", "budget", "disarm"]
    assert [row["step"] for row in rows] == [10, 11, 12, 13, 14, 61]
    assert [row["who"] for row in rows] == ["panel"] * 5 + ["tracer-0"]
    assert json.loads(rows[0]["detail"])["patch"]["perturb"]["seed"] == 7


def test_what_the_script_does_not_allow_says_how_to_allow_it(hub):
    viewer = hub.viewer()
    hub.producer()
    viewer.wait("hello")
    for patch, control in (({"mode": {"paused": True}}, "pause"), ({"perturb": None}, "perturb")):
        viewer.send(configure(**patch))
        error = viewer.wait("error")
        assert (error["code"], error["reply_to"]) == ("refused", "c1")
        assert f"'{control}' in allow=" in error["message"]


def test_figures_and_states_of_all_processes_come_together(hub):
    viewer = hub.viewer()
    first, second = stages(hub)
    budget = {"limit": 1.0, "state": "inside", "gave_up": []}
    told = [
        {"rank": 1, "name": "rank 1 (tp 1, pp 0) on node-1", "state": "training", "step": 4, "seconds": 0.1},
        {"rank": 3, "state": "silent", "step": 3, "seconds": 9.0},
    ]
    first.send(status(4, ranks=told, budget=budget, perturbed_steps=2, armed_steps=1, left_out_passes=7))
    for step in (3, 4, 5):
        for producer, size in ((first, 8), (second, 16)):
            producer.send(tensors(step, size=size))
    now = viewer.wait("status", lambda m: m["step"] == 5 and len(m["ranks"]) == 4)
    assert rank_states(now) == {0: "training", 1: "training", 2: "training", 3: "silent"}
    assert now["ranks"][3]["name"] == "rank 3 (tp 1, pp 1) on node-1"
    assert any("rank 3 (tp 1, pp 1) on node-1" in text for text in now["warnings"])
    assert (now["budget"], now["perturbed_steps"], now["armed_steps"]) == (budget, 2, 1)
    assert now["left_out_passes"] == 7
    assert now["bytes_per_step"] == len(tensors(4, size=8)) + len(tensors(4, size=16))
    first.send(status(5, "paused"))
    assert viewer.wait("status", lambda m: m["state"] == "paused")["ranks"][0]["state"] == "paused"
    first.send(status(5, dropped={"producer": 7, "viewer": 0, "recorder": 0}))
    first.close()
    lost = viewer.wait("status", lambda m: m["producers"] == [2])
    assert rank_states(lost)[0] == "lost"
    # The process that comes back counts from 0; what the one before it gave up stays given up.
    back = hub.producer(0, layout=LAYOUT)
    back.send(status(6, dropped={"producer": 2, "viewer": 0, "recorder": 0}))
    assert viewer.wait("status", lambda m: m["step"] == 6)["dropped"]["producer"] == 9


def test_a_process_that_falls_silent_is_named(hub):
    viewer = hub.viewer()
    first, second = stages(hub)
    first.send(status(1))
    viewer.wait("status", lambda m: rank_states(m) == {0: "training", 2: "idle"})
    stopped = time.monotonic()
    while True:
        # Rank 2 goes on as a tracer does, whose status comes every second; on a busy machine it may be late.
        second.send(status(1))
        message = viewer.wait("status", lambda m: True)
        if [each == "silent" for each in rank_states(message).values()] == [True, False]:
            break
        assert time.monotonic() - stopped < 60
    entry = message["ranks"][0]
    assert entry["name"] == "rank 0 (tp 0, pp 0) on node-1"
    # When it is named, test_hub_numbers tells by a clock of its own.
    assert entry["seconds"] >= 2.0
    first.send(status(2))
    viewer.wait("status", lambda m: rank_states(m)[0] == "training")


def test_the_leader_is_told_how_many_watch(hub):
    first, second = stages(hub)
    assert first.wait("status")["viewers"] == 0
    viewer = hub.viewer()
    assert first.wait("status", lambda m: m["viewers"] > 0)["viewers"] == 1
    viewer.close()
    assert first.wait("status", lambda m: m["viewers"] == 0)
    # It comes without a change too: whoever waits for viewers learns that the hub is there.
    first.wait("status")
    second.send({"type": "goodbye", "reason": "finished"})
    second.closed()
    assert [m for m in second.messages if m["type"] == "status"] == []


def test_a_second_job_is_refused_and_the_first_goes_on(hub):
    viewer = hub.viewer()
    first, _ = stages(hub)
    viewer.wait("status", lambda m: m["producers"] == [0, 2])
    model = {"name": "llama", "layers": 32}
    for rank, changes in (
        (0, {"layout": {**LAYOUT, "world_size": 8, "dp": 2}}),
        (1, {"layout": {"world_size": 2, "tp": 2, "pp": 1, "dp": 1}}),
        (0, {"layout": LAYOUT, "model": model}),
        (0, {"layout": LAYOUT}),
    ):
        other = hub.producer(rank, **changes)
        error = other.wait("error")
        assert (error["code"], error["field"]) == ("refused", "rank")
        assert other.closed() == 4409
    first.send(scalars(3))
    assert viewer.wait("status", lambda m: m["step"] == 3)["producers"] == [0, 2]
    assert hub.viewer().hello["model"] == announce()["model"]
    # A rank of the same job with another model is taken, and said.
    hub.producer(1, layout=LAYOUT, model=model)
    warnings = viewer.wait("status", lambda m: 1 in m["producers"])["warnings"]
    assert any("Rank 1 announces llama of 32 layers and rank 0 gpt" in text for text in warnings)


def test_the_same_job_comes_back_after_a_loss_and_another_one_after_its_end(hub):
    viewer = hub.viewer()
    first = hub.producer(0)
    first.send(tensors(50))
    viewer.wait("status", lambda m: m["step"] == 50)
    first.close()
    viewer.wait("status", lambda m: m["state"] == "lost")
    back = hub.producer(0, layers=(1,))
    viewer.wait("hello", lambda m: m["flags"][0]["layers"] == [1])
    # From a checkpoint.
    back.send(tensors(40, layers=(1,)))
    viewer.wait("status", lambda m: m["step"] == 40 and m["state"] == "training")
    back.send({"type": "goodbye", "reason": "finished"})
    back.closed()
    hub.producer(0, model={"name": "llama", "layers": 32}, layout=LAYOUT)
    viewer.wait("hello", lambda m: m["model"]["name"] == "llama")


@pytest.mark.parametrize("member", ["flags", "sites"])
def test_what_no_picker_could_show_is_refused(hub, member):
    base = announce()["flags"][0] if member == "flags" else site([1])
    viewer = hub.viewer()
    for entries, field in (
        ([base] * 10_000, member),
        ([{**base, "layers": [1, 2**40]}], f"{member}.0.layers.1"),
    ):
        producer = hub.producer(0, **{member: entries})
        error = producer.wait("error")
        assert (error["code"], error["field"]) == ("bad-message", field)
        # The connection stays, as after any bad message.
        producer.send(announce())
        viewer.wait("hello", lambda m: m["flags"])
        producer.send({"type": "goodbye", "reason": "finished"})
        producer.closed()


def test_a_viewer_that_changes_all_the_time_holds_nobody_up(start_hub):
    hub = start_hub()
    busy, other = hub.viewer(name="busy"), hub.viewer()
    producer = hub.producer()
    busy.wait("hello")
    for number in range(1000):
        busy.send(configure(f"n{number}", {"HiddenStates": {"every": number + 1, "compressor": TILE}}))
    other.send(configure("mine"))
    mine = producer.wait("configure", lambda m: m["id"].endswith(":mine"))
    asked = [m for m in producer.messages if m["type"] == "configure"]
    for request in asked:
        producer.send(answer(request, 1, {"flags": {}}))
    assert other.wait("configured", lambda m: m["applied"] and m["id"] == "mine")
    refusals = [busy.wait("error") for _ in range(1000 - 60)]
    assert {error["code"] for error in refusals} == {"refused"}
    assert all("Wait for an answer" in error["message"] for error in refusals)
    assert mine["patch"] == {"flags": {}}
    assert len(audit_rows(other, 1)) < 100


def test_a_producer_that_reads_nothing_holds_nobody_up(hub):
    stuck = hub.connect(max_queue=1, sock=hub.small_socket())
    stuck.send(
        {"type": "join", "protocol": "megalens.v2", "role": "producer", "peer": {"name": "x", "version": "0"}}
    )
    stuck.wait("hello")
    stuck.send(announce())
    viewer = hub.viewer()
    viewer.wait("status", lambda m: m["producers"] == [0])
    flags = {f"{'HiddenStates'}": {"compressor": {"name": "Tile", "params": {"reduction": "x" * 500}}}}
    for number in range(5):
        viewer.send(configure(f"c{number}", flags))
    viewer.wait("status")
    assert hub.viewer().hello["model"]["name"] == "gpt"
