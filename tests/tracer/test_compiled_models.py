"""Models under torch.compile: probes in the graph tell what hooks tell of the same model uncompiled, and the graph stays whole."""

import copy

import pytest
import torch
from compiling import (
    BOTH,
    FEW,
    IDS,
    WAYS,
    Recomputed,
    blocks,
    hidden_of,
    plain,
    recompiled,
    rows_of,
    small,
    train,
    whole,
)
from torch import nn

from megalens import NoOp, Tile
from megalens.api.trace import model_points
from megalens.tracer.graph_probes import GraphProbes, end_of, is_compiled
from megalens.tracer.own_hooks import hook_after

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("compiler")]


# Of the other ways test_a_model_says_whether_it_is_to_be_compiled shows that they are found, and test_first_pass_compiled.py that training is the same.
@pytest.mark.parametrize(("way", "layers"), [("whole", 1), ("blocks", 2)])
def test_compiled_code_tells_what_hooks_tell(traced, small_hub, way, layers) -> None:
    eager = small(layers)
    tracer = traced(eager, flags=BOTH)
    expected = train(eager, eager, tracer)
    known = rows_of(small_hub, tracer)
    assert len(known) == 2 * 2 * 2 * (3 + 1 + 1 + 1) * layers

    model = small(layers)
    run = WAYS[way](model)
    tracer = traced(run, flags=BOTH)
    losses, gradients = train(run, model, tracer)
    seen = rows_of(small_hub, tracer)
    assert losses == pytest.approx(expected[0], rel=1e-5)
    for found, wanted in zip(gradients, expected[1], strict=True):
        torch.testing.assert_close(found, wanted)
    assert {key for key in seen if key not in known} == set()
    assert {key for key in known if key not in seen} == set()
    for key, row in known.items():
        assert seen[key]["source_shape"] == row["source_shape"]
        torch.testing.assert_close(
            torch.tensor(seen[key]["values"]), torch.tensor(row["values"]), rtol=1e-4, atol=1e-6
        )
        assert seen[key]["m2"] == pytest.approx(row["m2"], rel=1e-3, abs=1e-8)


def test_flags_layers_and_compressors_change_without_a_recompile(traced, small_hub) -> None:
    model = small()
    tracer = traced(model, compiled=True, adapter=FEW)
    # A function that calls the model: nothing of the model itself says that it is compiled.
    run = torch.compile(lambda ids: model(ids), fullgraph=True, backend="aot_eager")
    train(run, model, tracer, steps=1)
    graphs = recompiled()
    assert graphs > 0
    # Twice each of both layers, of three compressors, and with and without the other flag.
    for step in range(12):
        tracer.configure(
            {
                "MLP1_mat_mul": (None, Tile(2), NoOp())[step % 3],
                "HiddenStates": NoOp() if step % 4 < 2 else None,
            },
            layers=str(step % 2),
        )
        train(run, model, tracer, steps=1, micro_batches=1)
    assert recompiled() == graphs
    assert tracer.status()["compiled"] == {"times": graphs, "again": 0}
    rows = rows_of(small_hub, tracer)
    assert {key[3] for key in rows} == {"MLP1_mat_mul", "HiddenStates"}
    assert {key[5] for key in rows} == {0, 1}
    assert {row["compressor"] for row in rows.values()} == {"Tile(tiles=2, reduction='mean')", "NoOp()"}


def test_what_checkpointing_computes_again_is_told_once(traced, small_hub) -> None:
    model = small(layers=1)
    for block in model.blocks:
        block.forward = Recomputed(block.forward)
    run = whole(model)
    tracer = traced(run, flags=BOTH)
    train(run, model, tracer)
    assert len(rows_of(small_hub, tracer)) == 2 * 2 * 2 * (3 + 1 + 1 + 1)


def test_statistics_are_those_of_the_model_uncompiled(logged) -> None:
    intervals = {"activation": 1, "dgrad": 1, "residual": 1, "residual_dgrad": 1, "param": 0}
    found = []
    for way in (plain, whole):
        model = small(layers=1)
        run = way(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        logger = logged(run, optimizer, **intervals)
        train(run, model, logger.tracer)
        found.append(logged.rows())
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) > 20
    for key, row in found[0].items():
        for name in ("count", "mean", "m2", "min", "max"):
            assert found[1][key][name] == pytest.approx(row[name], rel=1e-3, abs=1e-7), (key, name)


