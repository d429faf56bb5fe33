"""A collapse of attention or of a router is named in its step."""

from __future__ import annotations

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

import megalens


def mixtral():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 60}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4}
    return MixtralForCausalLM(MixtralConfig(**sizes, **heads, attn_implementation="eager"))


def batch(step):
    return torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("fault", [None, "attention", "router"])
def test_a_collapse_is_found_in_its_step(fault):
    model = mixtral()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    wanted = (
        "attention_entropy",
        "attention_max",
        "router_entropy",
        "router_similarity",
        "stable_rank",
        "kernel_norm",
    )
    with megalens.monitor(model, optimizer, hub=None, **dict.fromkeys(wanted, 1)) as monitor:
        for at in range(1, 25):
            with monitor.step():
                if at == 20 and fault:
                    with torch.no_grad():
                        attention = model.model.layers[1].self_attn
                        weights = (attention.q_proj.weight, attention.k_proj.weight)
                        for each in (
                            weights if fault == "attention" else [model.model.layers[1].mlp.gate.weight]
                        ):
                            each.mul_(1000)
                ids = batch(at)
                model(ids, labels=ids).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    found = [(a.step, a.rule, a.name) for a in monitor.alarms if a.rule == fault]
    where = {"attention": "self_attn", "router": "mlp.gate"}.get(fault)
    assert found == ([(20, fault, f"model.layers.1.{where}")] if fault else [])
    if fault is None:
        assert monitor.alarms == []
