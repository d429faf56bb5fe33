"""Nothing that a viewer asks for, and nothing that an instrument or a model does with it, ends the producer thread, the tracing or the training."""

from dataclasses import replace

import pytest
import torch
from tracing_fixtures import hooks

from megalens import Tile
from megalens.protocol import check_message
from megalens.tracer import coordinator as coordinator_module
from megalens.tracer.errors import describe_error, plain_text
from megalens.tracer.health import ProducerHealth
from megalens.tracer.instrument import Instrument
from megalens.tracer.job import Recovery
from megalens.tracer.sending.peers import Schedule, StepStart
from megalens.tracer.tensors.plan import TracingPlan

TILE_2 = {"compressor": {"name": "Tile", "params": {"tiles": 2}}}
TILE_4 = {"compressor": {"name": "Tile", "params": {"tiles": 4}}}


def ask(hub, patch, who="viewer:1"):
    hub.send({"type": "configure", "id": who, "patch": patch})


def step(tracer, gpt, ids):
    with tracer.step():
        return gpt(ids)


def compressors(hub, count=2):
    return {row["compressor"] for row in hub.next_rows(count)}


@pytest.mark.parametrize(
    "error", [KeyError("x"), RecursionError(), MemoryError(), RuntimeError("a\ud800b")], ids=repr
)
def test_an_unforeseen_error_of_a_change_is_answered_counted_and_ends_nothing(
    gpt, ids, traced, small_hub, monkeypatch, error
) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": TILE_2})
    small_hub.next("announce")
    right = coordinator_module.change_plan

    def wrong(*args, **options):
        raise error

    monkeypatch.setattr(coordinator_module, "change_plan", wrong)
    ask(small_hub, {"flags": {"MLP1_mat_mul": TILE_4}})
    answer = small_hub.next("error")
    assert (answer["code"], answer["reply_to"]) == ("internal", "viewer:1")
    assert type(error).__name__ in answer["message"]
    status = tracer.status()
    check_message(status)
    assert "1 errors of the tracer's own were caught so far." in status["warnings"]
    step(tracer, gpt, ids)
    assert compressors(small_hub) == {"Tile(tiles=2, reduction='mean')"}
    monkeypatch.setattr(coordinator_module, "change_plan", right)
    ask(small_hub, {"flags": {"MLP1_mat_mul": TILE_4}})
    assert small_hub.next("configured")["step"] == 2
    step(tracer, gpt, ids)
    assert compressors(small_hub) == {"Tile(tiles=4, reduction='mean')"}


def refuses(*args, **options):
    raise TypeError("no hooks here")


def test_a_change_that_the_model_does_not_take_is_answered_and_what_was_in_force_goes_on(
    gpt, ids, traced, small_hub, monkeypatch
) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": TILE_2})
    expected = step(tracer, gpt, ids)
    small_hub.next_rows(2)
    before = hooks(gpt)
    last = tracer.points.flags["MLP2_mat_mul"].layers[1][0].module
    monkeypatch.setattr(last, "register_forward_hook", refuses, raising=False)
    ask(small_hub, {"flags": {"MLP1_mat_mul": None, "MLP2_mat_mul": TILE_4}})
    assert not small_hub.next("configured")["applied"]
    found = step(tracer, gpt, ids)
    answer = small_hub.next("error")
    assert (answer["code"], answer["reply_to"]) == ("internal", "viewer:1")
    assert "no hooks here" in answer["message"]
    assert torch.equal(found, expected)
    assert compressors(small_hub) == {"Tile(tiles=2, reduction='mean')"}
    assert hooks(gpt) == before
    assert small_hub.next("announce")["config"] == tracer.config
    assert list(tracer.config["flags"]) == ["MLP1_mat_mul"]


def test_a_model_that_takes_no_hooks_any_more_is_left_as_it_is(gpt, ids, traced, monkeypatch) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": TILE_2})
    monkeypatch.setattr(torch.nn.Module, "register_forward_hook", refuses)
    tracer.configure({"MLP2_mat_mul": Tile(4)})
    step(tracer, gpt, ids)
    assert (hooks(gpt), tracer.config["flags"]) == (0, {})
    assert tracer._coordinator.worker.health.failures == 2
    tracer.close()
    assert hooks(gpt) == 0


