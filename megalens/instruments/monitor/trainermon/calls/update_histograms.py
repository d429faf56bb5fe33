"""How large the updates of an Adam are, in histograms."""

from __future__ import annotations

import torch
from torch import Tensor

from .....tracer.moments.hooks.values import local_values

__all__ = ["BINS", "update_histograms"]

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
