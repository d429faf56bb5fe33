"""The very tensors of a training and their moments by the definitions, to hold rows against."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from torch import Tensor, nn

ALL = dict.fromkeys(("param", "grad", "activation", "dgrad", "residual", "residual_dgrad"), 1)


def expected(*arrays: Tensor) -> dict[str, float]:
    """Moments of all values together, by the definitions."""
    x = np.concatenate([array.detach().double().numpy().reshape(-1) for array in arrays])
    finite = x[np.isfinite(x)]
    d = finite - finite.mean()
    return {
        "count": len(finite),
        "mean": finite.mean(),
        "m2": (d**2).sum(),
        "m3": (d**3).sum(),
        "m4": (d**4).sum(),
        "min": finite.min(),
        "max": finite.max(),
        "nan_count": np.isnan(x).sum(),
        "inf_count": np.isinf(x).sum(),
        "negative_inf_count": np.isneginf(x).sum(),
        "near_zero_count": (np.abs(x) < 1e-8).sum(),
    }


def same(row: dict, *arrays: Tensor) -> None:
    """Hold a row against the values that it is of."""
    wanted = expected(*arrays)
    std = math.sqrt(wanted["m2"] / wanted["count"])
    # A third moment is what is left of values that cancel: its size is that of n times the deviation cubed.
    slack = {"m3": 1e-5 * wanted["count"] * std**3, "mean": 1e-7 * std}
    if row["loss_scale"] != 1:
        # They were counted before the scale was divided out.
        assert math.isnan(row["near_zero_count"])
        del wanted["near_zero_count"]
    for name, value in wanted.items():
        near = pytest.approx(value, rel=1e-5 if name == "m4" else 1e-6, abs=slack.get(name, 0.0))
        assert row[name] == near, (row["stat"], row["name"], name)


class Seen:
    """What a model's modules were given and gave, and the gradients there, hooked apart from the logger."""

    def __init__(self, model: nn.Module, wanted: Callable[[str, nn.Module], bool]) -> None:
        self.values: dict[str, list[Tensor]] = {}
        self.gradients: dict[str, list[Tensor]] = {}
        self._handles = []
        for name, module in model.named_modules():
            if wanted(name, module):
                self._handles.append(module.register_forward_hook(self._hook(name)))
                self._handles.append(module.register_full_backward_hook(self._backward(name)))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _hook(self, name: str):
        def hook(module, args, output):
            self.values.setdefault(f"{name}/input0", []).append(args[0].detach().clone())
            self.values.setdefault(f"{name}/output0", []).append(output.detach().clone())

        return hook

    def _backward(self, name: str):
        def hook(module, came, went):
            if came[0] is not None:
                self.gradients.setdefault(f"{name}/input0", []).append(came[0].clone())
            self.gradients.setdefault(f"{name}/output0", []).append(went[0].clone())

        return hook


def projects(name: str, module: nn.Module) -> bool:
    return isinstance(module, (nn.Linear, nn.Embedding))
