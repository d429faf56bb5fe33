"""What one process has at every trace point of a Megatron-Core GPT, seen by plain hooks that know nothing of Megalens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from megatron_job import MegatronJob
from shape import STEPS, Shape
from torch import Tensor

__all__ = ["Key", "Seen", "reference"]

Key = tuple[int, int, str, int, str]
"""Step, micro-batch of the whole job, flag, layer, part."""
Seen = dict[Key, Any]


def reference(rank: int, shape: Shape) -> tuple[Seen, list[float | None], Seen]:
    """Train in one process; return every tensor ``[B, S, *]``, or ``[B, H, S, S]``, as numpy arrays, the losses, and the tensors' gradients."""
    job = MegatronJob(shape.alone())
    model = job.chunks[0].module
    seen: Seen = {}
    gradients: Seen = {}
    at = {"step": 0, "micro_batch": -1, "inside": False}
    batch_first = lambda data: data.transpose(0, 1)  # noqa: E731

    def begin(*_: Any) -> None:
        at["micro_batch"] += 1
        at["inside"] = True

    def end(*_: Any) -> None:
        at["inside"] = False

    def keep(flag: str, layer: int, parts: Callable[[Tensor], dict[str, Tensor]]) -> Callable[..., None]:
        def hook(module: Any, args: Any, output: Any) -> None:
            if at["inside"]:
                tensor = output[0] if isinstance(output, tuple) else output
                now = (at["step"], at["micro_batch"], flag, layer)
                for part, data in parts(tensor.detach()).items():
                    seen[(*now, part)] = data.clone().numpy()

                def arrived(gradient: Tensor) -> None:
                    for part, data in parts(gradient).items():
                        gradients[(*now, part)] = data.clone().numpy()

                tensor.register_hook(arrived)

        return hook

    whole = lambda data: {"": batch_first(data)}  # noqa: E731
    model.register_forward_pre_hook(begin)
    model.register_forward_hook(end)
    for layer in model.decoder.layers:
        number, attention, mlp = layer.layer_number - 1, layer.self_attention, layer.mlp
        hooks = [
            (attention.linear_qkv, "QKV_mat_mul", lambda data: _groups(batch_first(data), shape)),
            (attention.core_attention.scale_mask_softmax, "RawAttentionScore_mat_mul", lambda d: {"": d}),
            (attention.core_attention, "ContextLayer_mat_mul", whole),
            (attention, "AttentionOutput_mat_mul", whole),
            (layer, "HiddenStates", whole),
        ]
        if shape.experts:
            hooks.append((mlp, "MLP2_mat_mul", whole))
        else:
            hooks.append((mlp.linear_fc1, "MLP1_mat_mul", _halves if shape.swiglu else whole))
            hooks.append((mlp.linear_fc2, "MLP2_mat_mul", whole))
        for module, flag, parts in hooks:
            module.register_forward_hook(keep(flag, number, parts))

    def tokens(module: Any, args: Any, kwargs: Any) -> None:
        for part, name in (("ids", "input_ids"), ("positions", "position_ids")):
            seen[at["step"], at["micro_batch"], "InputTokens", -1, part] = kwargs[name].clone().numpy()

    model.embedding.register_forward_pre_hook(tokens, with_kwargs=True)
    losses = []
    for step in range(1, STEPS + 1):
        at.update(step=step, micro_batch=-1)
        losses.append(job.train(step))
    job.close()
    return seen, losses, gradients


def _groups(data: Tensor, shape: Shape) -> dict[str, Tensor]:
    """Unpick (queries of the group, key, value) by listing which feature is what."""
    head = shape.hidden // shape.heads
    kinds = ["q"] * (shape.heads // shape.groups) + ["k", "v"]
    columns: dict[str, list[int]] = {"q": [], "k": [], "v": []}
    at = 0
    for kind in kinds * shape.groups:
        columns[kind] += range(at, at + head)
        at += head
    return {part: data[..., chosen] for part, chosen in columns.items()}


def _halves(data: Tensor) -> dict[str, Tensor]:
    middle = data.shape[-1] // 2
    data = data.transpose(0, 1)
    return {"gate": data[..., :middle], "up": data[..., middle:]}
