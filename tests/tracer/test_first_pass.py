"""What a watched first forward pass shows takes the place of what was supposed: settings, rows, the training."""

import random
from dataclasses import replace

import numpy
import pytest
import torch
from torch import nn

from megalens import NoOp
from megalens.adapters.structure import GPT_TABLE
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer import FlagPoints, Source

MLP1, MLP2, CONTEXT, HIDDEN = "MLP1_mat_mul", "MLP2_mat_mul", "ContextLayer_mat_mul", "HiddenStates"
IDS = torch.arange(16).reshape(2, 8)


class Watch:
    """Supposes that MLP1 of layer 1 is at fc2, and nothing of the context; learns of both, and that nothing gives MLP2."""

    def __init__(self, supposed, seen) -> None:
        self.supposed, self.seen = supposed, seen
        self.passes: list[str] = []
        self.failed = None
        self.interrupted = False
        self.changed = {(MLP1, 1), (MLP2, 0), (MLP2, 1)}

    def begin(self, given: object = ()) -> None:
        self.passes.append("begin")

    def interrupt(self) -> None:
        self.interrupted = True

    def stop(self) -> None:
        self.passes.append("stop")

    def end(self) -> None:
        self.passes.append("end")

    def finish(self):
        return self.seen


class Watched:
    """An adapter that wants to see a pass."""

    def __init__(self, fails: str = "") -> None:
        self.watches: list[Watch] = []
        self.fails = fails

    def points(self, model: nn.Module):
        seen = GPT_TABLE.points(model)
        body = getattr(model, "_orig_mod", model)
        flags = dict(seen.flags)
        flags[MLP1] = FlagPoints({**flags[MLP1].layers, 1: (Source(body.blocks[1].mlp.fc2),)})
        flags[CONTEXT] = FlagPoints(reason="It is found when the first forward pass is watched.")
        supposed = replace(seen, flags=flags)
        learned = replace(seen, flags={**seen.flags, MLP2: FlagPoints(reason="No pass has it.")})

        def watch(_: object) -> Watch:
            self.watches.append(Watch(supposed, learned))
            if self.fails:
                self.watches[-1].finish = lambda: 1 / 0
            return self.watches[-1]

        supposed.watch = watch
        return supposed


def small() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(vocabulary=16, layers=2, hidden=16, heads=2, sequence=8))


def rows(hub, count: int) -> dict:
    return {(r["step"], r["flag"], r["layer"]): r["values"] for r in hub.next_rows(count)}


def outputs(module: nn.Module, seen: list) -> None:
    module.register_forward_hook(lambda m, a, output: seen.append(output.detach()[:1].flatten().tolist()))


def test_rows_of_a_wrong_place_are_dropped_and_the_right_one_is_traced_from_the_next_step_on(
    traced, small_hub
) -> None:
    model, adapter, fc1 = small(), Watched(), []
    tracer = traced(model, flags=dict.fromkeys((MLP1, MLP2, HIDDEN), NoOp()), adapter=adapter)
    outputs(model.blocks[1].mlp.fc1, fc1)
    for _ in range(2):
        with tracer.step():
            model(IDS)
    found = rows(small_hub, 7)
    assert set(found) == {
        *((1, MLP1, 0), (1, HIDDEN, 0), (1, HIDDEN, 1)),
        *((2, MLP1, 0), (2, MLP1, 1), (2, HIDDEN, 0), (2, HIDDEN, 1)),
    }
    assert found[2, MLP1, 1] == fc1[1]
    assert adapter.watches[0].passes == ["begin", "end"]
    assert len(adapter.watches) == 1
    assert set(tracer.config["flags"]) == {MLP1, HIDDEN}
    begins = "Rows of these begin after step 1, whose first forward pass showed where they are: MLP1 output, layer 1."
    assert begins in tracer.status()["warnings"]
    (said,) = [text for text in tracer.status()["warnings"] if MLP2 in text]
    assert "is not traced" in said
    assert "No pass has it." in said


def test_a_flag_that_only_the_pass_can_tell_of_is_taken_before_it(traced, small_hub) -> None:
    model = small()
    tracer = traced(model, flags={CONTEXT: {"compressor": NoOp(), "layers": "1"}}, adapter=Watched())
    seen = []
    model.blocks[1].attention.projection.register_forward_pre_hook(
        lambda m, args: seen.append(args[0].detach()[:1].flatten().tolist())
    )
    for _ in range(2):
        with tracer.step():
            model(IDS)
    assert rows(small_hub, 1) == {(2, CONTEXT, 1): seen[1]}


