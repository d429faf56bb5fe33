"""A small GPT of Megatron-Core with the same weights and the same data whatever its layout, trained for a few steps."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from megatron_on_cpu import CPU_CONFIG, let_megatron_train_on_cpu
from shape import MICRO_BATCHES, SAMPLES, SEQUENCE, VOCABULARY, Optimizer, Shape
from torch import Tensor, distributed, nn

let_megatron_train_on_cpu()

# After Megatron-Core was changed.
from context_attention import GatheredAttention, own_positions  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import (  # noqa: E402
    get_gpt_layer_local_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402

__all__ = ["MegatronJob"]

_RATE = 0.1


def micro_batch(step: int, number: int) -> Tensor:
    """Token ids ``[samples, sequence + 1]`` of one micro-batch of the whole job."""
    generator = torch.Generator().manual_seed(1000 * step + number)
    first = torch.randint(0, VOCABULARY, (SAMPLES, 1), generator=generator)
    return (first + torch.arange(SEQUENCE + 1)) % VOCABULARY


class MegatronJob:
    """One process's share of the job. The default process group is up already.

    Parameters
    ----------
    shape : Shape
        The model and its layout.
    optimizer : Optimizer, optional
        Plain gradient descent by hand where there is none.
    """

    def __init__(self, shape: Shape, optimizer: Optimizer | None = None) -> None:
        self.shape = shape
        settings = optimizer or Optimizer()
        dtype = getattr(torch, settings.dtype)
        parallel_state.initialize_model_parallel(
            shape.tp,
            shape.pp,
            virtual_pipeline_model_parallel_size=shape.vpp,
            expert_model_parallel_size=shape.ep,
            expert_tensor_parallel_size=shape.expert_tp,
            context_parallel_size=shape.context,
        )
        model_parallel_cuda_manual_seed(1)
        self.config = config = TransformerConfig(
            num_layers=shape.layers,
            hidden_size=shape.hidden,
            num_attention_heads=shape.heads,
            num_query_groups=shape.groups,
            ffn_hidden_size=2 * shape.hidden,
            gated_linear_unit=shape.swiglu,
            activation_func=nn.functional.silu if shape.swiglu else nn.functional.gelu,
            add_bias_linear=not shape.swiglu and not shape.experts,
            normalization="RMSNorm" if shape.swiglu else "LayerNorm",
            num_moe_experts=shape.experts,
            moe_router_topk=2,
            moe_router_load_balancing_type="none",
            moe_token_dispatcher_type="alltoall",
            mtp_num_layers=shape.predictors,
            moe_shared_expert_intermediate_size=shape.hidden if shape.shared_expert else None,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            tensor_model_parallel_size=shape.tp,
            pipeline_model_parallel_size=shape.pp,
            virtual_pipeline_model_parallel_size=shape.vpp,
            expert_model_parallel_size=shape.ep,
            expert_tensor_parallel_size=shape.expert_tp,
            bf16=dtype is torch.bfloat16,
            fp16=dtype is torch.float16,
            params_dtype=dtype,
            sequence_parallel=shape.sequence_parallel,
            pipeline_dtype=dtype,
            recompute_granularity="full" if shape.recompute else "selective" if shape.recompute_mlp else None,
            recompute_modules=["core_attn", "moe" if shape.experts else "mlp"]
            if shape.recompute_mlp
            else None,
            recompute_method="uniform" if shape.recompute else None,
            recompute_num_layers=1 if shape.recompute else None,
            # Gloo still reads what is sent while the interleaved schedule goes on.
            deallocate_pipeline_outputs=shape.vpp is None,
            # With two interleaved stages both neighbours are the same rank, and batched messages to it would be mixed up.
            overlap_p2p_comm=shape.vpp is not None,
            batch_p2p_comm=shape.vpp is None,
            **CPU_CONFIG,
        )
        stages = range(shape.vpp or 1)
        bare = [self._chunk(config, number if shape.vpp else None) for number in stages]
        for chunk in bare:
            _fill(chunk, shape)
        if (shape.tied or shape.predictors) and shape.pp > 1:
            for chunk in bare:
                # Copies to the last stage what the first one was filled with.
                chunk.setup_embeddings_and_output_layer()
        ddp = DistributedDataParallelConfig(
            overlap_grad_reduce=False,
            use_distributed_optimizer=settings.distributed,
            grad_reduce_in_fp32=dtype is not torch.float32,
        )
        inner = bare if dtype is torch.float32 else [Float16Module(config, chunk) for chunk in bare]
        self.chunks = [DistributedDataParallel(config, ddp, chunk) for chunk in inner]
        config.finalize_model_grads_func = finalize_model_grads
        self.updated: bool | None = None
        self.norm: float | None = None
        self.optimizer = None if optimizer is None else self._optimizer(optimizer)
        config.grad_scale_func = None if self.optimizer is None else self.optimizer.scale_loss

    def _chunk(self, config: TransformerConfig, number: int | None) -> GPTModel:
        spec = get_gpt_layer_local_spec(
            self.shape.experts, moe_grouped_gemm=False, normalization=config.normalization
        )
        if self.shape.cut_sequence:
            spec.submodules.self_attention.submodules.core_attention = GatheredAttention
        predictors = None
        if self.shape.predictors:
            predictors = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False, vp_stage=number)
        return GPTModel(
            config,
            spec,
            VOCABULARY,
            SEQUENCE,
            mtp_block_spec=predictors,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=number),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=number),
            share_embeddings_and_output_weights=self.shape.tied,
            position_embedding_type="rope" if self.shape.swiglu else "learned_absolute",
            vp_stage=number,
        )

    def _optimizer(self, settings: Optimizer) -> Any:
        config = OptimizerConfig(
            optimizer=settings.kind,
            lr=_RATE if settings.kind == "sgd" else _RATE / 100,
            weight_decay=0.0,
            sgd_momentum=0.0,
            clip_grad=settings.clip,
            use_distributed_optimizer=settings.distributed,
            params_dtype=self.config.params_dtype,
            bf16=self.config.bf16,
            fp16=self.config.fp16,
            loss_scale=settings.loss_scale,
        )
        return get_megatron_optimizer(config, self.chunks)

    def train(self, step: int, observer: Any = None) -> float | None:
        """One optimizer step; the mean loss of this replica's micro-batches, where this stage knows it.

        ``observer`` is called as Megatron-LM's training loop calls a ``tensor_metric_observer``.
        """
        here = {"model": self.chunks, "iteration": step - 1, "pg_collection": None}
        observed = nullcontext() if observer is None else observer.observe_forward_backward(**here)
        own_sequences = not self.shape.cut_sequence
        replica, replicas = (
            parallel_state.get_data_parallel_rank(with_context_parallel=own_sequences),
            parallel_state.get_data_parallel_world_size(with_context_parallel=own_sequences),
        )
        share = MICRO_BATCHES // replicas
        numbers = range(replica * share, (replica + 1) * share)
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        with observed:
            losses = get_forward_backward_func()(
                forward_step_func=partial(_forward_step, shape=self.shape),
                data_iterator=[iter([micro_batch(step, number) for number in numbers]) for _ in self.chunks],
                model=self.chunks,
                num_microbatches=share,
                seq_length=SEQUENCE,
                micro_batch_size=SAMPLES,
                forward_only=False,
            )
        if observer is not None:
            observer(optimizer=self.optimizer, **here)
        if self.optimizer is not None:
            self.updated, self.norm, _ = self.optimizer.step()
            self.optimizer.zero_grad()
        else:
            with torch.no_grad():
                for chunk in self.chunks:
                    for parameter in chunk.parameters():
                        parameter -= _RATE * parameter.main_grad
        return float(torch.stack([row["loss"] for row in losses]).mean()) if losses else None

    def close(self) -> None:
        """Give the groups back, with their sockets."""
        parallel_state.destroy_model_parallel()
        everybody = distributed.group.WORLD
        for group in list(distributed.distributed_c10d._world.pg_map):
            if group is not everybody:
                distributed.destroy_process_group(group)


def _forward_step(
    data: Iterator[Tensor], model: nn.Module, shape: Shape
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]]:
    batch = next(data)
    ids, labels = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    mask = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1)
    own = own_positions(SEQUENCE) if shape.cut_sequence else torch.arange(SEQUENCE)
    positions = own.expand(SAMPLES, len(own))
    losses = model(ids[:, own], positions, mask[own][None, None], labels=labels[:, own])
    return losses, partial(_mean, shape.context)


def _mean(parts: int, losses: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    # The schedule adds up what context-parallel ranks have of one loss.
    loss = losses.float().mean() / parts
    # Copied: the schedule divides the loss in place.
    return loss, {"loss": loss.detach().clone()}


def _fill(chunk: GPTModel, shape: Shape) -> None:
    """Give every parameter its piece of a whole one that depends on nothing but its name over all stages and experts."""
    dense = (
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_tensor_model_parallel_world_size(),
    )
    of_experts = (
        parallel_state.get_expert_tensor_parallel_rank(),
        parallel_state.get_expert_tensor_parallel_world_size(),
    )
    first = chunk.decoder.layers[0].layer_number - 1 if len(chunk.decoder.layers) else 0
    expert = 0
    if shape.experts:
        expert = parallel_state.get_expert_model_parallel_rank() * (shape.experts // shape.ep)
    for name, parameter in chunk.named_parameters():
        local = name.split(".")
        for at, (word, offset) in {2: ("layers", first), 6: ("local_experts", expert)}.items():
            if len(local) > at and local[at - 1] == word and local[0] != "mtp":
                local[at] = str(int(local[at]) + offset)
        rank, size = of_experts if "local_experts" in local else dense
        if getattr(parameter, "shared", False):
            # Comes from the first stage when all copies are made equal.
            continue
        generator = torch.Generator().manual_seed(zlib.crc32(".".join(local).encode()))
        split = parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else None
        whole_shape = list(parameter.shape)
        if split is not None:
            whole_shape[split] *= size
        whole = torch.randn(whole_shape, generator=generator) * (0.5 if parameter.ndim == 1 else 0.2)
        if "norm" in name and name.endswith("weight"):
            whole += 1
        if split is not None:
            gated = shape.swiglu and "linear_fc1" in name
            halves = whole.chunk(2, split) if gated else (whole,)
            whole = torch.cat([half.chunk(size, split)[rank] for half in halves], split)
        with torch.no_grad():
            parameter.copy_(whole)
