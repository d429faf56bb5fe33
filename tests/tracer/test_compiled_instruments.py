"""Flags of several tensors, statistics and perturbations in compiled code, beside plain hooks on the model uncompiled."""

import pytest
import torch
from compiling import FEW, IDS, Recomputed, blocks, recompiled, rows_of, small, train, whole
from perturbing import site
from torch import nn
from transformers import MixtralConfig, MixtralForCausalLM

from megalens import NoOp
from megalens.protocol import ProtocolError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("compiler")]


def mixtral() -> MixtralForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "vocab_size": 60}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4}
    return MixtralForCausalLM(MixtralConfig(**sizes, **heads, attn_implementation="eager"))


def entropy(probabilities: torch.Tensor) -> float:
    return torch.special.entr(probabilities.float()).sum(-1).mean().item()


def test_routers_experts_and_statistics_are_seen_in_compiled_code_by_two_tracers(
    traced, logged, small_hub
) -> None:
    plain, model = mixtral(), mixtral()
    seen: dict = {}
    entropies: dict[str, list] = {"attention_entropy": [], "router_entropy": []}
    for layer, block in enumerate(plain.model.layers):
        for name, module in (("router", block.mlp.gate), ("experts", block.mlp.experts), ("mlp", block.mlp)):
            module.register_forward_hook(
                lambda module, given, output, at=(name, layer): seen.update({at: (given, output)})
            )
        block.self_attn.register_forward_hook(
            lambda module, given, output: entropies["attention_entropy"].append(entropy(output[1]))
        )
        block.mlp.gate.register_forward_hook(
            lambda module, given, output: entropies["router_entropy"].append(entropy(output[0].softmax(-1)))
        )
    plain(input_ids=IDS)
    flags = dict.fromkeys(("RouterProbabilities", "ExpertOutputs", "MLP2_mat_mul"), NoOp())
    run = torch.compile(model, backend="aot_eager")
    logger = logged(run, attention_entropy=1, router_entropy=1)
    tracer = traced(run, flags=flags, samples="all")
    with tracer.step(), logger.step():
        run(input_ids=IDS).logits.sum().backward()
    rows = rows_of(small_hub, tracer)
    found = {(key[3], key[4], key[5]): torch.tensor(row["values"]) for key, row in rows.items()}
    for layer in range(len(plain.model.layers)):
        logits = seen["router", layer][1][0]
        expected = logits.float().softmax(-1).flatten()
        torch.testing.assert_close(found.pop(("RouterProbabilities", "", layer)), expected)
        torch.testing.assert_close(found.pop(("MLP2_mat_mul", "", layer)), seen["mlp", layer][1].flatten())
        (hidden, index, _), _ = seen["experts", layer]
        mixture = plain.model.layers[layer].mlp.experts
        for expert in sorted(set(index.flatten().tolist())):
            tokens = hidden[(index == expert).any(-1)]
            gate, up = (tokens @ mixture.gate_up_proj[expert].T).chunk(2, -1)
            output = (nn.functional.silu(gate) * up) @ mixture.down_proj[expert].T
            torch.testing.assert_close(
                found.pop(("ExpertOutputs", f"expert{expert}", layer)), output.flatten()
            )
    assert found == {}
    assert tuple(rows["micro_batch"] for rows in rows.values()) == (0,) * len(rows)
    (shape,) = {tuple(row["source_shape"]) for key, row in rows.items() if key[3] == "MLP2_mat_mul"}
    assert shape == (2, 6, 16)
    statistics = logged.rows()
    for stat, expected in entropies.items():
        measured = [row["mean"] for (name, _, _), row in sorted(statistics.items()) if name == stat]
        assert measured == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("way", [whole, blocks])
