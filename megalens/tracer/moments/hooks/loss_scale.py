"""By what a loss is multiplied, read without waiting for a device."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ...errors import TracerError
from ..part import Scale

UNKNOWN_SCALE = (
    "By what the loss is multiplied is not known: the model runs in float16 without a GradScaler, or there "
    "are several. Gradients of parameters are measured as the optimizer takes them, maybe clipped "
    "(gradient_stage pre_step), and all others "
    "may have a scale in them (backward_scaled). Give loss_scale=."
)

_listening: weakref.WeakSet[LossScale] = weakref.WeakSet()


class LossScale:
    """Reads the scale without waiting for a device.

    ``source`` is a ``GradScaler``, a number, a tensor or a callable. Without one, a ``GradScaler`` is noticed
    when it multiplies a loss; as long as none does, nothing is scaled. Raises ``TracerError`` for anything
    else.
    """

    def __init__(self, source: Any) -> None:
        self._scaler: Any = None
        self._get: Callable[[], Any] = lambda: 1.0
        self.now: Scale = 1.0
        """That of the step that is going on."""
        if source is None:
            _listen()
            _listening.add(self)
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
        self._known = source is not None
        self._heard = self._several = False

    def begin(self) -> None:
        """Read the scale of the step that begins."""
        self._heard = False
        self.now = _copied(self._get())

    def unknown(self, half: bool) -> bool:
        """Return whether a scale that is not known may be in the gradients.

        A model in float16 (``half``) has one, and of two scalers it is unknown which applies to a gradient.
        """
        return self._several or (half and not self._known)

    def hear(self, scaler: Any) -> None:
        """Take a scaler that has just multiplied a loss."""
        if scaler.is_enabled():
            self._several = self._several or self._scaler not in (None, scaler)
            self._scaler, self._known = scaler, True
            if not self._heard:
                self._heard, self.now = True, _copied(self._of_scaler())

    @property
    def told(self) -> bool:
        """Whether the script has said it and divides by it itself: it is no ``GradScaler``."""
        return self._known and self._scaler is None

    @property
    def skips(self) -> bool:
        """Whether steps with infinite gradients are skipped."""
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


def _copied(scale: Any) -> Scale:
    # A scaler writes the next one into the same tensor.
    return scale.detach().clone() if isinstance(scale, Tensor) else float(scale)


@functools.cache
def _listen() -> None:
    """Make every ``GradScaler`` call the listeners when it multiplies a loss; from the first listener on."""
    before = torch.amp.GradScaler.scale

    @functools.wraps(before)
    def scale(scaler: Any, outputs: Any) -> Any:
        scaled = before(scaler, outputs)
        if not torch.compiler.is_compiling():
            for each in tuple(_listening):
                each.hear(scaler)
        return scaled

    torch.amp.GradScaler.scale = scale  # type: ignore[method-assign, assignment]
