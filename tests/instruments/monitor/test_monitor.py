"""``megalens.monitor`` beside real trainings: what it finds, what it sends, and that the training does not know."""

from __future__ import annotations

import http.server
import json
import math
import threading
import time

import pytest
import torch
from waiting import until

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.instruments.monitor.actions import Action, TrainingStopped
from megalens.protocol import ProtocolError
from megalens.tracer import TracerError


def batch(step):
    return torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(step))


def small(rate=1e-3, **more):
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))
    return model, torch.optim.AdamW(model.parameters(), rate, **more)


def train(steps=24, fault=None, rate=1e-3, given=None, **options):
    """Train a small model; return losses, monitor and weights. ``fault`` may disturb a step before its update."""
    model, optimizer = small(rate)
    monitor = megalens.monitor(model, optimizer, activation=1, **options) if options else None
    losses = []
    try:
        for at in range(1, steps + 1):
            with monitor.step() if monitor else torch.enable_grad():
                loss = model.loss(batch(at))
                loss.backward()
                if fault is not None:
                    fault(at, model, optimizer)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
                if monitor:
                    monitor.tracer.log(loss=loss, lr=rate)
    finally:
        if monitor:
            monitor.close()
    return losses, monitor, [p.detach().clone() for p in model.parameters()]


def spoil(step, value=math.nan, part="attention.qkv.weight"):
    """Put a value into a weight of the second block at a step, before it is updated."""

    def fault(at, model, optimizer):
        if at == step:
            with torch.no_grad():
                dict(model.blocks[1].named_parameters())[part][0, 0] = value

    return fault


def test_training_is_the_same_to_the_last_bit_with_and_without():
    plain, _, weights = train(12)
    watched, monitor, others = train(12, hub=None)
    assert plain == watched
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))
    assert monitor.alarms == []
    assert monitor.first_anomaly is None


def test_the_first_anomaly_names_rank_tensor_direction_and_step():
    _, monitor, _ = train(fault=spoil(20), hub=None)
    first = monitor.first_anomaly
    assert (first.step, first.rank, first.rule, first.stat, first.name, first.direction) == (
        *(20, 0, "nonfinite", "param", "blocks.1.attention.qkv.weight", "update"),
    )
    # In the next step it is the forward pass that it reaches first.
    after = [alarm for alarm in monitor.alarms if alarm.step == 21]
    assert (after[0].direction, after[0].name) == ("forward", "blocks.1.attention.qkv/output0")


@pytest.mark.slow
def test_the_numbers_of_the_loop_are_judged_too():
    def fault(at, model, optimizer):
        if at >= 50:
            optimizer.param_groups[0]["lr"] = 1e-2

    # Where another rate is logged, the updates tell it.
    _, monitor, _ = train(60, fault=fault, hub=None)
    assert [(alarm.rule, alarm.stat, alarm.name) for alarm in monitor.alarms][:1] == [("jump", "param", "*")]
    rates = [1e-3] * 15 + [1e-2] * 5
    model, optimizer = small()
    with megalens.monitor(model, optimizer, hub=None, param=0) as monitor:
        for at, rate in enumerate(rates):
            with monitor.step():
                model.loss(batch(at)).backward()
                optimizer.step()
            # What is logged behind the step is of it, too.
            monitor.tracer.log(lr=rate)
    assert [(alarm.rule, alarm.name) for alarm in monitor.alarms] == [("loss", "lr")]


@pytest.mark.parametrize("kind", [{"foreach": True}, {"foreach": False}, {"fused": True}])
def test_a_lost_state_and_a_wrong_beta_are_found_in_their_step(kind):
    def lose(optimizer):
        optimizer.state.clear()

    def forget(optimizer):
        optimizer.param_groups[0]["betas"] = (0.9, 0.5)

    for fault, statistics in ((lose, {"beta1", "beta2", "steps"}), (forget, {"beta2"})):
        model, optimizer = small(**kind)
        with megalens.monitor(model, optimizer, hub=None) as monitor:
            for at in range(1, 16):
                with monitor.step():
                    model.loss(batch(at)).backward()
                    if at == 12:
                        fault(optimizer)
                    optimizer.step()
                    optimizer.zero_grad()
        found = [alarm for alarm in monitor.alarms if alarm.rule == "optimizer"]
        assert {(alarm.step, alarm.statistic) for alarm in found} == {
            (12, statistic) for statistic in statistics
        }
        assert monitor.first_anomaly.direction == "optimizer"


