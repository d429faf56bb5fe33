"""At which moment of a step its gradients are measured: complete, unscaled and before clipping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..joining.part import MeasuredRows
from ..points import ParamPoint
from .backward_end import BackwardEnd
from .clipping import before_clipping
from .loss_scale import LossScale, Scale
from .param_rows import ParamRows

__all__ = ["GradientMoment"]


class GradientMoment:
    """Measures the gradients of a step.

    Clipping is done between the last backward pass and the optimizer's step. So they are measured at the end of the last backward pass; which one that is, the step before has told. Where there were fewer this
    time (the last step of an epoch), torch's own clipping tells before it begins, whoever calls it. Where somebody clips by other means, the optimizer's step is the last chance: gradients that nobody changed since
    the backward pass are still those before clipping; others are said to be as the optimizer took them, and from then on each backward pass is taken for the last.

    Parameters
    ----------
    params : sequence of ParamPoint
        Those that this process counts, with their places in the list of names as ``ids``.
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    optimizers : sequence of torch.optim.Optimizer
        Whose step ends the last chance.
    scale : LossScale
        What is to be divided out.
    ready : callable, optional
        Where an adapter knows the moment itself: takes what to call then, returns what takes it away. The gradients are unscaled there.
    spent : callable
        Takes a function and calls it, so that neither its time nor an error of its own is the training's.
    warn : callable
        Takes a sentence for the user.
    """

    def __init__(
        self,
        params: Sequence[ParamPoint],
        ids: Sequence[int],
        roots: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        scale: LossScale,
        ready: Callable[[Callable[[], None]], Callable[[], None]] | None,
        spent: Callable[[Callable[[], None]], None],
        warn: Callable[[str], None],
    ) -> None:
        self._params = tuple(params)
        self._names = {at: point.name for at, point in zip(ids, params, strict=True)}
        self._gradients = ParamRows(ids, [point.gradient for point in params])
        self._scaler = scale
        self._spent, self._warn = spent, warn
        self._on = False
        self._scale: Scale = 1.0
        self._passes = 0
        self._expected = 1
        self._stepped = self._each = False
        self._optimizers = tuple(optimizers)
        self._refused: Tensor | None = None
        self._part: MeasuredRows | None = None
        self._seen: tuple[Any, ...] | None = None
        self._remove: list[Callable[[], None]] = []
        self._end: BackwardEnd | None = None
        self._knows_steps = False
        if ready is not None:
            self._remove.append(ready(lambda: self._spent(self._said)))
            return
        self._end = BackwardEnd(
            roots, [point.parameter for point in params], lambda: self._spent(self._passed)
        )
        self._remove.append(self._end.close)
        self._remove.append(before_clipping(self._before_clipping))
        for optimizer in optimizers:
            self._remove.append(optimizer.register_step_pre_hook(self._before_step).remove)
            self._knows_steps = True

    def begin(self, on: bool, scale: Scale) -> None:
        """Begin a step, whose gradients are measured or are not."""
        if on or self._on:
            self._on, self._scale = on, scale
            self._passes, self._stepped = 0, False
            self._part = self._refused = self._seen = None
            if self._end is not None:
                self._end.begin(on)

    def take(self) -> MeasuredRows | None:
        """Return the gradients of the step that ends; None where there are none or the scaler left the step out."""
        part, self._part = self._part, None
        if not self._on:
            return None
        self._on = False
        self._expected = self._passes or self._expected
        if self._end is not None:
            self._end.begin(False)
        if part is None or (self._scaler.skips and self._knows_steps and not self._stepped):
            return None
        part.refused = self._refused
        return part

    def close(self) -> None:
        """Take every hook off. Safe twice."""
        remove, self._remove = self._remove, []
        for call in remove:
            call()

    def _said(self) -> None:
        if self._on:
            self._measure("pre_clip", divide=False)

    def _passed(self) -> None:
        """Measure where this may be the last backward pass."""
        self._passes += 1
        # Whose scale nobody told: the scaler itself divides by it, before the optimizer's step at the latest.
        if (self._each or self._passes >= self._expected) and not self._unknown:
            self._measure("pre_clip", divide=True)
        else:
            # What was measured before this pass is not all.
            self._part = None
            self._seen = self._versions()

    def _before_clipping(self) -> None:
        if self._on and self._part is None and self._passes and not self._stepped:
            self._spent(self._first_to_clip)

    def _first_to_clip(self) -> None:
        scaled = not any(map(self._scaler.unscaled, self._optimizers))
        # Somebody may have changed them before, or their scale is anybody's guess: the last chance looks.
        if not self._unknown and not (scaled and self._changed):
            self._measure("pre_clip", divide=scaled)

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if not self._on:
            return
        self._stepped = True
        # A fused optimizer is told on the device that it has to leave the step out.
        found = getattr(optimizer, "found_inf", None)
        if isinstance(found, Tensor):
            self._refused = found.detach().clone()
        if self._part is None:
            self._spent(lambda: self._last_chance(optimizer))

    def _last_chance(self, optimizer: Optimizer) -> None:
        scaled = not self._scaler.unscaled(optimizer)
        untouched = scaled and not self._unknown and self._seen is not None and not self._changed
        self._measure("pre_clip" if untouched else "pre_step", divide=scaled)
        if not untouched and not self._unknown and self._passes:
            self._each = True
            self._warn(
                "Gradients of a step were measured as the optimizer took them, maybe clipped: the step had fewer backward passes than the one before it, and what changed them was not torch.nn.utils.clip_grad_norm_. "
                "Their gradient_stage is pre_step. From now on they are measured after every backward pass."
            )

    @property
    def _changed(self) -> bool:
        """Whether anybody is known to have written to gradients since the backward pass."""
        return self._seen is not None and self._seen != self._versions()

    @property
    def _unknown(self) -> bool:
        return not self._scaler.known and self._end is not None and self._end.half

    def _versions(self) -> tuple[Any, ...] | None:
        """Return what changes when anybody writes to a gradient; None where that cannot be told."""
        found = []
        for point in self._params:
            gradient = point.parameter.grad
            if gradient is not None:
                if hasattr(gradient, "placements"):
                    return None
                found.append((id(gradient), gradient._version))
        return tuple(found)

    def _measure(self, stage: str, *, divide: bool) -> None:
        part = MeasuredRows("grad", gradient_stage=stage, scale=self._scale, divide=divide)
        for measured, rows in self._gradients.measure():
            part.add(measured, rows)
        if self._gradients.in_part:
            first = self._names[self._gradients.in_part[0]]
            self._warn(
                f"Gradients of {len(self._gradients.in_part)} parameters are left out: no process has them, only parts of their sum ({first})."
            )
        self._part = part
