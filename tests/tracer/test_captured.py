"""Statistics that compiled code computes by itself, beside those of the same model uncompiled."""

import pytest
import torch
from compiling import IDS, Recomputed, recompiled, small, train
from torch import nn

import megalens
from megalens.tracer import TracerError
from megalens.tracer.moments import graph_totals

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("compiler")]
ALL = {"activation": 1, "dgrad": 1, "residual": 1, "residual_dgrad": 1}


def expected_of(logged, model, steps, **every):
    logger = logged(model, **every)
    train(model, model, logger.tracer, steps=steps)
    return logged.rows()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_figures_of_the_graph_are_those_of_hooks_and_cost_no_graph_and_no_break(logged, backend) -> None:
    wanted = expected_of(logged, small(), 3, **{**ALL, "activation": 2})
    model = small()
    run = torch.compile(model, backend=backend)
    logger = logged(run, compiled="captured", **{**ALL, "activation": 2})
    torch._dynamo.utils.counters.clear()
    train(run, model, logger.tracer, steps=3)
    assert recompiled() == 1
    assert not torch._dynamo.utils.counters["graph_break"]
    found = logged.rows()
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key]["count"] == row["count"], key
        for name in ("mean", "m2", "m3", "m4", "min", "max"):
            # Sums that cancel differ by the rounding of what is summed.
            scale = max(abs(row["max"]), abs(row["min"])) ** {"m2": 2, "m3": 3, "m4": 4}.get(name, 1)
            assert found[key][name] == pytest.approx(row[name], rel=1e-3, abs=1e-4 * scale * row["count"])


def test_what_is_measured_when_changes_without_a_graph_more_and_off_steps_measure_nothing(
    logged, monkeypatch
) -> None:
    measured = []
    own = graph_totals.measure
    monkeypatch.setattr(graph_totals, "measure", lambda tensors: measured.append(1) or own(tensors))
    model = small(layers=1)
    run = torch.compile(model, backend="aot_eager")
    logger = logged(run, compiled="captured", activation=0)
    train(run, model, logger.tracer, steps=1)
    graphs = recompiled()
    assert measured == []
    for every in (
        {"activation": 1},
        {"dgrad": 2},
        {"activation": 0, "dgrad": 0, "residual": 1},
        {"residual": 0},
    ):
        before = len(measured)
        logger.tracer._coordinator.change({"flags": {}, "instruments": {"moments": {"every": every}}})
        train(run, model, logger.tracer, steps=2)
        assert (len(measured) > before) == any(every.values())
    assert recompiled() == graphs
    rows = logged.rows()
    steps = {stat: sorted({step for name, _, step in rows if name == stat}) for stat, _, _ in rows}
    assert steps == {"activation": [2, 3, 4, 5], "dgrad": [4], "residual": [6, 7]}


def test_a_step_that_is_given_up_leaves_nothing_switched_on(logged, monkeypatch) -> None:
    measured = []
    own = graph_totals.measure
    monkeypatch.setattr(graph_totals, "measure", lambda tensors: measured.append(1) or own(tensors))
    model = small(layers=1)
    run = torch.compile(model, backend="aot_eager")
    logger = logged(run, compiled="captured", activation=2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    wrapped = logger.tracer.wrap(optimizer)
    run(IDS).square().mean().backward()
    optimizer.step()
    run(IDS).square().mean().backward()
    assert measured
    wrapped.remove()
    before = len(measured)
    run(IDS).square().mean().backward()
    assert len(measured) == before
    assert not logged.rows()


def test_passes_without_gradients_and_what_is_computed_again_are_counted_as_hooks_count_them(logged) -> None:
    every = {"activation": 1, "residual": 1}
    found = []
    for captured in (False, True):
        model = small(layers=1)
        for block in model.blocks:
            block.forward = Recomputed(block.forward)
        run = torch.compile(model, backend="aot_eager") if captured else model
        logger = logged(run, **every, **({"compiled": "captured"} if captured else {}))
        for _ in range(2):
            with logger.step():
                with torch.no_grad():
                    run(IDS)
                run(IDS).square().mean().backward()
        found.append({key: row["count"] for key, row in logged.rows().items()})
    assert found[1] == found[0]


def test_casts_that_are_due_bring_no_figures_that_are_not(logged) -> None:
    model = small(layers=1)
    run = torch.compile(model, backend="aot_eager")
    logger = logged(run, compiled="captured", precision=1, activation=2)
    train(run, model, logger.tracer, steps=2)
    rows = logged.rows()
    assert {step for stat, _, step in rows if stat == "activation"} == {2}
    assert {step for stat, _, step in rows if stat == "underflow"} == {1, 2}


def test_losses_are_those_of_the_compiled_model_without_figures(logged, traced) -> None:
    model = small()
    plain = train(torch.compile(model, backend="aot_eager"), model, traced(model, hub=None))
    torch.compiler.reset()
    model = small()
    run = torch.compile(model, backend="aot_eager")
    logger = logged(run, compiled="captured", **ALL)
    losses, gradients = train(run, model, logger.tracer)
    assert losses == plain[0]
    for one, other in zip(gradients, plain[1], strict=True):
        assert torch.equal(one, other)


def test_what_needs_python_in_the_pass_is_refused_with_the_way_out(small_hub) -> None:
    run = torch.compile(small(), backend="aot_eager")
    asked = {"hub": small_hub.address, "compiled": "captured"}
    with pytest.raises(Exception, match=r"CUDA graphs replay .*compiled=True"):
        megalens.trace(run, flags=["MLP1_mat_mul"], **asked)
    with pytest.raises(TracerError, match=r"'perturb' out of allow"):
        megalens.trace(run, allow=["perturb"], **asked)
    with pytest.raises(TracerError, match="made in Python"):
        megalens.log_statistics(run, attention_entropy=1, **asked)
    with pytest.raises(TracerError, match="'captured' or None"):
        megalens.trace(run, hub=small_hub.address, compiled="graphs")
    with megalens.trace(run, **asked) as tracer:
        assert tracer.connected(20)
        flags = small_hub.next("announce")["flags"]
        assert all(flag["layers"] == [] and "compiled=True" in flag["reason"] for flag in flags)


def test_the_model_is_as_it_was_once_the_logger_is_closed(logged) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    logger = logged(model, compiled="captured", activation=1)
    logged.rows()
    assert logger.tracer.graph is not None
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
