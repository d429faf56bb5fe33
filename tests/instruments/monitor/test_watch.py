"""The watch: rules of others, what fails, what is too many, and settings."""

from __future__ import annotations

import sys
from dataclasses import asdict

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from judging import NAMES, judged, readings, step, tensors

from megalens.instruments.monitor.rule import Alarm
from megalens.instruments.monitor.rules import RULES
from megalens.instruments.monitor.settings import WatchSettings, installed_rules, read_rules
from megalens.instruments.monitor.watch import MOST_ALARMS, Watch
from megalens.protocol import ProtocolError
from scripts.rules_page import PAGE, page


def too_large(now, history):
    """Raise an alarm where a loss is above all before."""
    before = [each.scalars["loss"] for each in history]
    if before and now.scalars["loss"] > max(before):
        yield Alarm(
            now.step, "too_large", "warning", "It rose.", "scalar", "loss", "value", now.scalars["loss"]
        )


def test_a_rule_of_ones_own_sees_the_steps_before_and_its_alarms_are_placed():
    steps = [step(at, loss=loss) for at, loss in enumerate([3.0, 2.0, 3.1], 1)]
    (alarm,) = judged(steps, own={"too_large": too_large})
    assert (alarm.step, alarm.direction, alarm.value) == (3, "loss", 3.1)
    assert 0 < alarm.place < 1 << 53
    off = WatchSettings.of({"rules": {"too_large": {"on": False}}}, ("too_large",))
    assert judged(steps, off, own={"too_large": too_large}) == []


def test_a_rule_that_fails_is_said_once_and_the_others_judge():
    def broken(now, history):
        raise KeyError("no such thing")

    said = []
    values = tensors(np.random.default_rng(0))
    values[NAMES[0]][0] = np.nan
    steps = [step(at, readings("grad", values)) for at in range(1, 4)]
    assert [alarm.rule for alarm in judged(steps, own={"broken": broken}, warn=said.append)] == ["nonfinite"]
    assert said == ["The rule broken failed and was left out: KeyError: 'no such thing'"]


def test_rules_of_installed_packages_are_found_by_their_entry_point(tmp_path, monkeypatch):
    (tmp_path / "rising.py").write_text("def rising(now, history):\n    return ()\n")
    info = tmp_path / "rising-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rising\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[megalens.rules]\nrising = rising:rising\njump = rising:rising\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    # Its name is taken by a rule of ours.
    assert [*installed_rules()] == ["rising", "jump_2"]
    _, own = read_rules(too_large)
    assert [*own] == ["rising", "jump_2", "too_large"]
    (info / "entry_points.txt").write_text("[megalens.rules]\nrising = rising:nothing\n")
    with pytest.raises(
        ProtocolError, match="The rule rising of the package rising:nothing could not be loaded"
    ):
        installed_rules()
    sys.modules.pop("rising", None)


def test_of_very_many_alarms_the_first_are_given_and_the_rest_counted():
    names = tuple(f"layers.{at}.weight" for at in range(MOST_ALARMS + 500))
    rows = readings("grad", {names[0]: [np.nan]}).rows.repeat(len(names), axis=0)
    given = readings("grad", {names[0]: [np.nan]})
    many = type(given)("grad", 0, names, rows)
    alarms = Watch().judge(step(1, many))
    assert len(alarms) == MOST_ALARMS
    last = alarms[-1]
    assert (last.rule, last.severity, last.value) == ("more", "note", 501.0)
    # The backward pass runs from the last layer to the first.
    assert alarms[0].name == names[-1]


def test_names_that_change_keep_the_levels_of_those_that_stay():
    rng = np.random.default_rng(0)
    steps = [step(at, readings("activation", tensors(rng))) for at in range(1, 20)]
    fewer = tensors(rng, names=NAMES[2:])
    fewer[NAMES[3]] = fewer[NAMES[3]] * 100
    alarms = judged([*steps, step(20, readings("activation", fewer))])
    assert {(alarm.rule, alarm.name) for alarm in alarms if alarm.name != "*"} >= {("jump", NAMES[3])}


@pytest.mark.slow
def test_names_that_come_and_go_take_no_more_memory_each_time():
    rng = np.random.default_rng(0)
    watch = Watch()
    sizes = []
    for at in range(1, 300):
        watch.judge(step(at, readings("activation", tensors(rng, names=rng.permutation(NAMES)[:5], size=4))))
        sizes.append(len(watch.series))
    assert sizes[50] == sizes[-1] == len(NAMES) + 1


def test_settings_are_checked_and_say_every_parameter():
    checked = Draft202012Validator(WatchSettings.schema())
    settings = WatchSettings.of(
        {"rules": {"jump": {"threshold": 12, "on": False}}, "muted": [{"rule": "dead"}]}
    )
    told = settings.to_message()
    assert checked.is_valid(told)
    assert (told["rules"]["jump"]["on"], told["rules"]["jump"]["threshold"]) == (False, 12.0)
    assert WatchSettings.of(told) == WatchSettings.of(WatchSettings.of(told).to_message())
    assert {*told["rules"]} == {*RULES}


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        (3, "instruments.monitor", "must be an object"),
        ({"rule": {}}, "instruments.monitor.rule", "There is no setting 'rule'"),
        ({"rules": {"jmp": {}}}, "instruments.monitor.rules.jmp", "There is no rule 'jmp'"),
        ({"rules": {"jump": {"on": 1}}}, "instruments.monitor.rules.jump.on", "must be true or false, got 1"),
        ({"rules": {"jump": {"treshold": 1}}}, "instruments.monitor.rules.jump.treshold", "has no parameter 'treshold'"),
        ({"rules": {"jump": {"threshold": "x"}}}, "instruments.monitor.rules.jump.threshold", "must be a number from 2 to 1000, got 'x'"),
        ({"muted": {}}, "instruments.monitor.muted", "must be a list"),
        ({"muted": [{"rule": 1}]}, "instruments.monitor.muted.0", "must be texts"),
    ],
)  # fmt: skip
def test_wrong_settings_name_the_field(given, field, words):
    with pytest.raises(ProtocolError, match=words) as raised:
        WatchSettings.of(given)
    assert raised.value.field == field


def test_every_rule_tells_people_what_it_means():
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.title
        assert len((rule.__doc__ or "").splitlines()[0]) > 40
        assert {key: spec["default"] for key, spec in rule.properties.items()} == asdict(rule())


def test_the_page_of_rules_says_what_the_code_says():
    text = PAGE.read_text("utf-8")
    assert page(text) == text
