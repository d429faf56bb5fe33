"""What a step sends is what the panel forecasts: `protocol/fixtures/sizes.json` says what was measured."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from megalens.demo.model import GPT, GPTConfig

CASES = json.loads(
    (Path(__file__).parents[2] / "protocol" / "fixtures" / "sizes.json").read_text(encoding="utf-8")
)
STEPS = 8


def _gpt() -> tuple[torch.nn.Module, torch.Tensor]:
    model = GPT(GPTConfig(vocabulary=50, layers=3, hidden=96, heads=6, sequence=72))
    return model, torch.randint(0, 50, (2, 72))


def _llama() -> tuple[torch.nn.Module, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=80,
        intermediate_size=176,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config), torch.randint(0, 64, (3, 50))


def _gpt2() -> tuple[torch.nn.Module, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=112, n_layer=5, n_head=7, n_positions=128, attn_implementation="eager"
    )
    # Of probabilities that dropout has changed nothing is shown.
    return transformers.GPT2LMHeadModel(config).eval(), torch.randint(0, 64, (2, 120))


MODELS = {"gpt": _gpt, "llama": _llama, "gpt2": _gpt2}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['model']}-{'-'.join(case['config'])}")
def test_a_step_sends_what_was_measured(case, traced, small_hub, tmp_path, monkeypatch) -> None:
    model, ids = MODELS[case["model"]]()
    # A row names the file of a projection: a short name is as long on every machine.
    monkeypatch.chdir(tmp_path)
    np.save("vectors.npy", np.ones((3, 96), np.float32) / np.sqrt(96, dtype=np.float32))
    tracer = traced(model, flags=case["config"], vectors_folders=[tmp_path])
    traced_flags = [flag for flag in case["flags"] if flag["name"] in case["config"]]
    rows = sum(len(flag["layers"]) * len(flag["parts"]) for flag in traced_flags)
    later = sum(
        len(flag["layers"]) * len(flag["parts"])
        for flag in traced_flags
        if case["model"] == "gpt2" and flag["name"] == "QKV_mat_mul"
    )
    for step in range(STEPS):
        with tracer.step():
            out = model(ids)
            (out if torch.is_tensor(out) else out.logits).square().mean().backward()
        # A step that came is a frame of its own.
        # Parts of one tensor begin with the second, as the first pass shows them.
        small_hub.next_rows(rows if step or not later else rows - later)
    assert tracer.status()["bytes_per_step"] == pytest.approx(case["bytes_per_step"], rel=0.02)
