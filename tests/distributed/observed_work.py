"""What each process of a test of Megatron-Core's own observations does."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from hub_found import hub_found
from megatron_job import MegatronJob, micro_batch
from megatron_tells import told_by_megatron
from shape import STEPS, Optimizer, Shape

import megalens
from megalens.adapters import MegatronObserver
from megalens.adapters.megatron_observation import Observations

__all__ = ["observed", "through_pretrain"]

FLAGS = {
    name: {"compressor": {"name": "NoOp"}, "samples": None, "replicas": "all"}
    for name in ("HiddenStates", "AttentionOutput_mat_mul")
}
ROUTER = {"RouterProbabilities": FLAGS["HiddenStates"]}


def observed(
    rank: int, shapes: dict[str, Shape], stats: dict[str, int], folder: Path
) -> dict[str, dict[str, Any]]:
    """Train each model hooked and told of, recorded into folders of these names; what of layers was hooked, and what the logits were by plain hooks, of which the second training is told nothing."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(folder / "runtime")
    told_by_megatron()
    said: dict[str, dict[str, Any]] = {}
    for name, shape in shapes.items():
        for how in ("hooked", "told"):
            # An older Megatron-Core tells nothing.
            told = nullcontext() if how == "told" else patch.object(Observations, "of", lambda *_: None)
            with told:
                said.setdefault(name, {})[how] = _trained(rank, shape, stats, how, folder / name / how)
    return said


def through_pretrain(rank: int, shape: Shape, steps: int, folder: Path) -> dict[str, Any]:
    """Train with an observer as Megatron-LM's loop calls one, and with a step around each; what the first left behind."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(folder / "runtime")
    told_by_megatron()
    options = {"flags": {"HiddenStates": FLAGS["HiddenStates"]}, "linger": 0.1}
    stats = {"param": 1, "grad": 1, "residual": 1}
    job = MegatronJob(shape, Optimizer())
    theirs = _Theirs()
    observer = MegatronObserver(statistics=stats, also=theirs, record=folder / "observer", **options)
    for step in range(1, steps + 1):
        job.train(step, observer)
        if step == 1 and rank == 0:
            hub_found(observer.tracer)
        with torch.no_grad():
            # As its evaluation between two iterations.
            for chunk in job.chunks:
                chunk.eval()
                chunk(*_batch())
                chunk.train()
    observer.close()
    said = {
        "theirs": theirs.heard,
        "committed": theirs.committed,
        "warnings": observer.tracer.status()["warnings"],
        "left behind": sorted(vars(job.optimizer).keys() & {"step", "prepare_grads"}),
    }
    job.close()
    job = MegatronJob(shape, Optimizer())
    tracer = megalens.trace(job.chunks[0], record=folder / "steps", **options)
    megalens.log_statistics(job.chunks[0], job.optimizer, tracer=tracer, **stats)
    if rank == 0:
        hub_found(tracer)
    for step in range(1, steps + 1):
        with tracer.step():
            job.train(step)
    tracer.close()
    job.close()
    return said


class _Theirs:
    """An observer of Megatron-LM's own kind, which listens while an iteration is computed."""

    def __init__(self) -> None:
        self.heard = 0
        self.committed: list[int] = []

    def _told(self, *_: Any) -> None:
        self.heard += 1

    def observe_forward_backward(self, *, model: Any, iteration: int, pg_collection: Any) -> Any:
        kinds = frozenset(("residual_contribution",))
        return told_by_megatron().capture_tensor_observations(self._told, kinds)

    def __call__(self, *, model: Any, optimizer: Any, iteration: int, pg_collection: Any) -> None:
        self.committed.append(iteration)


def _batch() -> tuple[Any, ...]:
    batch = micro_batch(1, 0)[:, :-1].contiguous()
    positions = torch.arange(batch.shape[1]).expand_as(batch)
    mask = torch.ones(batch.shape[1], batch.shape[1], dtype=torch.bool).triu(1)
    return batch, positions, mask[None, None], None, batch


def _trained(rank: int, shape: Shape, stats: dict[str, int], how: str, folder: Path) -> dict[str, Any]:
    job = MegatronJob(shape, Optimizer())
    model = job.chunks if shape.vpp else job.chunks[0]
    flags = {**FLAGS, **(ROUTER if shape.experts and how == "told" else {})}
    more = {"router_entropy": 1} if shape.experts and how == "told" else {}
    tracer = megalens.trace(model, name=how, flags=flags, record=folder, linger=0.1)
    megalens.log_statistics(model, job.optimizer, tracer=tracer, **stats, **more)
    if rank == 0:
        hub_found(tracer)
    losses, logits, hooks = [], [], 0
    layers = [layer for chunk in job.chunks for layer in _inner(chunk).decoder.layers]
    heads = [getattr(_inner(chunk), "output_layer", None) for chunk in job.chunks]
    plain = [each.register_forward_hook(partial(_keep, logits)) for each in heads if each is not None]
    for step in range(1, STEPS + 1):
        with tracer.step():
            hooks = sum(len(layer._forward_hooks) for layer in layers)
            losses.append(job.train(step))
    tracer.close()
    for handle in plain:
        handle.remove()
    left = sum(len(module._forward_hooks) for chunk in job.chunks for module in chunk.modules())
    said = {
        "losses": losses,
        "logits": logits,
        "hooks": hooks,
        "layers": len(layers),
        "left": left,
        "warnings": tracer.status()["warnings"],
    }
    job.close()
    return said


def _keep(logits: list[Any], module: Any, args: Any, output: Any) -> None:
    logits.append(output[0].detach().double().numpy())


def _inner(chunk: Any) -> Any:
    while isinstance(inner := getattr(chunk, "module", None), torch.nn.Module):
        chunk = inner
    return chunk
