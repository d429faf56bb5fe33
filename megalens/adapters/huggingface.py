"""Hugging Face models: GPT-2, and the family that is laid out like Llama (Llama, Mistral, Qwen2, Qwen3)."""

from __future__ import annotations

from torch import nn

from .adapter import Adapter

__all__ = ["GPT2_TABLE", "LLAMA_TABLE"]


def _probabilities_missing(model: nn.Module, flag: str) -> str | None:
    """Say why attention probabilities cannot be seen: only the eager implementation returns them."""
    if flag != "RawAttentionScore_mat_mul":
        return None
    kind = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if kind in (None, "eager"):
        return None
    return (
        f"This model computes attention with {kind}, which gives no probabilities. "
        "Load it with attn_implementation='eager', or call model.set_attn_implementation('eager') before tracing."
    )


GPT2_TABLE = Adapter(
    name="huggingface gpt2",
    layer="h.{i}",
    attention="attn",
    qkv="attn.c_attn",
    context="attn.c_proj",
    probabilities="attn[1]",
    fc1="mlp.c_fc",
    fc2="mlp.c_proj",
    tokens="wte",
    positions="wpe",
    prefixes=("transformer.", ""),
    missing=_probabilities_missing,
)
"""``GPT2Model`` and the models with a head on it."""

LLAMA_TABLE = Adapter(
    name="huggingface llama",
    layer="layers.{i}",
    attention="self_attn",
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
    context="self_attn.o_proj",
    probabilities="self_attn[1]",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    fc2="mlp.down_proj",
    tokens="embed_tokens",
    positions="rotary_emb[1]",
    prefixes=("model.", ""),
    missing=_probabilities_missing,
)
"""``LlamaModel``, ``MistralModel``, ``Qwen2Model``, ``Qwen3Model`` and the models with a head on them."""
