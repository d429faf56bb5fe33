"""When the gradients of a step are measured: complete, without the loss scale, and before clipping."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...errors import TracerError
from ...own_hooks import hook_after
from ...passes import after_backward, at_each_backward
from ..part import MeasuredRows, Scale
from ..points import ParamPoint
from .own_gradients import UNREDUCED, OwnGradients
from .values import ParamRows, half_precision

_WATCHED = 4

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


class BackwardEnd:
    """Calls back at the end of each backward pass through a model, while it is on.

    What is queued in the autograd engine runs after the pass. DDP and ``fully_shard`` finish the gradients
    that way, in the same queue; so the first thing queued here queues another, which comes after theirs.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass. The gradient of their output is the first thing in a backward
        pass, outside of all that checkpointing nests in it.
    parameters : sequence of torch.nn.Parameter
        Where a pass does not come through the output of a root, some of these detect it instead.
    ended : callable
        Called after each pass; must not raise.
    computed : callable, optional
        Called when all gradients of a pass are computed, before DDP finishes the reduction that it began;
        must not raise. Not of a pass that comes through no root.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        parameters: Sequence[nn.Parameter],
        ended: Callable[[], None],
        computed: Callable[[], None] | None = None,
    ) -> None:
        self._ended, self._computed = ended, computed
        self._queued = False
        self._entered = False
        self.on = False
        self.half = False
        """Whether the model ran in half precision, which asks for a loss scale."""
        spread = [p for p in parameters if p.requires_grad]
        chosen = spread[:: max(1, len(spread) // _WATCHED)][:_WATCHED]
        self._handles: list[Any] = [hook_after(root, self._called) for root in roots]
        self._handles += [
            p.register_post_accumulate_grad_hook(self._accumulated)  # type: ignore[no-untyped-call]
            for p in chosen
        ]

    def begin(self, on: bool) -> None:
        """Follow the passes of a step, or do not."""
        self.on = on
        self._queued = self._entered = self.half = False

    def close(self) -> None:
        """Take every hook off. Safe twice."""
        self.on = False
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _called(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not self.on or not torch.is_grad_enabled():
            return
        self.half = self.half or half_precision()
        at_each_backward(output, self._arrived)

    def _arrived(self) -> None:
        self._entered = True
        self._queue()

    def _accumulated(self, parameter: Tensor) -> None:
        if self.on:
            self._queue()

    def _queue(self) -> None:
        if self.on and not self._queued:
            self._queued = True
            after_backward(self._first)

    def _first(self) -> None:
        # Queued when the first gradient arrived, so that it runs before what DDP queued with its last bucket.
        if self.on and self._entered and self._computed is not None:
            self._computed()
        after_backward(self._second)

    def _second(self) -> None:
        self._queued = self._entered = False
        if self.on:
            self._ended()


class GradientMoment:
    """Measures the gradients of a step.

    Clipping is done between the last backward pass and the optimizer's step, by whatever means. Which pass is
    the last is not known before: an epoch ends with a step of fewer. So they are measured at the end of each,
    and those of the last one stay: they are not clipped yet. Where no pass was seen, or an unknown scale may
    be in them, the optimizer's step is the first moment to be sure of; they are then labelled as the
    optimizer took them.

    Parameters
    ----------
    params : sequence of ParamPoint
        Those that this process counts, with their indices in the list of names as ``ids``.
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    ready : callable, optional
        Where an adapter knows the moment itself: takes what to call then, returns what takes it away. The
        gradients are unscaled there.
    spent : callable
        Calls a function so that neither its time nor an error of its own is the training's.
    replicas : sequence of tuple
        Points that another process counts, with their ids: measured as well, to be compared with theirs.
    own : OwnGradients, optional
        Follows the backward passes.
    direction : ParamRows, optional
        What is measured of gradients right before the optimizer's step.
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
        replicas: Sequence[tuple[int, ParamPoint]] = (),
        own: OwnGradients | None = None,
        direction: ParamRows | None = None,
    ) -> None:
        self._names = {at: point.name for at, point in zip(ids, params, strict=True)}
        self._gradients = ParamRows(ids, [point.gradient for point in params])
        self._replicas = ParamRows([at for at, _ in replicas], [point.gradient for _, point in replicas])
        self._own, self._direction = own, direction
        self._directed = False
        self._scaler = scale
        self._spent, self._warn = spent, warn
        self._on = self._stepped = self._complete = False
        self._refused: Tensor | None = None
        self._parts: list[MeasuredRows] = []
        self._remove: list[Callable[[], None]] = []
        self._end: BackwardEnd | None = None
        self._knows_steps = False
        if ready is not None:
            self._remove.append(ready(lambda: self._spent(self._ready)))
            return
        self._end = BackwardEnd(
            roots,
            [point.parameter for point in params],
            lambda: self._spent(self._passed),
            None if own is None else lambda: self._spent(own.computed),
        )
        self._remove.append(self._end.close)
        for optimizer in optimizers:
            self._remove.append(optimizer.register_step_pre_hook(self._before_step).remove)
            self._knows_steps = True

    def begin(self, due: Collection[str]) -> None:
        """Begin a step, of whose gradients these statistics are measured."""
        self._complete = "grad" in due
        self._directed = "gradient_direction" in due
        on = self._complete or self._directed or any(stat in due for stat in UNREDUCED)
        if self._own is not None:
            self._own.begin(due)
        if on or self._on:
            self._on, self._stepped = on, False
            self._parts, self._refused = [], None
            if self._end is not None:
                self._end.begin(on)

    def take(self) -> list[MeasuredRows]:
        """Return the gradients of the step that ends; none where the scaler skipped the step."""
        parts, self._parts = self._parts, []
        own = [] if self._own is None else self._own.take()
        if not self._on:
            return []
        self._on = False
        if self._end is not None:
            self._end.begin(False)
        if self._scaler.skips and self._knows_steps and not self._stepped:
            return []
        unknown = self._unknown
        for part in own:
            part.gradient_stage = "backward_scaled" if unknown else "backward"
            part.scale, part.divide = (float("nan") if unknown else self._scaler.now), not unknown
        for part in (found := [*parts, *own]):
            part.refused = self._refused
        return found

    def close(self) -> None:
        """Take every hook off. Safe twice."""
        if self._own is not None:
            self._own.end()
        remove, self._remove = self._remove, []
        for call in remove:
            call()

    def _ready(self) -> None:
        if self._on and self._complete:
            self._measure("pre_clip", divide=False)

    def _passed(self) -> None:
        """Measure after a backward pass, unless an unknown scale is in the gradients.

        Its owner divides by it before the optimizer's step at the latest.
        """
        if self._unknown:
            self._parts = []
        elif self._complete:
            self._measure("pre_clip", divide=True)

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if not self._on:
            return
        first, self._stepped = not self._stepped, True
        # A fused optimizer learns on the device that it has to skip the step.
        found = getattr(optimizer, "found_inf", None)
        if isinstance(found, Tensor):
            self._refused = found.detach().clone()
        if self._complete and not self._parts:
            self._spent(lambda: self._last_chance(optimizer))
        if self._directed and first:
            self._spent(self._measure_direction)

    def _measure_direction(self) -> None:
        part = MeasuredRows("gradient_direction")
        for ids, rows in () if self._direction is None else self._direction.measure():
            part.add(ids, rows)
        self._parts.append(part)

    def _last_chance(self, optimizer: Optimizer) -> None:
        unknown = self._unknown
        self._measure("pre_step", divide=not unknown and not self._scaler.unscaled(optimizer))
        self._warn(
            UNKNOWN_SCALE
            if unknown
            else "Gradients of a step were measured as the optimizer took them, maybe clipped, because no "
            "backward pass through the model was seen in it. Their gradient_stage is pre_step."
        )

    @property
    def _unknown(self) -> bool:
        return self._end is not None and self._scaler.unknown(self._end.half)

    def _measure(self, stage: str, *, divide: bool) -> None:
        self._parts = []
        for given, counted in ((self._gradients, True), (self._replicas, False)):
            part = MeasuredRows("grad", [], [], stage, self._scaler.now, divide, counted=counted)
            for measured, rows in given.measure():
                part.add(measured, rows)
            if counted or part.rows:
                self._parts.append(part)
        if self._gradients.in_part:
            first = self._names[self._gradients.in_part[0]]
            self._warn(
                f"Gradients of {len(self._gradients.in_part)} parameters are left out: no process has "
                f"them, only parts of their sum ({first})."
            )
