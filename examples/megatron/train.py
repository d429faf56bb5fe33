"""Train a small GPT with Megatron-Core and watch it with Megalens. See README.md beside this file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

ON_CPU = not torch.cuda.is_available()
CPU_CONFIG: dict[str, Any] = {}
if ON_CPU:
    # For trying the example out only: with GPUs nothing of this is used.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "kit"))
    from megatron_on_cpu import CPU_CONFIG, let_megatron_train_on_cpu

    let_megatron_train_on_cpu()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.optimizer import (  # noqa: E402
    MegatronOptimizer,
    OptimizerConfig,
    get_megatron_optimizer,
)
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402

import megalens  # noqa: E402

SEQUENCE, SAMPLES, VOCABULARY = 64, 2, 256


def arguments() -> argparse.Namespace:
    """Read arguments with the names that Megatron-LM's own launch scripts have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensor-model-parallel-size", type=int, default=1)
    parser.add_argument("--pipeline-model-parallel-size", type=int, default=1)
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument("--num-layers", type=int, default=4)
    parser.add_argument("--hidden-size", type=int, default=64)
    parser.add_argument("--train-iters", type=int, default=200)
    parser.add_argument("--num-microbatches", type=int, default=4)
    parser.add_argument("--clip-grad", type=float, default=1.0)
    parser.add_argument("--use-distributed-optimizer", action="store_true")
    parser.add_argument("--tensorboard-dir")
    megalens.add_arguments(parser)
    return parser.parse_args()


def model_of(args: argparse.Namespace) -> DistributedDataParallel:
    """Build this rank's part of the model."""
    config = TransformerConfig(
        num_layers=args.num_layers,
        hidden_size=args.hidden_size,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        sequence_parallel=args.sequence_parallel,
        pipeline_dtype=torch.float32,
        **CPU_CONFIG,
    )
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        VOCABULARY,
        SEQUENCE,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=False,
    )
    if not ON_CPU:
        model.cuda()
    config.finalize_model_grads_func = finalize_model_grads
    sharded = DistributedDataParallelConfig(use_distributed_optimizer=args.use_distributed_optimizer)
    return DistributedDataParallel(config, sharded, model)


def optimizer_of(args: argparse.Namespace, model: DistributedDataParallel) -> MegatronOptimizer:
    """Build the optimizer, which also clips gradients."""
    config = OptimizerConfig(
        optimizer="adam",
        lr=1e-3,
        clip_grad=args.clip_grad,
        use_distributed_optimizer=args.use_distributed_optimizer,
    )
    return get_megatron_optimizer(config, [model])


def batches(replica: int) -> Iterator[torch.Tensor]:
    """Pieces of this file, as bytes."""
    text = torch.tensor(list(Path(__file__).read_bytes()))
    dice = torch.Generator().manual_seed(replica)
    while True:
        starts = torch.randint(0, len(text) - SEQUENCE - 1, (SAMPLES,), generator=dice)
        yield torch.stack([text[at : at + SEQUENCE + 1] for at in starts.tolist()])


def forward(data: Iterator[torch.Tensor], model: torch.nn.Module) -> tuple[torch.Tensor, Any]:
    """Run one micro-batch."""
    batch = next(data) if ON_CPU else next(data).cuda()
    positions = torch.arange(SEQUENCE, device=batch.device).expand(SAMPLES, -1)
    mask = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool, device=batch.device).triu(1)[None, None]
    return model(batch[:, :-1].contiguous(), positions, mask, labels=batch[:, 1:].contiguous()), partial(mean)


def mean(losses: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the loss, and a copy of it: the schedule divides the first in place."""
    loss = losses.float().mean()
    return loss, {"loss": loss.detach().clone()}


def main() -> None:
    """Train."""
    args = arguments()
    if ON_CPU:
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("gloo" if ON_CPU else "nccl")
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    )
    torch.manual_seed(1 + parallel_state.get_pipeline_model_parallel_rank())
    model_parallel_cuda_manual_seed(1)
    model = model_of(args)
    optimizer = optimizer_of(args, model)
    replicas = parallel_state.get_data_parallel_world_size()
    data = batches(parallel_state.get_data_parallel_rank())
    schedule = get_forward_backward_func()

    tracer = megalens.trace_from(
        args,
        model,
        name="megatron-gpt",
        optimizer=optimizer,
        samples_per_step=replicas * args.num_microbatches * SAMPLES,
    )
    for step in range(1, args.train_iters + 1):
        with tracer.step():
            model.zero_grad_buffer()
            losses = schedule(
                forward_step_func=forward,
                data_iterator=data,
                model=[model],
                num_microbatches=args.num_microbatches,
                seq_length=SEQUENCE,
                micro_batch_size=SAMPLES,
                forward_only=False,
            )
            optimizer.step()
            if losses:
                # Only the last stage of the pipeline has them.
                loss = torch.stack([row["loss"] for row in losses]).mean()
                tracer.log(loss=loss)
                if step % 20 == 0 and parallel_state.get_tensor_model_parallel_rank() == 0:
                    print(f"step {step}: loss {loss.item():.3f}", flush=True)
    tracer.close()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
