"""Megatron-Core's GPT models, as one rank of a tensor-, pipeline- and data-parallel job holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..protocol import EMBEDDING
from ..protocol.messages_generated import Model
from ..tracer import FlagPoints, ModelPoints, RankCoordinates, Shards, Source, TracerError
from .feature_parts import HALVES, Shares
from .megatron_observation import Observations, router_probabilities
from .megatron_ranks import is_megatron, model_chunks, parallel_state
from .sizes import described
from .table import find, sites_of

_MOE = (
    "Layer {layer} is a mixture of experts: its first linear layers see different tokens each, so that "
    "there is no one tensor."
)


class MegatronAdapter:
    """Trace points of ``megatron.core`` GPT models: bare, or in its DDP, Float16Module or FSDP; with virtual
    stages, the list of model chunks.

    Nothing of Megatron-Core is imported: where the process stands is read from
    ``megatron.core.parallel_state``, which the training has imported.
    """

    name = "megatron core"

    def fits(self, model: nn.Module | Sequence[nn.Module]) -> bool:
        """Return whether ``model``, or every chunk in it, is a GPT model of Megatron-Core."""
        chunks = model_chunks(model)
        return bool(chunks) and all(map(_is_gpt, chunks))

    def points(self, model: nn.Module | Sequence[nn.Module]) -> ModelPoints:
        """Return the trace points that are on this rank; raises ``TracerError`` for any other model."""
        if not self.fits(model):
            raise TracerError(
                f"For the adapter {self.name!r} the model must be a GPT model of Megatron-Core, or the "
                f"list of its model chunks, got a {type(model).__name__}."
            )
        chunks = model_chunks(model)
        config: Any = chunks[0].config
        coords = _coordinates(config, len(chunks))
        observations = Observations.of(chunks, coords.tp)
        decoders: list[Any] = [chunk.decoder for chunk in chunks]
        layers = {int(layer.layer_number) - 1: layer for decoder in decoders for layer in decoder.layers}
        makers: dict[str, Callable[[nn.Module], Source | str]] = {
            "QKV_mat_mul": lambda layer: _qkv(layer, config, coords),
            "RawAttentionScore_mat_mul": _probabilities,
            "ContextLayer_mat_mul": lambda layer: _context(layer, config),
            "MLP1_mat_mul": lambda layer: _mlp1(layer, config),
            "MLP2_mat_mul": lambda layer: _output(layer, _mlp2_path(layer), config, coords),
            "AttentionOutput_mat_mul": lambda layer: _output(layer, "self_attention", config, coords),
            "HiddenStates": lambda layer: _hidden(layer, config, coords, observations),
        }
        flags = {flag: _points(layers, make) for flag, make in makers.items()}
        flags["InputTokens"] = _tokens(chunks)
        if observations is not None and config.num_moe_experts:
            flags["RouterProbabilities"] = router_probabilities(
                layers, int(config.num_moe_experts), _cut(config, coords), observations
            )
        sites = sites_of(
            weight={number: _linears(layer) for number, layer in layers.items()},
            # The experts' outputs are put together by the layer that holds them.
            calculation={number: [_below(layer, _mlp2_path(layer))] for number, layer in layers.items()},
            system={number: [layer] for number, layer in layers.items()},
        )
        return ModelPoints(tuple(chunks), _described(chunks, config, coords), flags, sites, coords)


def _is_gpt(model: nn.Module) -> bool:
    return (
        is_megatron(model)
        and isinstance(getattr(getattr(model, "decoder", None), "layers", None), nn.ModuleList)
        and hasattr(model, "config")
    )


def _coordinates(config: Any, chunks: int) -> RankCoordinates:
    if (state := parallel_state()) is None:
        return RankCoordinates(vpp_size=chunks)
    distributed = torch.distributed
    return RankCoordinates(
        rank=distributed.get_rank(),
        tp=state.get_tensor_model_parallel_rank(),
        pp=state.get_pipeline_model_parallel_rank(),
        # Ranks of a context-parallel group see other positions: each stands for itself, like a replica.
        dp=state.get_data_parallel_rank(with_context_parallel=True),
        tp_ranks=tuple(distributed.get_process_group_ranks(state.get_tensor_model_parallel_group())),
        world_size=distributed.get_world_size(),
        tp_size=state.get_tensor_model_parallel_world_size(),
        pp_size=state.get_pipeline_model_parallel_world_size(),
        dp_size=state.get_data_parallel_world_size(with_context_parallel=True),
        vpp_size=chunks,
        ep_size=state.get_expert_model_parallel_world_size(),
        cp_size=state.get_context_parallel_world_size(),
    )


def _described(chunks: Sequence[nn.Module], config: Any, coords: RankCoordinates) -> Model:
    first = next((parameter for chunk in chunks for parameter in chunk.parameters()), None)
    count = None
    if coords.pp_size == coords.ep_size == 1:
        # What other stages and other experts' ranks hold cannot be counted here.
        count = sum(
            parameter.numel() * (coords.tp_size if getattr(parameter, "tensor_model_parallel", False) else 1)
            for chunk in chunks
            for parameter in chunk.parameters()
        )
    return described(
        type(chunks[0]).__name__,
        MegatronAdapter.name,
        int(config.num_layers),
        first,
        hidden=int(config.hidden_size),
        heads=int(config.num_attention_heads),
        kv_heads=int(config.num_query_groups or config.num_attention_heads),
        vocabulary=int(getattr(chunks[0], "vocab_size", 0)) or None,
        parameters=count,
    )


def _points(layers: dict[int, nn.Module], make: Callable[[nn.Module], Source | str]) -> FlagPoints:
    found: dict[int, tuple[Source, ...]] = {}
    # Without a reason, what this stage lacks is taken to be on another one.
    reason: str | None = None
    for number, layer in sorted(layers.items()):
        made = make(layer)
        if isinstance(made, Source):
            found[number] = (made,)
        elif made:
            reason = reason or made.format(layer=number)
    return FlagPoints(found, reason)


def _linears(layer: nn.Module) -> list[nn.Module | None]:
    of_mlp = [
        module
        for name, module in layer.named_modules()
        if name.startswith("mlp.") and name.endswith((".linear_fc1", ".linear_fc2"))
    ]
    return [*(_below(layer, f"self_attention.linear_{name}") for name in ("qkv", "proj")), *of_mlp]


def _below(layer: nn.Module, path: str) -> nn.Module | None:
    """Return a submodule; None where the layer has none, or only a stand-in that does nothing."""
    module = find(layer, path)
    return None if type(module).__name__ in ("IdentityOp", "IdentityFuncOp") else module


# One maker per flag, each for one layer: where it is, or why nowhere. All are laid out [S, B, *] but the
# probabilities.


def _qkv(layer: nn.Module, config: Any, coords: RankCoordinates) -> Source | str:
    module = _below(layer, "self_attention.linear_qkv")
    heads, groups = int(config.num_attention_heads), int(config.num_query_groups)
    if module is None:
        return "The attention of layer {layer} has no fused linear_qkv."
    if getattr(config, "attention_output_gate", False):
        return (
            "The attention of layer {layer} computes a gate beside queries, keys and values, which is not "
            "known here."
        )
    head = int(config.kv_channels)
    of_group = Shares((heads // groups * head, head, head))
    made = _cut_by_features(
        module, heads * head, groups * head, groups * head, parts=("q", "k", "v"), split=of_group
    )
    if groups < coords.tp_size:
        return replace(made, split=_PartOfGroup(of_group, coords.tp), shards="uneven")
    return made


def _cut_by_features(module: nn.Module, *features: int, **more: Any) -> Source:
    return Source(module, features=features, sequence_first=True, shards="features", **more)


def _probabilities(layer: nn.Module) -> Source | str:
    core = _below(layer, "self_attention.core_attention")
    module = None if core is None else _below(core, "scale_mask_softmax")
    if module is None:
        kind = "nothing" if core is None else type(core).__name__
        return (
            f"The attention of layer {{layer}} is computed by {kind}, which gives no probabilities; the "
            "local layer spec's does."
        )
    return Source(module, shards="heads")


def _context(layer: nn.Module, config: Any) -> Source | str:
    module = _below(layer, "self_attention.linear_proj")
    if module is None:
        return "The attention of layer {layer} has no linear_proj."
    latent = getattr(config, "multi_latent_attention", False)
    head = int(config.v_head_dim if latent else config.kv_channels)
    return _cut_by_features(module, head * int(config.num_attention_heads), side="input")


def _mlp1(layer: nn.Module, config: Any) -> Source | str:
    module = _below(layer, "mlp.linear_fc1")
    if module is None:
        if _below(layer, "mlp.experts") is None:
            return "Layer {layer} has no mlp.linear_fc1."
        pattern = getattr(config, "moe_layer_freq", 1)
        mixed = not all(pattern) if isinstance(pattern, list) else pattern != 1
        # Layers of other stages have one where not all are of this kind.
        return "" if mixed else _MOE
    width = int(config.ffn_hidden_size)
    if config.gated_linear_unit:
        return _cut_by_features(module, width, width, parts=("gate", "up"), split=HALVES)
    return _cut_by_features(module, width)


def _mlp2_path(layer: nn.Module) -> str:
    return "mlp" if _below(layer, "mlp.experts") is not None else "mlp.linear_fc2"


def _output(layer: nn.Module, path: str, config: Any, coords: RankCoordinates) -> Source | str:
    module = _below(layer, path)
    if module is None:
        return f"Layer {{layer}} has no {path}."
    return _hidden(module, config, coords)


def _hidden(
    module: nn.Module, config: Any, coords: RankCoordinates, observations: Observations | None = None
) -> Source:
    return Source(
        module,
        features=(int(config.hidden_size),),
        sequence_first=True,
        shards=_cut(config, coords),
        observed=None if observations is None else observations.after(module),
    )


def _cut(config: Any, coords: RankCoordinates) -> Shards:
    return "sequence" if config.sequence_parallel and coords.tp_size > 1 else "none"


def _tokens(chunks: Sequence[nn.Module]) -> FlagPoints:
    for chunk in chunks:
        # The last stage has an embedding as well where it predicts several tokens.
        if getattr(chunk, "pre_process", True) and isinstance(
            embedding := getattr(chunk, "embedding", None), nn.Module
        ):
            given = partial(Source, embedding, side="input")
            positions = given(item=1, keyword="position_ids", parts=("positions",), like_ids=True)
            return FlagPoints({EMBEDDING: (given(keyword="input_ids", parts=("ids",)), positions)})
    return FlagPoints({})


@dataclass(frozen=True)
class _PartOfGroup:
    """Cut one rank's part of a group that lies on several: some queries, key or value features."""

    groups: Shares
    tp: int

    def __call__(self, data: Tensor) -> Sequence[Tensor]:
        width = data.shape[-1]
        # A rank's features never reach into a second group: several ranks share one.
        first = self.tp * width % sum(self.groups.shares)
        parts, begin = [], 0
        for size in self.groups.shares:
            low, high = (min(max(edge - first, 0), width) for edge in (begin, begin + size))
            parts.append(data[..., low:high])
            begin += size
        return parts
