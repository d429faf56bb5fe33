"""Tiny models of Hugging Face with random weights, and where their tensors are by their own modelling code, written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tests.corpus.family_models import HEADS, small_config

LAYERS = 2
GROUPED = {"num_key_value_heads": 2}
_EYES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}  # fmt: skip

Cut = Callable[[Tensor], dict[str, Tensor]]


def concatenated(q: int, k: int, v: int) -> Cut:
    """``torch.split`` of the last axis: GPT-2, Phi-3, MPT."""
    return lambda data: dict(zip("qkv", data.split((q, k, v), -1), strict=True))


def by_head(data: Tensor) -> dict[str, Tensor]:
    """``view(batch, length, heads, 3, head)``: GPT-NeoX, Bloom, Falcon with ALiBi, Persimmon."""
    heads = data.view(*data.shape[:2], HEADS, 3, -1)
    return {part: heads[..., i, :].flatten(2) for i, part in enumerate("qkv")}


def by_group(data: Tensor) -> dict[str, Tensor]:
    """Falcon's new layout: of each group its queries, its key, its value."""
    groups = data.view(*data.shape[:2], 2, HEADS // 2 + 2, -1)
    return {
        "q": groups[..., :-2, :].flatten(2),
        "k": groups[..., -2, :].flatten(2),
        "v": groups[..., -1, :].flatten(2),
    }


def in_blocks(data: Tensor) -> dict[str, Tensor]:
    """CodeGen's four blocks, each of queries, values and keys."""
    blocks = data.view(*data.shape[:2], 4, 3, -1)
    return {part: blocks[..., i, :].flatten(2) for part, i in (("q", 0), ("k", 2), ("v", 1))}


def latent(data: Tensor) -> dict[str, Tensor]:
    """DeepSeek's keys (without position) and values, by head."""
    heads = data.reshape(2, 9, HEADS, 16)
    return {"k": heads[..., :8].flatten(2), "v": heads[..., 8:].flatten(2)}


@dataclass(frozen=True)
class Layout:
    """Paths below a layer."""

    stack: str = "model.layers"
    tokens: str = "model.embed_tokens"
    attention: str = "self_attn"
    whole: str | None = None
    """Module whose output is the attention's, where ``attention`` adds more to it."""
    q: str | None = "q_proj"
    k: str | None = "k_proj"
    v: str | None = "v_proj"
    fused: str | None = None
    cut: Cut | None = None
    context: str = "o_proj"
    mlp1: dict[str, str] = field(default_factory=lambda: {"gate": "mlp.gate_proj", "up": "mlp.up_proj"})
    """Part: path. One path for both is cut in halves."""
    mlp2: str = "mlp.down_proj"
    router: tuple[str, int] | None = None
    """Path, and place of the logits in what it gives."""
    sigmoid: bool = False
    dense: int = 0
    """How many first layers are no mixture."""


LLAMA = Layout()
HALVES = replace(LLAMA, mlp1={"gate": "mlp.gate_up_proj", "up": "mlp.gate_up_proj"})
PLAIN_MLP = {"": "mlp.c_fc"}
GPT2 = Layout(
    "transformer.h",
    "transformer.wte",
    "attn",
    fused="c_attn",
    cut=concatenated(32, 32, 32),
    context="c_proj",
    mlp1=PLAIN_MLP,
    mlp2="mlp.c_proj",
)
GPTJ = Layout(
    "transformer.h", "transformer.wte", "attn", context="out_proj", mlp1={"": "mlp.fc_in"}, mlp2="mlp.fc_out"
)
NEOX = Layout(
    "gpt_neox.layers", "gpt_neox.embed_in", "attention", fused="query_key_value", cut=by_head, context="dense", mlp1={"": "mlp.dense_h_to_4h"}, mlp2="mlp.dense_4h_to_h"
)  # fmt: skip
FALCON = replace(
    NEOX, stack="transformer.h", tokens="transformer.word_embeddings", attention="self_attention"
)
MIXTURE = replace(LLAMA, mlp1={}, mlp2="mlp", router=("mlp.gate", 0))
DEEPSEEK = replace(
    LLAMA, q="q_b_proj", k=None, v=None, fused="kv_b_proj", cut=latent, router=("mlp.gate", 0), dense=1
)

Model = tuple[str, dict[str, Any], Layout]
MODELS: dict[str, Model] = {
    "gpt2": ("GPT2LMHead", {}, GPT2),
    "gpt-bigcode, one key": ("GPTBigCode", {}, replace(GPT2, cut=concatenated(32, 8, 8))),
    "gpt-bigcode, many keys": ("GPTBigCode", {"multi_query": False}, replace(GPT2, cut=by_head)),
    "gpt-neo": (
        "GPTNeo",
        {"attention_types": [[["global", "local"], 1]]},
        replace(GPT2, attention="attn.attention", fused=None, cut=None, context="out_proj"),
    ),
    "gpt-j": ("GPTJ", {}, GPTJ),
    "codegen": ("CodeGen", {}, replace(GPTJ, fused="qkv_proj", cut=in_blocks)),
    "gpt-neox": ("GPTNeoX", {}, NEOX),
    "gpt-neox, one after the other": ("GPTNeoX", {"use_parallel_residual": False}, NEOX),
    "opt": (
        "OPT",
        {},
        Layout(
            "model.decoder.layers",
            "model.decoder.embed_tokens",
            context="out_proj",
            mlp1={"": "fc1"},
            mlp2="fc2",
        ),
    ),
    "bloom": ("Bloom", {}, replace(FALCON, whole="dense")),
    "falcon, one key": ("Falcon", {"multi_query": True}, replace(FALCON, cut=concatenated(32, 8, 8))),
    "falcon, groups": (
        "Falcon",
        {"num_kv_heads": 2, "new_decoder_architecture": True},
        replace(FALCON, cut=by_group),
    ),
    "falcon, alibi": ("Falcon", {"alibi": True, "multi_query": False, "parallel_attn": False}, FALCON),
    "mpt": (
        "Mpt",
        {},
        Layout(
            "transformer.blocks",
            "transformer.wte",
            "attn",
            fused="Wqkv",
            cut=concatenated(32, 32, 32),
            context="out_proj",
            mlp1={"": "ffn.up_proj"},
            mlp2="ffn.down_proj",
        ),
    ),
    "phi": ("Phi", GROUPED, replace(LLAMA, context="dense", mlp1={"": "mlp.fc1"}, mlp2="mlp.fc2")),
    "phi-3": ("Phi3", GROUPED, replace(HALVES, fused="qkv_proj", cut=concatenated(32, 16, 16))),
    "llama": ("Llama", GROUPED, LLAMA),
    "mistral": ("Mistral", {}, LLAMA),
    "qwen2": ("Qwen2", GROUPED, LLAMA),
    "qwen3": ("Qwen3", GROUPED, LLAMA),
    "gemma": ("Gemma", GROUPED, LLAMA),
    "gemma2": ("Gemma2", {}, LLAMA),
    "gemma3": ("Gemma3", {"config": "Gemma3Text"}, LLAMA),
    "starcoder2": ("Starcoder2", {}, replace(LLAMA, mlp1=PLAIN_MLP, mlp2="mlp.c_proj")),
    "stablelm": ("StableLm", GROUPED, LLAMA),
    "olmo2": ("Olmo2", GROUPED, LLAMA),
    "cohere": ("Cohere", GROUPED, LLAMA),
    "granite": ("Granite", GROUPED, LLAMA),
    "persimmon": (
        "Persimmon",
        {},
        replace(NEOX, stack="model.layers", tokens="model.embed_tokens", attention="self_attn"),
    ),
    "nemotron": ("Nemotron", GROUPED, replace(LLAMA, mlp1={"": "mlp.up_proj"})),
    "glm": ("Glm", {}, HALVES),
    "glm-4": ("Glm4", {}, HALVES),
    "smollm3": ("SmolLM3", {}, LLAMA),
    "ernie 4.5": ("Ernie4_5", {}, LLAMA),
    "mixtral": ("Mixtral", {}, MIXTURE),
    "qwen2-moe": ("Qwen2Moe", GROUPED, MIXTURE),
    "qwen3-moe": ("Qwen3Moe", {}, MIXTURE),
    "olmoe": ("Olmoe", GROUPED, MIXTURE),
    "gpt-oss": ("GptOss", {}, replace(MIXTURE, router=("mlp.router", 0))),
    "deepseek v2": ("DeepseekV2", {"num_experts_per_tok": 2, "first_k_dense_replace": 1}, DEEPSEEK),
    "deepseek v3": ("DeepseekV3", {"n_group": 2}, replace(DEEPSEEK, sigmoid=True)),
    "glm-4-moe": ("Glm4Moe", {}, replace(LLAMA, router=("mlp.gate", 0), sigmoid=True, dense=1)),
    "phi-moe": ("Phimoe", {}, replace(MIXTURE, router=("mlp.router", 0))),
    "granite-moe": (
        "GraniteMoe",
        GROUPED,
        replace(MIXTURE, mlp2="block_sparse_moe", router=("block_sparse_moe.router", 0)),
    ),
    "llama 4": (
        "Llama4",
        {
            "config": "Llama4Text",
            "intermediate_size_mlp": 48,
            "interleave_moe_layer_step": 2,
            "moe_layers": None,
        },
        replace(
            LLAMA,
            mlp1={"gate": "feed_forward.gate_proj", "up": "feed_forward.up_proj"},
            mlp2="feed_forward.down_proj",
            router=("feed_forward.router", 1),
            sigmoid=True,
            dense=1,
        ),
    ),
}


def _seeing(kind: str, **options: Any) -> nn.Module:
    """Build a model that sees, with a language part of two layers."""
    config = getattr(transformers, f"{kind}Config")(**options)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


if not hasattr(transformers.models.granitemoe.modeling_granitemoe, "GraniteMoeTopKRouter"):
    # Up to 5.12, the last that takes safetensors below 0.8, its experts are a pair of layers that no other has;
    # they are found in the first pass.
    del MODELS["granite-moe"]

SEEING: dict[str, Callable[[], nn.Module]] = {
    "llava": lambda: _seeing(
        "Llava",
        text_config=small_config("llama", **GROUPED),
        vision_config=transformers.CLIPVisionConfig(**_EYES),
        image_token_id=5,
    ),
    "gemma3": lambda: _seeing(
        "Gemma3", text_config=small_config("gemma3_text"), vision_config=_EYES, mm_tokens_per_image=4
    ),
    "qwen2-vl": lambda: _seeing(
        "Qwen2VL",
        text_config=small_config(
            "qwen2_vl_text",
            **GROUPED,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
        ),
        vision_config={"embed_dim": 16, "hidden_size": 32, "depth": 2, "num_heads": 2},
    ),
}
"""Models that see, by what makes one; their language part is laid out like Llama."""
LANGUAGE = replace(LLAMA, stack="model.language_model.layers", tokens="model.language_model.embed_tokens")
EAGER_ONLY = {"gpt-neo", "gpt-j", "codegen", "bloom", "mpt", "gemma2", "gpt-oss"}
"""Models that compute attention in no other way."""
LIKE_OTHERS = {
    *(
        "gpt-neox, one after the other",
        "mistral",
        "qwen2",
        "gemma",
        "gemma3",
        "stablelm",
        "cohere",
        "granite",
    ),
    *("glm-4", "smollm3", "ernie 4.5", "qwen2-moe", "olmoe"),
}
"""Models whose tensors lie as those of another one: by name and shape nothing of them is other."""
LAYOUTS = [name for name in MODELS if name not in LIKE_OTHERS]
WAYS = [(name, "eager") for name in LAYOUTS] + [(name, "sdpa") for name in LAYOUTS if name not in EAGER_ONLY]


def tiny_model(name: str, attention: str) -> nn.Module:
    """Build one of ``MODELS``; ``attention`` is how it computes attention."""
    kind, options, _ = MODELS[name]
    options = dict(options)
    config = options.pop("config", kind.removesuffix("LMHead"))
    built = small_config(getattr(transformers, f"{config}Config").model_type, **options)
    built._attn_implementation = attention
    torch.manual_seed(0)
    model = getattr(transformers, kind + ("Model" if kind.endswith("LMHead") else "ForCausalLM"))(built)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model
