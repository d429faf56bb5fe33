"""Attention, kernels and routers by TrainerMon's definitions, which differ from ``moments/features.py``."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ....adapters.megatron_gradients import OptimizerParam, leaf_optimizers, optimizer_params
from ....tracer.moments.hooks.values import local_values
from ....tracer.own_hooks import remove_all

COLUMNS = {
    "attention_hook": ("entropy", "softmax_max"),
    "linear_hook": ("sr", "kernel_norm"),
    "moe_router_weight_hook": ("router_weight_similarity",),
    "moe_router_logit_hook": ("per_token_expert_entropy",),
}
"""The columns of each kind of file."""

_NONE = OptimizerParam(None)

BINS = 30
_OUTSIDE = 2.0


_Hook = TypeVar("_Hook", bound=Callable[..., Any])


def reporting(hook: _Hook) -> _Hook:
    """Have a method that the training calls give what it raises to ``self._failed``, and return None."""

    @wraps(hook)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return hook(self, *args, **kwargs)
        except Exception as error:
            self._failed(error)
            return None

    return guarded  # type: ignore[return-value]


class _OfModules:
    """Records something of each module of a model in ``found``, by ``chunk:name``, with hooks.

    ``named`` takes a module's name and returns the one that is written.
    """

    def __init__(self, chunks: Sequence[nn.Module], named: Callable[[str], str]) -> None:
        self.found: dict[str, Any] = {}
        self._handles = [
            handle
            for chunk, model in enumerate(chunks)
            for name, module in model.named_modules()
            for handle in self._hooked(module, f"{chunk}:{named(name)}")
        ]

    def _hooked(self, module: nn.Module, key: str) -> Iterator[Any]:
        """Install the hooks of one module; yield their handles."""
        raise NotImplementedError

    def close(self) -> None:
        remove_all(self._handles)


# The contents of ``module_struct.json`` and ``stack_info.csv``.
class ModuleStructure(_OfModules):
    """Records the first passes of a model, in the order of the modules' ends."""

    def _hooked(self, module: nn.Module, key: str) -> Iterator[Any]:
        yield module.register_forward_hook(partial(self._forward, key), with_kwargs=True)
        yield module.register_full_backward_hook(partial(self._backward, key))

    def _forward(
        self, key: str, _: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        given = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        self.found.setdefault(key, {}).update(input=_about(given), output=_about(output))

    def _backward(self, key: str, _: nn.Module, given: Any, output: Any) -> None:
        self.found.setdefault(key, {}).update(input_grad=_about(given), output_grad=_about(output))


class ModuleStacks(_OfModules):
    """Records the stack of each module's first call, innermost call first."""

    def _hooked(self, module: nn.Module, key: str) -> Iterator[Any]:
        yield module.register_forward_hook(partial(self._called, key))

    def _called(self, key: str, *_: Any) -> None:
        if key not in self.found:
            self.found[key] = "".join(
                f"File {at.filename}, line {at.lineno}, in {at.name}, \n {at.line} \n"
                for at in traceback.extract_stack()[-2::-1]
            )


def _about(value: Any) -> dict[str, str]:
    if isinstance(value, Tensor):
        return {"config": "tensor", "tensor": _text(value)}
    if isinstance(value, (tuple, list)):
        each = {str(number): _text(inner) for number, inner in enumerate(value)}
        return {"config": f"{'list' if isinstance(value, list) else 'tuple'}[{len(value)}]", **each}
    return {"config": str(type(value))}


def _text(value: Any) -> str:
    return (
        f"size={tuple(value.shape)}, dtype={value.dtype}" if isinstance(value, Tensor) else str(type(value))
    )


_SUFFIXES = {"attention_hook": "attention", "linear_hook": "linear"}
_ITERATIONS = 3


@dataclass
class FeatureRows:
    """Measurements of one kind in one step: labels as in :class:`CallRows`, and numbers on the device."""

    columns: Sequence[str]
    labels: list[tuple[int, str, int | None]] = field(default_factory=list)
    numbers: list[Tensor] = field(default_factory=list)


def attention_numbers(query: Tensor, key: Tensor, order: str) -> Tensor:
    """Return mean entropy and mean maximum of the rows of causal attention, of the first sample and head.

    ``query`` and ``key`` are ``[s, b, h, d]`` or ``[b, s, h, d]``, as ``order`` (``s,b,h,d`` or ``b,s,h,d``)
    says.
    """
    if query.dim() != 4 or key.dim() != 4:
        return query.new_zeros(2, dtype=torch.float64)
    q, k = ((x[:, 0, 0] if order == "s,b,h,d" else x[0, :, 0]).double() for x in (query, key))
    scores = q @ k.T / math.sqrt(q.shape[-1])
    unseen = torch.ones_like(scores, dtype=torch.bool).tril().logical_not()
    p = scores.masked_fill(unseen, -math.inf).softmax(-1)
    return torch.stack([-torch.xlogy(p, p).sum(-1).mean(), p.amax(-1).mean()])


def kernel_numbers(weight: Tensor) -> Tensor:
    """Return ‖W‖ over the largest singular value, and that value by three power iterations, a lower bound."""
    matrix = weight.detach().double()
    # The same start every time, so that a weight that does not change has the same numbers.
    start = torch.randn(matrix.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    v = start.to(matrix.device)
    for _ in range(_ITERATIONS):
        v = matrix.T @ (matrix @ v)
        v = v / v.norm().clamp_min(1e-300)
    largest = (matrix @ v).norm() / v.norm().clamp_min(1e-300)
    return torch.stack([torch.where(largest > 0, matrix.norm() / largest.clamp_min(1e-300), 0.0), largest])


def weight_similarity(weight: Tensor) -> Tensor:
    """Return the mean cosine of the directions of two experts."""
    matrix = weight.detach().double()
    matrix = matrix.T if matrix.shape[0] < matrix.shape[1] else matrix
    experts = matrix.shape[1]
    if experts < 2:
        return matrix.new_zeros(1)
    unit = matrix / matrix.norm(dim=0, keepdim=True).clamp_min(1e-300)
    cosines = unit.T @ unit
    mean: Tensor = cosines.triu(1).sum() / (experts * (experts - 1) / 2)
    return mean.reshape(1)


def logit_entropy(logits: Tensor) -> Tensor:
    """Return the mean entropy over tokens of a router's output."""
    if logits.dim() < 2:
        return logits.new_zeros(1, dtype=torch.float64)
    p = logits.detach().double().softmax(-1)
    entropy: Tensor = (-torch.xlogy(p, p).sum(-1)).mean().reshape(1)
    return entropy


class FeatureHooks:
    """Measures features of modules in the forward pass.

    ``targets`` has by kind the names of modules after their chunk: ``0:layers.0.attention``. No names select
    nothing, but for ``linear_hook``, where they select every kernel. ``order`` is of the axes of queries and
    keys. ``micro`` takes kind and owner and counts the micro-batches of a step; ``last`` says whether such a
    number is the last. ``failed`` takes an exception of a hook, which the training does not see.
    """

    def __init__(
        self,
        chunks: Sequence[nn.Module],
        targets: Mapping[str, Sequence[str]],
        order: str,
        *,
        micro: Callable[[str, tuple[int, str]], int],
        last: Callable[[int], bool],
        named: Callable[[str], str],
        failed: Callable[[Exception], None],
    ) -> None:
        self._order, self._micro, self._last, self._failed = order, micro, last, failed
        self._found: dict[str, dict[tuple[int, str, int | None], Tensor]] = {}
        self._handles: list[Any] = []
        for chunk, model in enumerate(chunks):
            for name, module in model.named_modules():
                for kind, wanted in targets.items():
                    chosen = f"{chunk}:{name}" in wanted or f"{chunk}:{named(name)}" in wanted
                    if chosen or (kind == "linear_hook" and not wanted and _kernel_of(module) is not None):
                        key = (chunk, f"{named(name)}.{_SUFFIXES.get(kind, 'moe_router')}")
                        hook = partial(self._after_forward, kind, key)
                        self._handles.append(module.register_forward_hook(hook))

    @reporting
    def _after_forward(
        self, kind: str, key: tuple[int, str], module: nn.Module, given: tuple[Any, ...], output: Any
    ) -> None:
        if not module.training or torch._C._current_graph_task_id() != -1:
            return
        micro = self._micro(kind, key)
        every = kind in ("attention_hook", "moe_router_logit_hook")
        if every or self._last(micro):
            numbers = self._numbers(kind, module, given, output)
            if numbers is not None:
                at = (*key, micro if every else None)
                self._found.setdefault(kind, {})[at] = numbers

    def _numbers(self, kind: str, module: nn.Module, given: Sequence[Any], output: Any) -> Tensor | None:
        with torch.no_grad():
            if kind == "attention_hook":
                return attention_numbers(given[0], given[1], self._order) if len(given) >= 2 else None
            if kind == "moe_router_logit_hook":
                several = output if isinstance(output, (tuple, list)) else [output]
                tensors = [each for each in several if isinstance(each, Tensor)]
                return logit_entropy(tensors[0]) if tensors else None
            kernel = _kernel_of(module)
            if kernel is None:
                return None
            return kernel_numbers(kernel) if kind == "linear_hook" else weight_similarity(kernel)

    def take(self) -> dict[str, FeatureRows]:
        """Return the measurements of the step by kind of file, and forget them."""
        found, self._found = self._found, {}
        return {
            kind: FeatureRows(COLUMNS[kind], list(several), list(several.values()))
            for kind, several in found.items()
        }

    def close(self) -> None:
        remove_all(self._handles)


def _kernel_of(module: nn.Module) -> Tensor | None:
    """Return the matrix of a linear module; None of embeddings and others."""
    if (
        isinstance(module, nn.Embedding)
        or hasattr(module, "num_embeddings")
        or hasattr(module, "vocab_start_index")
    ):
        return None
    for name in ("weight", "wg"):
        weight = getattr(module, name, None)
        weight = getattr(weight, "weight", weight)
        if isinstance(weight, Tensor) and weight.dim() == 2:
            return weight
    return None


def update_histograms(
    mean: Tensor, square: Tensor, step: Tensor | float, betas: tuple[float, float], eps: float
) -> Tensor | None:
    """Return how many values of an update, and of a mean over its square's root, are in 30 bins from -1 to 1.

    Values outside are in no bin. Waits for nothing. Adam divides the mean m̂ by √v̂ + eps (Kingma and Ba,
    2015, algorithm 1), m̂ = mean / (1 - β₁ᵗ), v̂ = square / (1 - β₂ᵗ). ``mean`` and ``square`` are
    ``exp_avg`` and ``exp_avg_sq``, ``step`` is t, from 1. Returns float32 ``[2, 30]``, or None of what is a
    part of a sum over processes.
    """
    first, second = local_values(mean.detach()), local_values(square.detach())
    if first is None or second is None:
        return None
    with torch.no_grad():
        t = step if isinstance(step, Tensor) and step.device == first.device else float(step)
        corrected = first.float() / (1 - betas[0] ** t)
        root = (second.float() / (1 - betas[1] ** t)).sqrt()
        several = (corrected / (root + eps), corrected / root)
        # 0 / 0 is no value; histc refuses it on some devices.
        return torch.stack([torch.histc(x.nan_to_num(nan=_OUTSIDE), BINS, -1, 1) for x in several])


class OptimizerReadings:
    """Reads an optimizer right before its step, without waiting for the device.

    ``main_grad``: gradients are taken from ``main_grad`` of parameters that have one.
    """

    def __init__(self, optimizer: Any, main_grad: bool = True) -> None:
        self._leaves, self._main_grad = leaf_optimizers(optimizer), main_grad
        self._owned = optimizer_params(optimizer)
        self._groups: dict[int, Mapping[str, Any]] = {}

    def is_sharded(self, parameter: nn.Parameter) -> bool:
        """Return whether the data-parallel ranks update a part of it each."""
        return self._owned.get(id(parameter), _NONE).owned

    def state(self, parameter: nn.Parameter, name: str) -> Tensor | None:
        """Return its state of a name, such as ``exp_avg``; None before the first step."""
        found = self._state(parameter).get(name)
        return found if isinstance(found, Tensor) else None

    def gradient(self, parameter: nn.Parameter) -> Tensor | None:
        """Return the reduced gradient, or this rank's part of it: the rest of the buffer is not reduced."""
        gradient, part = gradient_of(parameter, self._main_grad), self._owned.get(id(parameter))
        if gradient is None or part is None or not part.owned:
            return gradient
        if part.tensor is None:
            return None
        return gradient if part.part is None else gradient.flatten()[part.part]

    def direction(self, parameter: nn.Parameter) -> Tensor | None:
        """Return the share of the gradient with the sign of ``exp_avg``, as one value: first 1."""
        gradient = self.gradient(parameter)
        if gradient is None:
            return None
        moment = self.state(parameter, "exp_avg")
        if moment is None or gradient.numel() == 0:
            return torch.ones((), device=gradient.device)
        if moment.shape != gradient.shape:
            return torch.zeros((), device=gradient.device)
        return (torch.sign(gradient).mul(torch.sign(moment)).double().mean() + 1) / 2

    def histograms(self, parameter: nn.Parameter) -> Tensor | None:
        """Return :func:`update_histograms` of the last update; None before the first step or without Adam."""
        mean, square = (self.state(parameter, name) for name in ("exp_avg", "exp_avg_sq"))
        group = self._group(parameter)
        steps = self._state(parameter).get("step", group.get("step"))
        if mean is None or square is None or steps is None or "betas" not in group:
            return None
        return update_histograms(mean, square, steps, group["betas"], group.get("eps", 0.0))

    def _group(self, parameter: nn.Parameter) -> Mapping[str, Any]:
        keys = (id(parameter), id(self._owned.get(id(parameter), _NONE).tensor))
        if not any(key in self._groups for key in keys):
            # Groups may have been added.
            groups = [group for leaf in self._leaves for group in getattr(leaf, "param_groups", ())]
            self._groups = {id(each): group for group in groups for each in group["params"]}
        return next((self._groups[key] for key in keys if key in self._groups), {})

    def _state(self, parameter: nn.Parameter) -> Mapping[Any, Any]:
        keys = (parameter, self._owned.get(id(parameter), _NONE).tensor)
        for leaf in self._leaves:
            for each in (leaf, getattr(leaf, "optimizer", None)):
                state = getattr(each, "state", None)
                if isinstance(state, Mapping):
                    found = next((state[key] for key in keys if key is not None and key in state), None)
                    if isinstance(found, Mapping):
                        return found
        return {}


def gradient_of(parameter: Tensor, main: bool = True) -> Tensor | None:
    """Return a parameter's gradient; Megatron's own where there is one."""
    found = getattr(parameter, "main_grad", None) if main else None
    return parameter.grad if found is None else found