class Odd(Instrument):
    """Fills messages with what is none."""

    def __init__(self, name: str, filled) -> None:
        self.name, self._filled = name, filled

    def report(self, status) -> None:
        status["state"] = "gone"
        status.setdefault("instruments", {})[self.name] = self._filled

    def describe(self, announce) -> None:
        announce.clear()

    def take_ns(self) -> int:
        raise ValueError(self._filled)

    def received(self, rank, meta, payload) -> None:
        raise KeyError(self._filled)


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("filled", [float("nan"), {"a": object()}, {"b": "\ud800"}, [10**5000], [Wordless()]])
def test_what_an_instrument_says_of_itself_spoils_no_message(gpt, ids, traced, small_hub, filled) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": TILE_2}, instruments=[Odd("odd", filled)])
    # The first one may come before the timeline is attached, and is followed by another.
    while small_hub.next("announce")["config"] != tracer.config:
        pass
    status = small_hub.next("status")
    assert "odd" not in status.get("instruments", {})
    assert any("odd failed" in text for text in tracer.status()["warnings"])
    tracer._coordinator.instruments.received(1, "odd", {}, memoryview(b""))
    step(tracer, gpt, ids)
    small_hub.next_rows(2)


def test_a_task_or_a_number_of_any_kind_ends_no_thread(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": TILE_2})
    worker = tracer._coordinator.worker
    worker.task(refuses, 10)
    tracer.log(**{"\ud800": 1.0, "large": 10**400, "text": "x", "loss": 2.5})
    tracer.warn("half \ud800 " * 100)
    step(tracer, gpt, ids)
    assert {row["name"]: row["value"] for row in small_hub.next_scalars(2)} == {"?": 1.0, "loss": 2.5}
    small_hub.next_rows(2)
    assert worker.alive
    assert worker._taken_bytes == worker._put_bytes
    assert worker.health.failures == 1
    check_message(tracer.status())
    tracer.close()
    assert small_hub.next("goodbye")["reason"] == "finished"


class Failing:
    """A gatherer that cannot send."""

    waiting, done, asked = True, False, 0

    def send_ready(self, *, everything=False) -> None:
        self.asked += 1
        raise KeyError("rows")


def test_what_cannot_be_gathered_holds_nothing_else_up(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": TILE_2})
    worker, failing = tracer._coordinator.worker, Failing()
    worker.gather(failing)
    for _ in range(2):
        step(tracer, gpt, ids)
        small_hub.next_rows(2)
    assert failing.asked > 0
    assert worker.health.failures > 0
    tracer.close()
    assert small_hub.next("goodbye")["reason"] == "finished"


def test_errors_are_told_as_texts_that_every_message_can_carry() -> None:
    assert describe_error(Wordless()) == "Wordless"
    assert describe_error(KeyError("\udfff")) == "KeyError: '\\udfff'"
    assert len(plain_text("\ud800" * 10_000)) == 500
    health = ProducerHealth()
    for _ in range(30):
        health.failed("A change", Wordless())
    assert health.status()["warnings"][-1] == "30 errors of the tracer's own were caught so far."


class Follower:
    """What takes plans, but those that hold a budget above 5."""

    def __init__(self) -> None:
        self.plan = TracingPlan()

    def follow(self, plan, version=0) -> None:
        if (plan.budget or 0) > 5:
            raise TypeError("too much")
        self.plan = plan


def test_a_job_goes_back_to_the_settings_before_once_and_then_to_none() -> None:
    def change(plan, patch):
        return replace(plan, budget=patch["budget"])

    schedule = Schedule(TracingPlan(budget=1.0), change)
    failures: list[str] = []
    recovery = Recovery(lambda: schedule, Follower(), lambda what, error: failures.append(what))

    def asked(versions):
        patches = []
        recovery.ask(versions, patches.append)
        return patches[0] if patches else None

    assert asked([0, 0]) is None
    schedule.decide([{"budget": 9.0}], ["a"])
    start = schedule.at(1)
    recovery.go_back(start, TracingPlan(budget=1.0), TypeError("too much"), alone=False)
    assert (recovery.version, recovery._tensors.plan, failures) == (1, TracingPlan(), ["A change"])
    assert asked([0]) is None
    patch = asked([0, 1])
    assert patch["budget"] == 1.0
    assert asked([0, 1]) is None, "asked once"
    schedule.decide([patch], [""])
    assert asked([0, 2])["budget"] is None, "what could not be gone back to is switched off"
    schedule.decide([{"budget": 2.0}], ["b"])
    assert asked([0, 2]) is None, "an older change is no matter"


def test_a_process_alone_goes_back_at_once() -> None:
    before = TracingPlan(budget=1.0)
    schedule = Schedule(before, lambda plan, patch: replace(plan, budget=patch["budget"]))
    schedule.decide([{"budget": 9.0}], ["a"])
    start = schedule.at(1)
    assert isinstance(start, StepStart)
    follower = Follower()
    Recovery(lambda: schedule, follower, lambda what, error: None).go_back(
        start, before, TypeError(), alone=True
    )
    assert follower.plan is schedule.accepted is before
    schedule.decide([{"budget": 2.0}], ["b"])
    assert schedule.at(2).plan.budget == 2.0
