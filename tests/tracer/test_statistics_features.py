"""Numbers of attention, routers and weights beside plain hooks and plain torch."""

from __future__ import annotations

import math

import pytest
import torch

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer import TracerError
from megalens.tracer.moments.features import (
    MOST_ROWS,
    PowerIteration,
    attention_entropy,
    attention_largest,
    attention_probabilities,
    router_entropy,
    router_similarity,
)

ALL = ("attention_entropy", "attention_max", "stable_rank", "kernel_norm")


def gpt():
    torch.manual_seed(0)
    return GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))


def mixtral(attention="eager"):
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 60}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4}
    return MixtralForCausalLM(MixtralConfig(**sizes, **heads, attn_implementation=attention))


def batch(step):
    return torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(step))


def train(model, steps, fault=None, **options):
    """Train; return losses and what was measured, by statistic and name, of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    found, losses = [], []
    statistics = (
        megalens.log_statistics(model, optimizer, own=found.append, hub=None, **options) if options else None
    )
    try:
        for at in range(1, steps + 1):
            with statistics.step() if statistics else torch.enable_grad():
                ids = batch(at)
                loss = model.loss(ids) if isinstance(model, GPT) else model(ids, labels=ids).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
    finally:
        if statistics:
            statistics.close()
    return losses, [
        {(each.stat, name): row for each in step.readings for name, row in zip(each.names, each.rows, strict=True)}
        for step in found
    ]  # fmt: skip


def expect(row, values):
    """Hold a row against the values that it is of."""
    values = values.double().flatten()
    assert (row[0], row[5], row[6]) == pytest.approx(
        (values.numel(), values.min().item(), values.max().item()), rel=1e-5, abs=1e-6
    )
    assert row[1] == pytest.approx(values.mean().item(), rel=1e-5, abs=1e-6)


def test_attention_is_what_a_plain_hook_sees_in_its_probabilities():
    model, seen = gpt(), {}
    for number, block in enumerate(model.blocks):
        block.attention.scores.register_forward_hook(
            lambda module, given, output, number=number: seen.update({number: output.detach().clone()})
        )
    _, [step] = train(model, 1, attention_entropy=1, attention_max=1)
    assert len(step) == 4
    for number, probabilities in seen.items():
        entropy = -(probabilities * probabilities.clamp_min(1e-38).log()).sum(-1)
        expect(step["attention_entropy", f"blocks.{number}.attention"], entropy)
        expect(step["attention_max", f"blocks.{number}.attention"], probabilities.max(-1).values)


def test_where_a_model_gives_none_probabilities_are_those_of_queries_and_keys():
    model, seen = mixtral("sdpa"), {}
    attention = model.model.layers[1].self_attn
    for which in ("q_proj", "k_proj"):
        getattr(attention, which).register_forward_hook(
            lambda module, given, output, which=which: seen.update({which: output.detach()})
        )
    _, [step] = train(model, 1, attention_entropy=1)
    q = seen["q_proj"].view(4, 8, 4, 8).transpose(1, 2)
    k = seen["k_proj"].view(4, 8, 2, 8).transpose(1, 2).repeat_interleave(2, 1)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(8)).masked_fill(torch.ones(8, 8).triu(1).bool(), -math.inf)
    log = scores.log_softmax(-1)
    expect(step["attention_entropy", "model.layers.1.self_attn"], -(log.exp() * log.clamp_min(-1e30)).sum(-1))


def test_routers_are_what_a_plain_hook_sees():
    model, seen = mixtral(), {}
    gate = model.model.layers[0].mlp.gate
    gate.register_forward_hook(lambda module, given, output: seen.update(given=given[0].detach().clone()))
    weight = gate.weight.detach().clone()
    _, [step] = train(model, 1, router_entropy=1, router_similarity=1)
    shares = (seen["given"].reshape(-1, 32) @ weight.T).softmax(-1)
    expect(step["router_entropy", "model.layers.0.mlp.gate"], -(shares * shares.log()).sum(-1))
    cosines = torch.nn.functional.cosine_similarity(weight[:, None], weight[None], dim=-1)
    expect(step["router_similarity", "model.layers.0.mlp.gate"], cosines[torch.ones(4, 4).triu(1).bool()])


def test_norms_of_kernels_are_largest_singular_values_before_the_step():
    model = gpt()
    before = {name: each.detach().clone() for name, each in model.named_parameters() if each.ndim == 2}
    _, steps = train(model, 3, stable_rank=1, kernel_norm=1)
    assert {name for _, name in steps[0]} == set(before)
    for name, weight in before.items():
        values = torch.linalg.svdvals(weight)
        norm, rank = (steps[0][stat, name] for stat in ("kernel_norm", "stable_rank"))
        assert norm[:2] == pytest.approx([1, values[0].item()], rel=0.02)
        assert rank[1] == pytest.approx((values.square().sum() / values[0] ** 2).item(), rel=0.04)


def test_power_iteration_comes_closer_from_step_to_step_and_forgets_what_is_no_number():
    weight = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))
    weight[0] += 4
    exact = torch.linalg.svdvals(weight)[0].item()
    iteration = PowerIteration()
    for _ in range(30):
        norm, _ = iteration(weight)
    assert norm.item() == pytest.approx(exact, rel=1e-5)
    assert math.isnan(iteration(weight * float("nan"))[0].item())
    assert iteration(torch.zeros_like(weight))[0].item() == 0
    for _ in range(30):
        norm, _ = iteration(weight)
    assert norm.item() == pytest.approx(exact, rel=1e-3)


def test_what_is_looked_at_is_bounded():
    long = torch.full((2, 1, 500, 500), 1 / 500)
    assert attention_entropy(long).shape == (2, 1, MOST_ROWS)
    assert attention_entropy(long)[0, 0, 0].item() == pytest.approx(math.log(500))
    assert attention_largest(torch.eye(3)).tolist() == [1, 1, 1]
    query = torch.randn(9, 200, 8)
    probabilities = attention_probabilities(query, query[..., :4], 4)
    assert probabilities.shape == (4, 2, MOST_ROWS, 200)
    # The last row is among them, and sees everything.
    assert (probabilities[:, :, -1] > 0).all()
    assert (probabilities[:, :, 0, 1:] == 0).all()


def test_scores_that_are_not_shares_are_made_to_be():
    assert router_entropy(torch.full((3, 4), 0.9)).tolist() == pytest.approx([math.log(4)] * 3)
    assert router_similarity(torch.ones(3, 5)).tolist() == pytest.approx([1, 1, 1])


def test_parameters_before_the_step_and_the_direction_of_gradients_are_those_of_plain_torch():
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    found, expected = [], []
    with megalens.log_statistics(
        model, optimizer, grad=1, param_origin=1, gradient_direction=1, own=found.append, hub=None
    ) as statistics:
        for at in range(1, 4):
            weight = model.blocks[0].mlp.fc1.weight
            before = weight.detach().clone()
            with statistics.step():
                model.loss(batch(at)).backward()
                mean = optimizer.state[weight].get("exp_avg") if weight in optimizer.state else None
                share = None if mean is None else (((weight.grad * mean).sign().mean() + 1) / 2).item()
                expected.append((before, share))
                optimizer.step()
                optimizer.zero_grad()
    for step, (before, share) in zip(found, expected, strict=True):
        given = {each.stat: dict(zip(each.names, each.rows, strict=True)) for each in step.readings}
        expect(given["param_origin"]["blocks.0.mlp.fc1.weight"], before)
        direction = given.get("gradient_direction", {}).get("blocks.0.mlp.fc1.weight")
        if share is None:
            assert direction is None
        else:
            assert direction[:2] == pytest.approx([1, share], abs=1e-5)


def test_losses_are_the_same_to_the_last_bit():
    plain, _ = train(gpt(), 6)
    watched, steps = train(gpt(), 6, **dict.fromkeys((*ALL, "param_origin", "gradient_direction"), 1))
    assert plain == watched
    assert len(steps) == 6


def test_what_a_model_has_not_is_said_once_its_first_pass_has_shown_it(tmp_path):
    model = gpt()
    with (
        megalens.log_statistics(model, None, router_entropy=1, hub=None, jsonl=tmp_path) as logger,
        logger.step(),
    ):
        model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    (said,) = [text for text in logger.tracer.status()["warnings"] if "router" in text]
    assert "no router of a mixture of experts was found" in said


def test_all_modules_have_what_plain_hooks_see_of_them():
    model, seen = gpt(), {}

    def see(name):
        def hook(module, given, output):
            seen["activation", f"{name}/input0"] = given[0].detach().clone()
            seen["activation", f"{name}/output0"] = output.detach().clone()
            if output.requires_grad:
                output.register_hook(lambda gradient: seen.update({("dgrad", f"{name}/output0"): gradient}))

        return hook

    for name, module in model.named_modules():
        if name and list(module.parameters()):
            module.register_forward_hook(see(name))
    plain, _ = train(gpt(), 3)
    losses, steps = train(model, 3, activation=1, dgrad=1, sites="all")
    assert losses == plain
    checked = 0
    for (stat, name), values in seen.items():
        if values.is_floating_point() and "head" not in name:
            expect(steps[-1][stat, name], values)
            checked += 1
    assert checked > 40
    assert {name for _, name in steps[-1]} >= {"blocks.1/output0", "blocks.0.norm1/input0", "norm/output0"}


def test_sites_are_one_of_two_words():
    with pytest.raises(TracerError, match="sites=… must be one of projections, all, got 'some'"):
        train(gpt(), 1, activation=1, sites="some")