@pytest.mark.parametrize("broken", [False, True])
def test_the_state_is_judged_and_sent_only_when_something_breaks(own_hub, tmp_path, broken):
    fault = spoil(8) if broken else None
    _, monitor, _ = train(fault=fault, steps=10, record=tmp_path / "runs", linger=0)
    stats = {*megalens.open(monitor.tracer.folder).table("moments").to_pandas()["stat"]}
    assert stats == {"param", "grad", "activation", *(("exp_avg", "exp_avg_sq") if broken else ())}


@pytest.mark.slow
def test_what_was_measured_and_not_recorded_is_sent_when_something_breaks(own_hub, tmp_path):
    recorded = {"param": 10, "grad": 10, "activation": 0}
    _, monitor, _ = train(
        fault=spoil(33), steps=36, record=tmp_path / "runs", linger=0, recorded=recorded, black_box=5
    )
    run = megalens.open(monitor.tracer.folder)
    alarms = run.alarms()
    assert [*alarms.columns[:9]] == [
        *("step", "micro_step", "rank", "rule", "severity", "name", "value", "expected", "sentence"),
    ]
    assert run.first_anomaly()["name"] == "blocks.1.attention.qkv.weight"
    assert ("forward", "blocks.1.attention.qkv", 0) in run.first_anomaly()["path"]
    # The five steps up to it, all of each; with those that break anew, the steps of these.
    steps = {
        stat: sorted({*run.moments(stat, by="name")["step"]}) for stat in ("param", "grad", "activation")
    }
    assert steps["activation"][:5] == [29, 30, 31, 32, 33]
    assert steps["grad"][:8] == [10, 20, 29, 30, 31, 32, 33, 34]
    # Each row once, and as it would have been recorded.
    _, whole, _ = train(fault=spoil(33), steps=36, record=tmp_path / "whole", linger=0)
    every = megalens.open(whole.tracer.folder).moments("grad", by="name", steps="29-33")
    again = run.moments("grad", by="name", steps="29-33")
    assert every.equals(again)


def test_a_viewer_has_the_first_anomaly_before_the_training_goes_on(own_hub):
    model, optimizer = small()
    with megalens.monitor(model, optimizer, activation=1, linger=0) as monitor:
        assert monitor.tracer.connected(20)
        with megalens.connect(monitor.tracer.run_id) as run:
            for at in range(1, 12):
                with monitor.step():
                    model.loss(batch(at)).backward()
                    spoil(11)(at, model, None)
                    optimizer.step()
            first = until(run.first_anomaly)
            assert (first["step"], first["name"]) == (11, "blocks.1.attention.qkv.weight")


def test_the_memory_of_the_black_box_is_bounded_and_said(own_hub, tmp_path):
    _, monitor, _ = train(
        fault=spoil(20), record=tmp_path / "runs", linger=0, recorded={"grad": 0}, black_box_bytes=30_000
    )
    told = monitor.tracer.status()["instruments"]["monitor"]["black_box"]
    assert told["limit_bytes"] == 30_000
    assert told["bytes"] <= 30_000
    steps = sorted({*megalens.open(monitor.tracer.folder).moments("grad", by="name")["step"]})
    assert 1 <= len(steps) < 10


def test_actions_run_on_the_training_thread_between_steps(own_hub, tmp_path):
    here, saved, called = threading.get_ident(), [], []

    def save(step):
        saved.append((step, threading.get_ident()))
        return str(tmp_path / f"step-{step}.pt")

    def broken(alarms):
        called.append([alarm.rule for alarm in alarms])
        raise RuntimeError("not reachable")

    actions = [
        {"checkpoint": save},
        {"severity": "warning", "rules": ["nonfinite"], "call": broken},
        {"rules": ["jump"], "stop": True},
    ]
    judged = []

    def fault(at, model, optimizer):
        spoil(10)(at, model, optimizer)
        if at == 30:
            # Training does not wait for who judges it; here it does, so that there are steps left to act between.
            until(lambda: len(judged) > 11)

    options = {"record": tmp_path / "runs", "linger": 0, "actions": actions}
    rules = [lambda now, before: judged.append(now.step) or ()]
    _, monitor, _ = train(fault=fault, steps=40, rules=rules, **options)
    assert len(saved) == 1
    assert saved[0][1] == here
    assert called == [["nonfinite"]]
    assert any(
        "The action call after an alarm of step 10 failed: RuntimeError: not reachable" in text
        for text in monitor.tracer.status()["warnings"]
    )
    assert monitor.stopped == ""
    audit = megalens.open(monitor.tracer.folder).audit().to_pylist()
    assert any("step-10.pt" in json.dumps(row, default=str) for row in audit)