def test_statistics_that_are_due_in_some_steps_have_nothing_compiled_anew(logged, way) -> None:
    model = small(layers=1)
    run = way(model)
    logger = logged(run, activation=2, dgrad=3, residual=2, attention_entropy=2)
    train(run, model, logger.tracer, steps=1)
    graphs = recompiled()
    train(run, model, logger.tracer, steps=5)
    assert recompiled() == graphs
    rows = logged.rows()
    steps = {stat: {step for name, _, step in rows if name == stat} for stat in ("activation", "dgrad")}
    assert steps == {"activation": {2, 4, 6}, "dgrad": {3, 6}}


def test_what_modules_give_is_perturbed_in_compiled_code(traced, small_hub) -> None:
    """As a hook that adds the same does it in the model uncompiled; a function that calls the model is compiled."""
    plain, model = small(), small()
    run = torch.compile(lambda ids: model(ids), fullgraph=True, backend="aot_eager")
    flags = {"MLP2_mat_mul": NoOp()}
    tracer = traced(model, adapter=FEW, allow=["perturb"], compiled=True, flags=flags, samples="all")
    announced = small_hub.next("announce")["sites"]
    assert {each["name"]: each["layers"] for each in announced} == {
        "weight": [],
        "calculation": [0, 1],
        "system": [0, 1],
    }
    assert "compiled code reads weights past any hook" in announced[0]["reason"]
    clean, _ = train(run, model, tracer, steps=1)
    graphs = recompiled()
    sites = {
        "calculation": site("offset", fraction=1.0, coefficient=0.5),
        "system": site("offset", "1", fraction=1.0, coefficient=-0.25),
    }
    tracer._coordinator.change({"flags": {}, "perturb": {"sites": sites, "steps": 2}})
    losses, gradients = train(run, model, tracer, steps=2)
    after, _ = train(run, model, tracer, steps=1)
    assert recompiled() == graphs
    assert after == clean
    assert tracer.status()["perturbed_steps"] == 2
    seen: list[torch.Tensor] = []
    for block in plain.blocks:
        block.mlp.register_forward_hook(lambda module, given, output: output + 0.5)
        # What is traced is what the model goes on with.
        block.mlp.register_forward_hook(lambda module, given, output: seen.append(output.detach()))
    plain.blocks[1].register_forward_hook(lambda module, given, output: output - 0.25)
    expected, wanted = train(plain, plain, traced(plain, hub=None), steps=2)
    assert losses == pytest.approx(expected, rel=1e-6)
    for found, each in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(found, each)
    rows = rows_of(small_hub, tracer)
    values = [torch.tensor(row["values"]) for key, row in rows.items() if key[0] == 2 and key[5] == 0]
    torch.testing.assert_close(values[0], seen[0].flatten())


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_perturbation_of_compiled_code_is_that_of_the_model_uncompiled(traced, recomputed) -> None:
    kinds = [site(kind, coefficient=0.5) for kind in ("noise1", "noise2")]
    kinds.append(site("bit_flip", rate=0.1, bit=20))
    found = []
    for way in (lambda model: model, whole):
        model = small(layers=1)
        for block in model.blocks if recomputed else ():
            block.forward = Recomputed(block.forward)
        run = way(model)
        tracer = traced(run, adapter=FEW, allow=["perturb"])
        unperturbed, _ = train(run, model, tracer, steps=1)
        graphs = recompiled()
        trained = []
        for each in kinds:
            tracer._coordinator.change({"flags": {}, "perturb": {"sites": {"calculation": each}, "steps": 2}})
            trained.append(train(run, model, tracer))
            assert not set(trained[-1][0]) & set(unperturbed)
        assert recompiled() == graphs
        found.append(trained)
    for (losses, gradients), (compiled, others) in zip(*found, strict=True):
        assert compiled == pytest.approx(losses, rel=1e-5)
        for one, other in zip(gradients, others, strict=True):
            torch.testing.assert_close(one, other)


def test_weights_of_compiled_code_are_refused_by_name(traced) -> None:
    model = small()
    tracer = traced(model, allow=["perturb"], compiled=True)
    with pytest.raises(ProtocolError, match="compiled code reads weights past any hook"):
        tracer._coordinator.change({"flags": {}, "perturb": {"sites": {"weight": site("noise1")}}})