def test_no_pass_is_watched_while_nobody_wants_to_see_anything(traced, small_hub) -> None:
    model, adapter = small(), Watched()
    tracer = traced(model, adapter=adapter)
    with tracer.step():
        model(IDS)
    assert not adapter.watches
    assert not model._forward_hooks
    tracer.configure({HIDDEN: NoOp()})
    with tracer.step():
        model(IDS)
    assert len(adapter.watches) == 1


def test_a_pass_that_raises_shows_nothing_and_the_next_one_is_watched(traced, small_hub) -> None:
    model, adapter = small(), Watched()
    tracer = traced(model, flags={CONTEXT: NoOp()}, adapter=adapter)
    with pytest.raises(IndexError), tracer.step():
        model(IDS + 100)
    assert adapter.watches[0].passes == ["begin", "stop"]
    with tracer.step():
        model(IDS)
    assert adapter.watches[0].passes[-1] == "end"
    with tracer.step():
        model(IDS)
    assert set(rows(small_hub, 2)) == {(3, CONTEXT, 0), (3, CONTEXT, 1)}


def test_a_watch_that_fails_is_said_and_leaves_the_training_alone(traced, small_hub) -> None:
    model = small()
    tracer = traced(model, flags={CONTEXT: NoOp(), HIDDEN: NoOp()}, adapter=Watched("finish"))
    for _ in range(2):
        with tracer.step():
            model(IDS)
    assert {flag for _, flag, _ in rows(small_hub, 4)} == {HIDDEN}
    said = tracer.status()["warnings"]
    assert any("could not be watched: ZeroDivisionError" in text for text in said)
    assert list(tracer.config["flags"]) == [HIDDEN]


def test_the_points_are_printed_as_a_table(traced) -> None:
    model = small()
    tracer = traced(model, flags=[MLP1])
    assert "supposed before a forward pass was watched" in repr(tracer.points)
    with tracer.step():
        model(IDS)
    assert "blocks.*.mlp.fc1 — it goes through a nonlinearity to blocks.*.mlp.fc2" in repr(tracer.points)


@pytest.mark.parametrize("compiled", [False, True])
def test_two_tracers_of_one_model_see_the_same_and_none_the_passes_of_the_other(
    traced, logged, small_hub, compiled
) -> None:
    model = small()
    tracers = [traced(model, flags=[MLP1], compiled=compiled) for _ in range(2)]
    logger = logged(model, activation=1, attention_max=1)
    with tracers[0].step(), logger.step(), tracers[1].step():
        model(IDS)
        assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()
    for tracer in (*tracers, logger.tracer):
        assert tracer.points.watch is None
        assert "nonlinearity" in tracer.points.flags[MLP1].evidence[1]
        assert not any("no training" in text for text in tracer.status()["warnings"])
    found = {stat for stat, _, _ in logged.rows()}
    assert {"activation", "attention_max"} <= found


class Drops(nn.Module):
    """Draws random numbers, some of a generator of its own, and counts its passes wherever one can."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("passes", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(()))
        self.counted, self.seen, self.kept = 0, [], torch.zeros(1)
        self.own = torch.Generator().manual_seed(2)

    @property
    def blocks(self):
        return self.body.blocks

    def forward(self, ids):
        self.count(ids)
        drawn = nn.functional.dropout(self.body(ids).float(), 0.5)
        return drawn * (self.passes + self.replaced + self.kept) * len(self.seen) * self.last

    @torch.compiler.disable
    def count(self, ids):
        self.passes += 1
        self.replaced = self.replaced + 2
        self.counted += 1
        self.seen.append(self.counted)
        self.kept.add_(torch.rand(1, generator=self.own) + random.random() + numpy.random.rand())
        self.last = getattr(self, "last", 0) + self.counted


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_a_compiled_model_is_watched_in_a_pass_of_its_own_that_leaves_no_trace(traced, compiler, way) -> None:
    body = Drops(small())
    other = Drops(small())

    def run(model: nn.Module, tracer=None) -> list:
        if way == "wrapped":
            called = torch.compile(model, backend="eager")
        else:
            model.compile(backend="eager")
            called = model
        torch.manual_seed(1)
        random.seed(1)
        numpy.random.seed(1)
        losses = []
        adapter = Watched()
        adapter_points = adapter.points
        adapter.points = lambda given: replace(adapter_points(model.body), roots=(given,))
        tracing = None if tracer is None else tracer(called, flags={MLP1: NoOp()}, adapter=adapter)
        for _ in range(3):
            if tracing is None:
                loss = called(IDS).sum()
            else:
                with tracing.step():
                    loss = called(IDS).sum()
            loss.backward()
            losses.append(loss.item())
        if tracing is not None:
            assert len(adapter.watches) == 1
            assert tracing.status()["warnings"] == []
        return [losses, model.passes.item(), torch.rand(1).item()]

    assert run(body, traced) == run(other)