def test_alarms_name_the_samples_of_their_step():
    model, _ = small()
    with megalens.monitor(model, torch.optim.SGD(model.parameters(), 0.1), hub=None, activation=1) as monitor:
        for at in range(1, 8):
            with monitor.step():
                monitor.tracer.samples(torch.tensor([4 * at, 4 * at + 1]) if at % 2 else [f"doc-{at}"])
                model.loss(batch(at)).backward()
                spoil(6)(at, model, None)
        monitor.tracer.samples(object())
    assert {alarm.samples for alarm in monitor.alarms if alarm.step == 6} == {'["doc-6"]'}
    assert {alarm.samples for alarm in monitor.alarms if alarm.step == 7} == {"[28, 29]"}
    assert any(
        "The instrument monitor failed: TypeError" in text for text in monitor.tracer.status()["warnings"]
    )


def test_monitors_of_one_tracer_follow_each_other(own_hub):
    model, _ = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    monitors = []
    with megalens.trace(model, linger=0) as tracer:
        for part in ("attention.qkv.bias", "mlp.fc1.bias"):
            with megalens.monitor(model, optimizer, tracer=tracer) as monitor:
                with pytest.raises(TracerError, match="has a monitor already"):
                    megalens.monitor(model, optimizer, tracer=tracer)
                vector = dict(model.blocks[1].named_parameters())[part].data
                with monitor.step():
                    model.loss(batch(1)).backward()
                    vector[0] = math.nan
                    optimizer.step()
                vector[0] = 0.0
                optimizer.zero_grad()
            monitors.append(monitor)
    firsts = [(monitor.first_anomaly.step, monitor.first_anomaly.name) for monitor in monitors]
    assert firsts == [(1, "blocks.1.attention.qkv.bias"), (2, "blocks.1.mlp.fc1.bias")]


def test_a_training_is_stopped_only_where_the_script_says_so():
    with pytest.raises(TrainingStopped, match=r"update, blocks.1.attention.qkv.weight: 1 value is NaN"):
        train(
            fault=lambda *now: (spoil(10)(*now), time.sleep(0.05)),
            steps=400,
            hub=None,
            actions={"stop": True},
        )


class _Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(302 if self.path.startswith("/away") else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def webhook():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    server.bodies = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_webhook_is_told_and_its_path_to_nobody(webhook):
    address = f"http://127.0.0.1:{webhook.server_port}/secret"
    train(fault=spoil(10, math.inf), steps=14, hub=None, actions={"webhook": address})
    (body,) = until(lambda: webhook.bodies)
    assert body["alarms"][0]["sentence"] == "1 value is infinite."
    away = f"http://127.0.0.1:{webhook.server_port}/away/secret"
    _, monitor, _ = train(fault=spoil(10), steps=14, hub=None, actions={"webhook": away})
    (warning,) = until(lambda: [text for text in monitor.tracer.status()["warnings"] if "webhook" in text])
    assert "secret" not in warning
    assert "127.0.0.1" in warning


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"actions": {"explode": True}}, "There is no action 'explode'"),
        ({"actions": 3}, "actions must be an object such as"),
        ({"actions": {"webhook": "http://example.org/x"}}, "actions.webhook must be an https address"),
        ({"actions": {"severity": "bad"}}, "actions.severity must be critical, warning or note"),
        ({"black_box": -1}, "black_box=… must be a whole number from 0, got -1"),
        ({"rules": {"rules": {"jmp": {}}}}, "There is no rule 'jmp'"),
        ({"rules": [3]}, "rules must be settings, a function, or a list of functions"),
    ],
)
def test_wrong_arguments_are_answered_in_words(given, words):
    with pytest.raises((TracerError, ProtocolError), match=words):
        train(1, hub=None, **given)


def test_pause_needs_a_tracer_that_allows_it():
    model, optimizer = small()
    with megalens.trace(model, hub=None) as tracer, pytest.raises(TracerError, match="allow=\\['pause'\\]"):
        megalens.monitor(model, optimizer, tracer=tracer, actions=Action(pause=True))


def grown(dtype):
    """Train on inputs that grow by a fifth in each step, up to 2^16: the alarms."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    generator = torch.Generator().manual_seed(1)
    with megalens.monitor(model, optimizer, activation=1, hub=None) as monitor:
        for at in range(60):
            with monitor.step():
                given = (1.2 ** (at + 1) * torch.randn(8, 16, generator=generator)).to(dtype)
                model(given).float().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    return monitor.alarms


def test_an_activation_that_grows_towards_the_end_of_its_format_is_told_of_before_it_overflows():
    first = {}
    for alarm in grown(torch.float16):
        first.setdefault((alarm.rule, alarm.name), alarm.step)
    assert first["overflow", "0/input0"] < first["nonfinite", "0/input0"]
    # The same values in float32 have room.
    assert not any(alarm.rule == "overflow" for alarm in grown(torch.float32))
