"""The factor by which the loss is multiplied in mixed precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ...errors import TracerError

__all__ = ["LossScale", "Scale"]

Scale = float | Tensor
"""A number, or a tensor of one element on the device that knows it."""


class LossScale:
    """Reads the scale without waiting for a device.

    Parameters
    ----------
    source : GradScaler, number, tensor, callable or None
        Who knows it; None where nothing is scaled.

    Raises
    ------
    TracerError
        When it is nothing of these.
    """

    def __init__(self, source: Any) -> None:
        self._scaler: Any = None
        self._get: Callable[[], Any]
        if source is None:
            self._get = lambda: 1.0
        elif callable(getattr(source, "unscale_", None)) and callable(getattr(source, "get_scale", None)):
            self._scaler = source
            self._get = self._of_scaler
        elif callable(source):
            self._get = source
        elif isinstance(source, (int, float, Tensor)) and not isinstance(source, bool):
            self._get = lambda: source
        else:
            raise TracerError(
                f"loss_scale must be a GradScaler, a number or a function that gives it, got {source!r:.100}."
            )
        self.known = source is not None

    def read(self) -> Scale:
        """Return the scale of the step that begins."""
        scale = self._get()
        # A scaler writes the next one into the same tensor.
        return scale.detach().clone() if isinstance(scale, Tensor) else float(scale)

    @property
    def skips(self) -> bool:
        """Whether somebody leaves out steps with infinite gradients."""
        return self._scaler is not None and bool(self._scaler.is_enabled())

    def unscaled(self, optimizer: Optimizer) -> bool:
        """Return whether the scaler has already divided this optimizer's gradients."""
        if self._scaler is None:
            return False
        state = getattr(self._scaler, "_per_optimizer_states", {}).get(id(optimizer), {})
        return getattr(state.get("stage"), "name", "") in ("UNSCALED", "STEPPED")

    def _of_scaler(self) -> Any:
        # get_scale() waits for the device once there is a tensor.
        scale = getattr(self._scaler, "_scale", None)
        return self._scaler.get_scale() if scale is None else scale
