"""What each process of a test with torch's own parallel tools does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from hub_found import hub_found
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import megalens
from megalens.adapters import find_points, mesh_place
from megalens.adapters.watch import PassWatch
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer import Place

__all__ = ["STEPS", "alone", "in_mesh", "traced", "watched"]

STEPS, _SAMPLES, _SEQUENCE, _VOCABULARY = 2, 4, 16, 48


def build(kind: str) -> nn.Module:
    """The same model in every process."""
    torch.manual_seed(0)
    if kind == "gpt":
        return GPT(GPTConfig(vocabulary=_VOCABULARY, layers=2, hidden=32, heads=4, sequence=_SEQUENCE))
    if kind == "gpt2":
        dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        size = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": _SEQUENCE}
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=_VOCABULARY, attn_implementation="eager", **size, **dropout)
        )
    sizes = {
        "vocab_size": _VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": _SEQUENCE,
        "attn_implementation": "eager",
    }
    if kind == "qwen":
        return Qwen2ForCausalLM(Qwen2Config(**sizes))
    return LlamaForCausalLM(LlamaConfig(**sizes))


def layers_of(model: nn.Module) -> Any:
    """The transformer layers, wherever this kind of model has them."""
    if hasattr(model, "model"):
        return model.model.layers
    return model.transformer.h if hasattr(model, "transformer") else model.blocks


def batch(step: int) -> Tensor:
    """Token ids of one step of the whole job."""
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, _VOCABULARY, (_SAMPLES, _SEQUENCE), generator=generator)


def spread(model: nn.Module, way: str) -> nn.Module:
    """Cut ``model`` over the processes."""
    if way.endswith(", compiled layer"):
        # The last, beside others that are not compiled.
        layers_of(model)[-1].compile(fullgraph=True, backend="aot_eager")
    if way == "ddp, compiled":
        return nn.parallel.DistributedDataParallel(torch.compile(model, backend="aot_eager"))
    if way.startswith("compiled "):
        return torch.compile(spread(model, way.removeprefix("compiled ")), backend="aot_eager")  # type: ignore[return-value]
    way = way.partition(",")[0]
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if way == "fsdp":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    if way == "fsdp2":
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        for layer in layers_of(model):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if way == "fsdp2 and tensor":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        tensor_parallel(model, mesh["tp"], False)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh["dp"])
        return fully_shard(model, mesh=mesh["dp"])
    if way == "tensor and embedding":
        mesh = init_device_mesh("cpu", (2,))
        rows = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate())}
        parallelize_module(model, mesh, rows)
        return tensor_parallel(model, mesh, False)
    if way in ("tensor", "sequence"):
        return tensor_parallel(model, init_device_mesh("cpu", (2,)), way == "sequence")
    return model


def tensor_parallel(model: nn.Module, mesh: Any, sequence: bool) -> nn.Module:
    """Megatron's way of cutting a Llama; with ``sequence``, norms and residuals see a part of the positions each."""
    rows: dict[str, Any] = {"output_layouts": Shard(1)} if sequence else {}
    plan: dict[str, Any] = {f"self_attn.{name}_proj": ColwiseParallel() for name in ("q", "k", "v")} | {
        "self_attn.o_proj": RowwiseParallel(**rows),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(**rows),
    }
    if sequence:
        whole = {"desired_input_layouts": Replicate(), "use_local_output": True}
        plan |= {
            "input_layernorm": SequenceParallel(use_local_output=True),
            "post_attention_layernorm": SequenceParallel(use_local_output=True),
            "self_attn": PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": Shard(1)},
                desired_input_kwarg_layouts={"hidden_states": Replicate()},
                use_local_output=True,
            ),
            "mlp": PrepareModuleInput(input_layouts=Shard(1), **whole),
        }
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    if sequence:
        outside = {
            # Not before: the model makes positions and mask as long as what the embedding gives.
            "model.layers.0": PrepareModuleInput(
                input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_output=True
            ),
            "model.norm": SequenceParallel(use_local_output=True),
            "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
        parallelize_module(model, mesh, outside)
    return model


def traced(
    rank: int, kind: str, way: str, folder: Path, flags: dict[str, Any]
) -> tuple[list[float], list[str], dict[str, Any]]:
    """Train and trace; losses, warnings, and where the process stands."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(folder / "runtime")
    model = spread(build(kind), way)
    tracer = megalens.trace(model, flags=flags, record=folder / "run", linger=0.1)
    hub_found(tracer)
    place = tracer.points.place
    losses = [
        train(model, batch(step).chunk(place.dp_size)[place.dp], tracer) for step in range(1, STEPS + 1)
    ]
    tracer.close()
    return losses, tracer.status()["warnings"], {"tp": place.tp_size, "dp": place.dp_size}


def alone(rank: int, kind: str, folder: Path, flags: dict[str, Any]) -> list[float]:
    """Train and trace in one process."""
    return traced(rank, kind, "none", folder, flags)[0]


def watched(rank: int, kind: str, way: str) -> tuple[Any, set[tuple[str, int]], dict[str, list[int]], int]:
    """Watch one training pass of a model that is cut: what failed, what changed, the layers of each flag, and the heads."""
    model = spread(build(kind), way)
    watch = PassWatch(find_points(model))
    ids = batch(1)
    with watch:
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    points = watch.finish()
    layers = {flag: sorted(here.layers) for flag, here in points.flags.items()}
    return watch.failed, watch.changed, layers, points.model["heads"]


def in_mesh(rank: int) -> Place:
    """Where a process stands in a mesh with pipeline stages, of which a model knows nothing."""
    return mesh_place(init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp")))


def train(model: nn.Module, ids: Tensor, tracer: Any) -> float:
    """One step of plain gradient descent, so that cut and whole parameters change alike."""
    with tracer.step():
        out = model(ids)
        logits = out if isinstance(out, Tensor) else out.logits
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        model.zero_grad()
    return loss.item()
