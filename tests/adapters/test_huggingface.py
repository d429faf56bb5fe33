"""Hugging Face families, randomly initialised, against their own outputs and weights."""

import pytest
import torch
import transformers

from megalens.adapters import find_adapter


def gpt2(**options):
    config = transformers.GPT2Config(
        vocab_size=60, n_positions=16, n_embd=24, n_layer=2, n_head=4, attn_implementation="eager", **options
    )
    return transformers.GPT2LMHeadModel(config).eval()


def like_llama(kind: str, **options):
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=60,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        max_position_embeddings=16,
        **{"attn_implementation": "eager", **options},
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


IDS = torch.randint(0, 60, (2, 9), generator=torch.Generator().manual_seed(5))


@pytest.mark.slow
def test_gpt2_is_found_and_every_flag_is_what_the_model_itself_gives(capture_all) -> None:
    model = gpt2()
    traced, _, output = capture_all(
        model, lambda: model(IDS, output_attentions=True, output_hidden_states=True)
    )
    block = model.transformer.h[1]
    with torch.no_grad():
        before = output.hidden_states[1]
        fused = block.ln_1(before) @ block.attn.c_attn.weight + block.attn.c_attn.bias
        context = (
            (output.attentions[1] @ fused[..., 48:].view(2, 9, 4, 6).transpose(1, 2))
            .transpose(1, 2)
            .reshape(2, 9, 24)
        )
        attention = context @ block.attn.c_proj.weight + block.attn.c_proj.bias
        fc1 = block.ln_2(before + attention) @ block.mlp.c_fc.weight + block.mlp.c_fc.bias
        fc2 = block.mlp.act(fc1) @ block.mlp.c_proj.weight + block.mlp.c_proj.bias
    expected = {
        ("QKV_mat_mul", "q"): fused[..., :24],
        ("QKV_mat_mul", "k"): fused[..., 24:48],
        ("QKV_mat_mul", "v"): fused[..., 48:],
        ("RawAttentionScore_mat_mul", ""): output.attentions[1],
        ("ContextLayer_mat_mul", ""): context,
        ("AttentionOutput_mat_mul", ""): attention,
        ("MLP1_mat_mul", ""): fc1,
        ("MLP2_mat_mul", ""): fc2,
        ("HiddenStates", ""): before + attention + fc2,
    }
    for (flag, part), value in expected.items():
        torch.testing.assert_close(traced[flag, 1, part], value, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(traced["HiddenStates", 0, ""], output.hidden_states[1])
    torch.testing.assert_close(traced["RawAttentionScore_mat_mul", 0, ""], output.attentions[0])
    assert traced["InputTokens", -1, "ids"].tolist() == IDS.tolist()
    assert traced["InputTokens", -1, "positions"].tolist() == [list(range(9))] * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3", "Mistral"])
def test_the_llama_family_is_found_with_grouped_queries_and_gated_mlps(kind: str, capture_all) -> None:
    model = like_llama(kind)
    traced, _, output = capture_all(
        model, lambda: model(IDS, output_attentions=True, output_hidden_states=True)
    )
    layer = model.model.layers[1]
    with torch.no_grad():
        before = output.hidden_states[1]
        normal = layer.input_layernorm(before)
        q, k, v = (getattr(layer.self_attn, f"{name}_proj")(normal) for name in "qkv")
        # Each key-value head serves two query heads.
        values = v.view(2, 9, 2, 6).transpose(1, 2).repeat_interleave(2, dim=1)
        context = (output.attentions[1] @ values).transpose(1, 2).reshape(2, 9, 24)
        attention = context @ layer.self_attn.o_proj.weight.T
        normal = layer.post_attention_layernorm(before + attention)
        gate, up = normal @ layer.mlp.gate_proj.weight.T, normal @ layer.mlp.up_proj.weight.T
        fc2 = (torch.nn.functional.silu(gate) * up) @ layer.mlp.down_proj.weight.T
    expected = {
        ("QKV_mat_mul", "q"): q,
        ("QKV_mat_mul", "k"): k,
        ("QKV_mat_mul", "v"): v,
        ("RawAttentionScore_mat_mul", ""): output.attentions[1],
        ("ContextLayer_mat_mul", ""): context,
        ("AttentionOutput_mat_mul", ""): attention,
        ("MLP1_mat_mul", "gate"): gate,
        ("MLP1_mat_mul", "up"): up,
        ("MLP2_mat_mul", ""): fc2,
        ("HiddenStates", ""): before + attention + fc2,
    }
    for (flag, part), value in expected.items():
        torch.testing.assert_close(traced[flag, 1, part], value, rtol=1e-4, atol=1e-5)
    assert traced["QKV_mat_mul", 0, "k"].shape == (2, 9, 12)
    assert traced["InputTokens", -1, "positions"].tolist() == [list(range(9))] * 2


@pytest.mark.slow
def test_attention_without_probabilities_says_what_to_set() -> None:
    model = like_llama("Llama", attn_implementation="sdpa")
    here = find_adapter(model).points(model).flags["RawAttentionScore_mat_mul"]
    assert not here.layers
    assert "attn_implementation='eager'" in here.reason


def test_a_bare_model_and_sizes_are_found(capture_all) -> None:
    model = like_llama("Qwen3").model
    points = find_adapter(model).points(model)
    sizes = {key: points.model[key] for key in ("layers", "hidden", "heads", "kv_heads", "vocabulary")}
    assert sizes == {"layers": 2, "hidden": 24, "heads": 4, "kv_heads": 2, "vocabulary": 60}
    assert points.flags["QKV_mat_mul"].features == 24 + 12 + 12
    assert points.flags["QKV_mat_mul"].parts == ("q", "k", "v")
    assert points.flags["MLP1_mat_mul"].parts == ("gate", "up")
    traced, _, _ = capture_all(model, lambda: model(input_ids=IDS))
    assert traced["InputTokens", -1, "ids"].tolist() == IDS.tolist()
