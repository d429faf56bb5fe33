"""One cause gives one alarm; two causes give two, however near they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

import pytest
import torch

from megalens.instruments.monitor.actions import Action
from megalens.instruments.monitor.rule import Alarm, first_serious, reached
from megalens.instruments.monitor.watch import Causes
from tests.kit.monitor_faults.training import AT, Fault, Training

FIRST, OTHER = "blocks.0.mlp.fc1", "blocks.2.attention.qkv"
HOST = partial(Training, seed=103)


def one(step: int, what: str, name: str, place: int = 0, **more: Any) -> Alarm:
    """Return an alarm of a rule and statistic, such as ``"jump rms"``."""
    rule, statistic = what.split()
    stat = "scalar" if name in ("loss", "lr") else "activation" if "/" in name else "grad"
    severity = "critical" if rule in ("nonfinite", "replicas") else "warning"
    given = Alarm(step, rule, severity, "", stat, name, statistic, 1.0, direction="forward", place=place)
    return replace(given, **more)


def heads(*alarms: Alarm) -> list[tuple[int, str, str]]:
    """Return the alarms that are of their own, of steps in their order."""
    causes = Causes()
    steps = sorted({alarm.step for alarm in alarms})
    found = [
        each
        for step in steps
        for each in causes.take(
            sorted((alarm for alarm in alarms if alarm.step == step), key=lambda alarm: alarm.place)
        )
    ]
    assert all(each.follows for each in found if each.severity == "note")
    return [(each.step, each.rule, each.name) for each in found if each.severity != "note"]


def test_what_is_computed_of_a_wrong_value_follows_from_it():
    spike = one(9, "jump rms", f"{FIRST}/output0", 1)
    after = [
        one(9, "jump max_abs", f"{FIRST}/output0", 1),
        one(9, "jump rms", f"{OTHER}/input0", 2),
        one(9, "loss value", "loss", 3),
        one(10, "collapse rms", f"{FIRST}.weight", 1),
        one(18, "drift level", "blocks.1.norm.bias", 2),
    ]
    assert heads(spike, *after) == [(9, "jump", f"{FIRST}/output0")]


def test_a_change_of_the_data_is_told_once_whatever_moves_with_it():
    others = [one(9 + at, "drift level", f"blocks.{at % 3}.norm.bias", at) for at in (6, 9, 13, 21)]
    assert heads(one(9, "loss value", "loss"), one(16, "loss level", "loss"), *others) == [
        (9, "loss", "loss")
    ]


@pytest.mark.parametrize(
    "second",
    [
        one(17, "jump rms", f"{OTHER}/output0"),
        one(17, "dead rms", f"{OTHER}.weight"),
        one(17, "drift growth", f"{OTHER}.weight"),
        one(17, "dead gradient", f"{OTHER}.weight"),
        one(17, "optimizer state", f"{OTHER}.weight"),
        one(17, "nonfinite nan_count", f"{OTHER}/output0"),
        one(17, "loss rate", "lr"),
        one(17, "repeated difference", "inputs", stat="inputs"),
        # It is worse, in whatever place it is.
        one(17, "nonfinite nan_count", f"{FIRST}.weight"),
        # Found so late, it moved later than the first.
        one(9 + 13, "drift level", f"{OTHER}.weight"),
    ],
    ids=lambda alarm: f"{alarm.rule}-{alarm.statistic}",
)
@pytest.mark.parametrize("first", ["jump rms", "drift growth", "dead rms", "collapse rms"])
def test_another_fault_in_another_layer_is_an_alarm_of_its_own(first: str, second: Alarm):
    assert len(heads(one(9, first, f"{FIRST}.weight"), second)) == 2


def test_what_cannot_follow_within_a_step_does_not():
    here = one(9, "jump rms", f"{FIRST}/output0", 1, rank=0)
    # Another replica computes by itself, and evidence of its own needs no other.
    assert len(heads(here, one(9, "jump rms", f"{OTHER}/output0", 2, rank=1))) == 2
    assert len(heads(here, one(9, "optimizer state", f"{OTHER}.weight", 2, rank=0))) == 2
    # After the reduction all ranks have it, and the next stage of a pipeline is given it.
    assert len(heads(here, one(9, "jump rms", f"{OTHER}.weight", 2, rank=1, direction="reduction"))) == 1
    staged = replace(here, stage=0)
    assert len(heads(staged, one(9, "jump rms", f"{OTHER}/output0", 2, rank=1, stage=1))) == 1


def test_of_two_causes_each_has_what_followed_from_it():
    given = [
        one(9, "dead rms", f"{FIRST}.weight", 1),
        one(17, "jump rms", f"{OTHER}/output0", 1),
        one(17, "jump max_abs", f"{OTHER}/output0", 1),
    ]
    causes = Causes()
    found = [*causes.take(given[:1]), *causes.take(given[1:])]
    assert [each.cause for each in found] == [9, 17, 17]
    first = first_serious(found)
    assert first is found[0]
    assert reached(found, 20) == []
    assert reached(found[1:]) == []


def test_numbers_of_a_training_that_goes_on_are_others():
    before, after = Causes(), Causes()
    numbers = {each.cause for each in before.take([one(5, "jump rms", "a.w"), one(5, "loss rate", "lr")])}
    assert numbers.isdisjoint(each.cause for each in after.take([one(11, "jump rms", "a.w")]))


def test_what_follows_from_a_muted_alarm_is_told_by_itself():
    causes = Causes()
    (first,) = causes.take([one(9, "jump rms", "a.w")])
    assert causes.take([one(10, "collapse rms", "a.w")])[0].follows
    causes.mute(lambda alarm: alarm.rule == "jump")
    (after,) = causes.take([one(11, "drift level", "a.w")])
    assert not after.follows
    assert after.cause != first.cause


def test_an_action_that_names_a_rule_is_set_off_by_what_follows():
    causes = Causes()
    found = causes.take([one(9, "jump rms", "a.w", 1), one(9, "collapse rms", "b.w", 2)])
    assert Action(severity="warning", rules=("collapse",)).of(found) == found[1:]
    assert Action(severity="warning").of(found) == found[:1]


def told(reach: Callable[[Training, str], Any]) -> list[tuple[int, str]]:
    """Return the alarms of a real training, with steps counted from the fault."""
    torch.set_num_threads(1)
    training = HOST()
    *_, alarms = takewhile(lambda _: training.step <= AT + 30, training.run(Fault("", reach)))
    assert any(alarm.follows for alarm in alarms)
    return [(alarm.step - AT, alarm.name) for alarm in alarms if alarm.severity != "note"]


@pytest.mark.slow
def test_other_data_give_one_alarm():
    def random(training: Training, where: str) -> None:
        if where == "data" and training.step >= AT:
            training.ids = torch.randint(0, 256, training.ids.shape)

    assert told(random) == [(0, "loss")]


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.0, 10.0])
def test_two_weights_that_are_written_eight_steps_apart_give_two(factor: float):
    def written(training: Training, where: str) -> None:
        if where == "weights" and training.step in (AT, AT + 8):
            name = FIRST if training.step == AT else OTHER
            training.weight(f"{name}.weight").data.mul_(factor)

    # What follows long after is told again.
    assert told(written)[:2] == [(0, f"{FIRST}.weight"), (8, f"{OTHER}.weight")]
