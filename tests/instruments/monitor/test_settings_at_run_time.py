"""Rules, thresholds and intervals that a viewer changes while the training goes on."""

from __future__ import annotations

import threading

import pytest
import torch

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.protocol import ProtocolError


def batch(step):
    return torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(step))


class Training:
    """A small training under a monitor, a step at a time."""

    def __init__(self, **options):
        torch.manual_seed(0)
        self.model = GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.monitor = megalens.monitor(self.model, self.optimizer, activation=0, linger=0, **options)
        self.at = 0
        self.losses = []

    def hooks(self):
        of_parameters = sum(len(p._post_accumulate_grad_hooks or ()) for p in self.model.parameters())
        # One of the optimizer's reads its learning rate, and stays.
        return of_parameters + len(self.optimizer._optimizer_step_pre_hooks) - 1

    def go(self, steps=1, spoil=1.0, block=0):
        for _ in range(steps):
            self.at += 1
            with self.monitor.step():
                loss = self.model.loss(batch(self.at))
                loss.backward()
                with torch.no_grad():
                    self.model.blocks[block].mlp.fc1.weight.grad *= spoil
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.losses.append(loss.item())

    def asked(self, run, **instruments):
        """Have a viewer change settings while steps are taken."""
        answer = []

        def ask():
            try:
                answer.append(run.configure(instruments=instruments))
            except Exception as error:
                answer.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        while asking.is_alive():
            self.go()
            asking.join(0.05)
        return answer[0]


@pytest.fixture
def training(own_hub, tmp_path):
    training = Training(record=tmp_path / "runs")
    assert training.monitor.tracer.connected(20)
    yield training
    training.monitor.close()


def test_a_viewer_changes_rules_and_intervals_at_one_step(training):
    with megalens.connect(training.monitor.tracer.run_id) as run:
        training.go(3)
        assert run.instruments["monitor"]["rules"]["jump"]["threshold"] == 10
        assert run.instruments["moments"]["every"]["grad"] == 1
        assert training.hooks() > 0
        off = training.asked(run, moments={"every": {"grad": 0}})
        assert training.hooks() == 0
        training.go(3)
        on = training.asked(run, moments={"every": {"grad": 2}})
        assert training.hooks() > 0
        muted = [{"rule": "dead", "name": "*"}]
        at = training.asked(run, monitor={"rules": {"jump": {"threshold": 12.5}}, "muted": muted})
        training.go(4)
        now = run.instruments
        assert (now["monitor"]["rules"]["jump"]["threshold"], now["monitor"]["muted"]) == (12.5, muted)
        assert now["monitor"]["rules"]["jump"]["on"] is True
        assert now["moments"]["every"]["grad"] == 2
    training.monitor.close()
    run = megalens.open(training.monitor.tracer.folder)
    steps = {*run.moments("grad", by="name")["step"]}
    assert steps == {*range(1, off)} | {step for step in range(on, training.at + 1) if step % 2 == 0}
    assert {*run.moments("param", by="name")["step"]} == {*range(1, training.at + 1)}
    # What was in force last is in run.json, and who asked for it when in the audit stream.
    assert run.instruments == now
    audit = run.table("audit").to_pandas()
    asked = audit[audit["action"] == "configure"]
    assert [*asked["step"]] == [off, on, at]


def test_training_does_not_know_of_it(training):
    with megalens.connect(training.monitor.tracer.run_id) as run:
        training.asked(run, moments={"every": {"grad": 0, "activation": 2}})
        training.asked(run, moments={"every": {"grad": 3}})
    plain = Training(hub=None)
    plain.go(training.at)
    plain.monitor.close()
    assert plain.losses == training.losses


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        (
            {"monitor": {"rules": {"jump": {"threshold": "high"}}}},
            "instruments.monitor.rules.jump.threshold",
            "number",
        ),
        ({"monitor": {"rules": {"jmp": {}}}}, "instruments.monitor.rules.jmp", "no rule 'jmp'"),
        ({"monitor": {"muted": "all"}}, "instruments.monitor.muted", "a list"),
        ({"monitor": {"loud": True}}, "instruments.monitor.loud", "no setting 'loud'"),
        ({"moments": {"every": {"grad": -1}}}, "instruments.moments.every.grad", "whole number"),
        ({"moments": {"every": {"grad": 1.5}}}, "instruments.moments.every.grad", "whole number"),
        ({"moments": {"every": {"noise": 1}}}, "instruments.moments.every.noise", "no statistic"),
        ({"moments": {"each": {}}}, "instruments.moments.each", "no setting 'each'"),
        ({"tensors": {}}, "instruments.tensors", "monitor"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_changes(settings, field, words):
    training = Training(hub=None)
    tracer = training.monitor.tracer
    before = tracer.config
    with pytest.raises(ProtocolError, match=words) as error:
        tracer.configure({"flags": {}, "instruments": {"moments": {"every": {"grad": 2}}, **settings}})
    assert error.value.code == "bad-parameter"
    assert error.value.field == field
    training.go()
    assert tracer.config == before
    training.monitor.close()


def test_a_step_is_judged_by_what_is_in_force_at_it():
    training = Training(hub=None)
    training.go(12)
    training.monitor.configure({"muted": [{"rule": "jump"}]})
    training.go(1, spoil=1e6)
    training.monitor.configure({"muted": None})
    training.go(1, spoil=1e6, block=1)
    training.monitor.close()
    found = {(alarm.step, alarm.name) for alarm in training.monitor.alarms if alarm.rule == "jump"}
    assert found == {(14, "blocks.1.mlp.fc1.weight")}


def test_settings_end_with_the_instrument_that_had_them(gpt):
    tracer = megalens.trace(gpt, hub=None)
    first = megalens.log_statistics(gpt, tracer=tracer, param=3)
    assert tracer.config["instruments"]["moments"]["every"]["param"] == 3
    first.close()
    assert "instruments" not in tracer.config
    second = megalens.log_statistics(gpt, tracer=tracer, param=5)
    assert tracer.config["instruments"]["moments"]["every"]["param"] == 5
    second.close()
    tracer.close()
