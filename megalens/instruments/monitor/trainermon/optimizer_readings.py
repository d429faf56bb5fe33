"""What an optimizer keeps of each parameter, and the gradient that it will apply: torch's own, what wraps one, and Megatron-Core's with their master weights and shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ....adapters.megatron_gradients import Held, held_parameters, leaf_optimizers
from ....tracer.moments.hooks.values import local_values
from .call_rows import gradient_of

__all__ = ["OptimizerReadings", "update_histograms"]

_NONE = Held(None)

BINS = 30
_OUTSIDE = 2.0


def update_histograms(
    mean: Tensor, square: Tensor, step: Tensor | float, betas: tuple[float, float], eps: float
) -> Tensor | None:
    """Return how many values of an update, and of a mean over the root of its square, lie in each of 30 bins from -1 to 1; values outside are in none. Waits for nothing.

    Adam divides the mean m̂ by √v̂ + eps (Kingma and Ba, 2015, algorithm 1), m̂ = mean / (1 - β₁ᵗ), v̂ = square / (1 - β₂ᵗ).

    Parameters
    ----------
    mean, square : Tensor
        ``exp_avg`` and ``exp_avg_sq``.
    step : Tensor or float
        t, from 1.
    betas, eps
        Of the optimizer.

    Returns
    -------
    Tensor or None
        float32 ``[2, 30]``; None of what is a part of a sum over processes.
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
    """Reads an optimizer right before its step. Nothing waits for the device.

    Parameters
    ----------
    optimizer
        Whatever the training calls ``step`` of.
    main_grad : bool
        Whether gradients are taken from ``main_grad`` of parameters that have one.
    """

    def __init__(self, optimizer: Any, main_grad: bool = True) -> None:
        self._leaves, self._main_grad = leaf_optimizers(optimizer), main_grad
        self._held = held_parameters(optimizer)
        self._groups: dict[int, Mapping[str, Any]] = {}

    def is_sharded(self, parameter: nn.Parameter) -> bool:
        """Return whether the data-parallel ranks update a part of it each."""
        return self._held.get(id(parameter), _NONE).owned

    def state(self, parameter: nn.Parameter, name: str) -> Tensor | None:
        """Return what is kept of it under a name, such as ``exp_avg``; None before the first step."""
        found = self._kept(parameter).get(name)
        return found if isinstance(found, Tensor) else None

    def gradient(self, parameter: nn.Parameter) -> Tensor | None:
        """Return the reduced gradient, or the part of it that this rank applies: of others' parts the buffer has what was never reduced."""
        gradient, held = gradient_of(parameter, self._main_grad), self._held.get(id(parameter))
        if gradient is None or held is None or not held.owned:
            return gradient
        if held.tensor is None:
            return None
        return gradient if held.part is None else gradient.flatten()[held.part]

    def direction(self, parameter: nn.Parameter) -> Tensor | None:
        """Return the share of the gradient's values that have the sign of ``exp_avg``, as one value: 1 before the first step."""
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
        """Return those of the update that was made last, float32 ``[2, 30]``; see :func:`update_histograms`. None where it is no Adam, or before its first step."""
        mean, square = (self.state(parameter, name) for name in ("exp_avg", "exp_avg_sq"))
        group = self._group(parameter)
        steps = self._kept(parameter).get("step", group.get("step"))
        if mean is None or square is None or steps is None or "betas" not in group:
            return None
        return update_histograms(mean, square, steps, group["betas"], group.get("eps", 0.0))

    def _group(self, parameter: nn.Parameter) -> Mapping[str, Any]:
        """Return the settings of a parameter."""
        keys = (id(parameter), id(self._held.get(id(parameter), _NONE).tensor))
        if not any(key in self._groups for key in keys):
            # Groups may have been added.
            groups = [group for leaf in self._leaves for group in getattr(leaf, "param_groups", ())]
            self._groups = {id(each): group for group in groups for each in group["params"]}
        return next((self._groups[key] for key in keys if key in self._groups), {})

    def _kept(self, parameter: nn.Parameter) -> Mapping[Any, Any]:
        keys = (parameter, self._held.get(id(parameter), _NONE).tensor)
        for leaf in self._leaves:
            for each in (leaf, getattr(leaf, "optimizer", None)):
                state = getattr(each, "state", None)
                if isinstance(state, Mapping):
                    kept = next((state[key] for key in keys if key is not None and key in state), None)
                    if isinstance(kept, Mapping):
                        return kept
        return {}