@pytest.mark.parametrize("other", [False, True])
def test_code_that_was_compiled_before_it_was_traced_is_compiled_anew(traced, small_hub, other) -> None:
    """Also that of another model of the class, which torch would use for this one."""
    model = small(layers=1)
    run = whole(model)
    expected = (whole(small(layers=1)) if other else run)(IDS)
    tracer = traced(run, adapter=FEW, flags={"MLP1_mat_mul": Tile(2), "MLP2_mat_mul": Tile(2)})
    for _ in range(2):
        with tracer.step():
            output = run(IDS)
    torch.testing.assert_close(output, expected)
    tracer.close()
    status = small_hub.next("status", lambda m: m["step"] >= 2)
    assert status["probes"] == {"fired": 2, "expected": 2, "missing": []}
    assert "is compiled once more, with probes" in status["warnings"][0]


def test_layers_that_are_compiled_one_by_one_share_their_code_as_without_a_tracer(traced, small_hub) -> None:
    """More of them than torch compiles of one code."""
    model = small(layers=12)
    run = blocks(model)
    tracer = traced(run, adapter=FEW, flags={"HiddenStates": NoOp()})
    seen = hidden_of(small(layers=12))
    train(run, model, tracer, steps=1, micro_batches=1)
    assert recompiled() == 1
    assert tracer.status()["compiled"] == {"times": 1, "again": 0}
    rows = rows_of(small_hub, tracer)
    assert len(rows) == 12
    for key, row in rows.items():
        torch.testing.assert_close(torch.tensor(row["values"]), seen[key[5]][0].flatten())


@pytest.mark.parametrize(("way", "first"), [("whole", True), ("blocks", False)])
def test_of_two_models_of_one_class_each_has_its_own_rows(traced, small_hub, way, first) -> None:
    """The other one is not traced, and is compiled before or after; then it is traced as well."""
    student, teacher = small(layers=1), small(layers=1, seed=1)
    run, other = WAYS[way](student), WAYS[way](teacher)
    seen = [hidden_of(copy.deepcopy(each)) for each in (student, teacher)]
    tracer = traced(run, adapter=FEW, flags={"HiddenStates": NoOp()})
    for step in range(2):
        with tracer.step():
            for each in (other, run)[:: 1 if first else -1]:
                each(IDS)
            if step:
                other(IDS)
    watched: list[torch.Tensor] = []
    probes = GraphProbes(model_points(teacher, FEW), print)
    for block in teacher.blocks:
        end_of(block, "output").watch(lambda tensor: watched.append(tensor.clone()), None)
        hook_after(block, lambda module, given, output: watched.append(output.detach().clone()))
    with tracer.step():
        run(IDS)
    assert watched == []
    other(IDS)
    probes.close()
    for found, wanted in zip(watched, seen[1], strict=True):
        torch.testing.assert_close(found, wanted)
    rows = rows_of(small_hub, tracer)
    assert len(rows) == 3
    for key, row in rows.items():
        torch.testing.assert_close(torch.tensor(row["values"]), seen[0][key[5]][0].flatten())


def test_a_tensor_that_is_changed_in_place_behind_a_probe_compiles(traced, small_hub) -> None:
    model = small(layers=1)
    for block in model.blocks:
        block.mlp.fc1 = nn.Sequential(block.mlp.fc1, nn.ReLU(inplace=True))[0]
        block.mlp.fc1.register_forward_hook(lambda module, given, output: output.mul_(0.5))
    expected = copy.deepcopy(model)(IDS)
    run = whole(model)
    tracer = traced(run, adapter=FEW, flags={"MLP1_mat_mul": NoOp()})
    with tracer.step():
        output = run(IDS)
        output.sum().backward()
    torch.testing.assert_close(output, expected)


def test_a_model_says_whether_it_is_to_be_compiled() -> None:
    assert not is_compiled([small()])
    for way in WAYS.values():
        assert is_compiled([way(small())])


def test_a_tracer_that_is_closed_leaves_no_hook_and_the_probes_of_another(traced, small_hub) -> None:
    model = small(layers=1)
    flags = {"MLP1_mat_mul": NoOp(), "HiddenStates": NoOp()}
    first, second = (traced(model, compiled=True, adapter=FEW, flags=each) for each in ({}, flags))
    assert second.connected(20)
    first.close()
    train(whole(model), model, second, steps=1)
    assert len(rows_of(small_hub, second)) == 2 * (1 + 1)
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
