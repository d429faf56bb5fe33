"""Small models of every architecture that transformers lists, with random weights: made by shrinking its
own default config.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import configuration_auto, modeling_auto

WORDS, LENGTH, HEADS, LAYERS, PICTURE = 64, 9, 4, 2, 16
KINDS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "encoder": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "pair": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "vision": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "words": "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES",
}
_MOST_PARAMETERS = 6_000_000
_SIZES: tuple[tuple[int, str], ...] = (
    (
        LAYERS,
        "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_decoder_layers "
        "num_encoder_layers depth num_experts_per_tok moe_topk top_k moe_top_k num_hidden_groups "
        "num_experts_per_token moe_k moe_num_experts_per_token num_block_layers",
    ),
    (
        HEADS,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
        "num_local_experts num_experts n_routed_experts moe_num_experts num_encoder_attention_heads "
        "num_decoder_attention_heads attention_heads num_routed_experts rank_size num_codebooks",
    ),
    (
        2,
        "num_key_value_heads num_kv_heads n_head_kv multi_query_group_num num_key_value_groups "
        "num_shared_experts",
    ),
    (
        32,
        "hidden_size d_model n_embd dim embed_dim emb_dim n_embed embedding_size word_embed_proj_dim "
        "lru_width",
    ),
    (
        8,
        "head_dim d_kv v_head_dim qk_nope_head_dim kv_channels attention_head_size "
        "hidden_size_per_layer_input global_head_dim",
    ),
    (4, "qk_rope_head_dim patch_size conv_kernel d_conv rotary_dim linear_conv_kernel_dim"),
    (
        16,
        "kv_lora_rank q_lora_rank moe_intermediate_size state_size d_state image_size expert_ffn_hidden_size "
        "bottleneck_size",
    ),
    (
        48,
        "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_hidden_size hidden_dim "
        "mlp_hidden_size shared_expert_intermediate_size dense_intermediate_size d_inner inner_dim",
    ),
    (
        WORDS,
        "vocab_size max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length max_length "
        "src_vocab_size tgt_vocab_size decoder_vocab_size vocab_size_per_layer_input",
    ),
    (1, "n_group topk_group first_k_dense_replace n_shared_experts num_channels_latents"),
)
_SIZE_OF = {name: size for size, names in _SIZES for name in names.split()}
_FEWER = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
# Where one size follows from others in a way of the family's own.
_OWN: dict[str, dict[str, Any]] = {
    "mamba2": {"head_dim": 16},
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 16},
    "granitemoehybrid": {"mamba_n_heads": 4, "mamba_d_head": 16},
    "reformer": {"is_decoder": True},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "xmod": {"default_language": "en_XX"},
    "olmo_hybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "swin": {"depths": [2, 2], "num_heads": [2, 4], "window_size": 2, "embed_dim": 16, "image_size": 32},
    "swinv2": {"depths": [2, 2], "num_heads": [2, 4], "window_size": 2, "embed_dim": 16, "image_size": 32},
    "donut-swin": {
        "depths": [2, 2],
        "num_heads": [2, 4],
        "window_size": 2,
        "embed_dim": 16,
        "image_size": 32,
    },
    "segformer": {"image_size": 64},
    "mobilevitv2": {"image_size": 64},
    "longcat_flash": {"num_layers": 2, "ffn_hidden_size": 48},
}
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")


class NotBuiltError(Exception):
    """No small model can be made of this architecture."""


def architectures(kinds: tuple[str, ...] = tuple(KINDS)) -> Iterator[tuple[str, str, str]]:
    """Give kind, model type and class of each architecture; a model type once."""
    seen: set[str] = set()
    for kind in kinds:
        for model_type, name in getattr(modeling_auto, KINDS[kind]).items():
            if model_type not in seen:
                seen.add(model_type)
                yield kind, model_type, name if isinstance(name, str) else name[0]


def small_config(model_type: str, **options: Any) -> Any:
    """Return the default config with few layers, heads, words and features, and with ``options``."""
    kind = configuration_auto.CONFIG_MAPPING[model_type]
    return kind(**{**_smaller(kind()), **_OWN.get(model_type, {}), **options})


def _smaller(config: Any) -> dict[str, Any]:
    """Return what is to be another than the default."""
    changed: dict[str, Any] = {}
    own = config.to_dict()
    layers = next((own[name] for name in _LAYERS if isinstance(own.get(name), int)), None)
    heads = next(
        (
            own[name]
            for name in ("num_attention_heads", "n_head", "n_heads")
            if isinstance(own.get(name), int)
        ),
        None,
    )
    for name, value in own.items():
        if isinstance(value, dict) and hasattr(inner := getattr(config, name, None), "to_dict"):
            changed[name] = {**inner.to_dict(), **_smaller(inner)}
        elif value is None and name in (*_FEWER, "vocab_size"):
            changed[name] = WORDS if name == "vocab_size" else HEADS
        elif isinstance(value, bool) or value is None:
            continue
        elif name == "initializer_range":
            # What is near zero is no longer the same after a norm, whose epsilon then counts.
            changed[name] = 0.2
        elif "drop" in name and isinstance(value, float):
            changed[name] = 0.0
        elif name.endswith("_token_id") and isinstance(value, int) and value >= WORDS:
            changed[name] = 3
        elif name in _SIZE_OF and isinstance(value, int):
            # Where each head has its own key, it still has.
            changed[name] = HEADS if name in _FEWER and value == heads else min(value, _SIZE_OF[name])
        elif name == "layer_types" and isinstance(value, list):
            # One of the first kind, and one of the last.
            kinds = list(dict.fromkeys(value))
            changed[name] = [kinds[0], kinds[-1]]
        elif isinstance(value, list) and len(value) == layers and layers is not None and layers > LAYERS:
            changed[name] = value[:LAYERS]
    if "qk_rope_head_dim" in own and "head_dim" in own:
        changed["head_dim"] = changed["qk_rope_head_dim"]
    if (
        "hidden_size" in changed
        and isinstance(own.get("rope_parameters"), dict)
        and "mrope_section" in own["rope_parameters"]
    ):
        changed["rope_parameters"] = {**own["rope_parameters"], "mrope_section": [2, 1, 1]}
    return changed


def build(model_type: str, class_name: str) -> nn.Module:
    """Return a small model in training mode without dropout; raises ``NotBuiltError``."""
    try:
        kind = getattr(transformers, class_name)
        config = small_config(model_type)
        with torch.device("meta"):
            size = sum(each.numel() for each in _made(kind, config).parameters())
        if size > _MOST_PARAMETERS:
            raise NotBuiltError(f"{size:,} parameters")
        torch.manual_seed(0)
        model = _made(kind, config)
        # Biases of zero would hide a wrong order.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias") and parameter.is_floating_point():
                    parameter.normal_(std=0.1)
        return model.float().train()
    except NotBuiltError:
        raise
    except Exception as error:
        raise NotBuiltError(f"{type(error).__name__}: {str(error)[:220]}") from error


def _made(kind: Any, config: Any) -> nn.Module:
    try:
        return kind._from_config(config, attn_implementation="eager")
    except (ValueError, ImportError):
        return kind(config)


def inputs(model: Any, kind: str) -> dict[str, Tensor]:
    """Return a batch of two samples."""
    generator = torch.Generator().manual_seed(5)
    known = inspect.signature(model.forward).parameters
    if kind == "vision":
        size = getattr(model.config, "image_size", PICTURE) or PICTURE
        wide = (size, size) if isinstance(size, int) else tuple(size)
        return {
            "pixel_values": torch.randn(
                2, getattr(model.config, "num_channels", 3), *wide, generator=generator
            )
        }
    ids = torch.randint(4, WORDS, (2, LENGTH), generator=generator)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if "decoder_input_ids" in known:
        given["decoder_input_ids"] = torch.randint(4, WORDS, (2, LENGTH - 2), generator=generator)
    if "use_cache" in known:
        given["use_cache"] = False  # type: ignore[assignment]
    return {name: value for name, value in given.items() if name in known or name == "input_ids"}
