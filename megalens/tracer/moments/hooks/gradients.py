"""When the gradients of a step are measured: complete, without the loss scale, and before clipping."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...own_hooks import step_hook
from ..part import MeasuredRows
from ..points import ParamPoint
from .backward_end import UNREDUCED, BackwardEnd, OwnGradients
from .changes import CAME, WENT, Comparison, Noted, Versions, words_of
from .loss_scale import UNKNOWN_SCALE, LossScale
from .values import ParamRows, local_values, rows_of

_MISSED = (
    "Gradients of a step were measured as the optimizer took them, maybe clipped, because no backward pass "
    "through the model was seen in it. Their gradient_stage is pre_step."
)
_LATE = (
    "Gradients were reduced when all backward passes were over, as those of a pipeline's stages are by "
    "fully_shard. So they are measured as the optimizer takes them; their gradient_stage is pre_step."
)
_FREED = (
    "Gradients of parameters are not measured: at the end of the backward pass they are gone, as an "
    "optimizer that steps inside of it takes them. Give that optimizer to megalens.log_statistics, where it "
    "is one of torch's."
)
_SKIPPED = (
    "The GradScaler skips steps with infinite gradients or NaN among them, to try a smaller scale: such a "
    "step has no rows of gradients."
)
_AT_ONCE = {
    CAME: "set by the script where the pass gave none",
    WENT: "taken away",
}


class GradientMoment:
    """Measures the gradients of a step.

    Clipping is done between the last backward pass and the optimizer's step, by whatever means. Which pass is
    the last is not known before: an epoch ends with a step of fewer. So they are measured at the end of each,
    and those of the last one before the optimizer's step stay: they are not clipped yet. When the optimizer
    takes them, some are measured again: where more than clipping has happened, all are, and are labelled as
    the optimizer took them. So they are where no pass was seen, or an unknown scale may be in them, and where
    the optimizer steps inside of the backward pass.

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
        self._points = [*params, *(point for _, point in replicas)]
        self._ids = [*ids, *(at for at, _ in replicas)]
        self._indices: dict[Tensor, list[int]] = {}
        for at, point in enumerate(self._points):
            self._indices.setdefault(point.parameter, []).append(at)
        self._versions = Versions([point.gradient for point in self._points])
        self._own, self._direction = own, direction
        self._scaler = scale
        self._spent, self._warn = spent, warn
        self._on = self._complete = self._directed = False
        self._changes = False
        self._forget()
        self._remove: list[Callable[[], None]] = []
        self._end: BackwardEnd | None = None
        self._optimizers = tuple(optimizers)
        self._known: dict[Optimizer, tuple[int, list[int]]] = {}
        self._knows_steps = False
        if ready is not None:
            self._remove.append(ready(lambda: self._spent(self._ready)))
            return
        self._end = BackwardEnd(
            roots,
            [point.parameter for point in params],
            lambda: self._spent(self._pass_begins),
            lambda: self._spent(self._passed),
            None if own is None else lambda: self._spent(own.computed),
        )
        self._remove.append(self._end.close)
        for optimizer in optimizers:
            before, after = step_hook(self._before_step), step_hook(self._after_step)
            self._remove.append(optimizer.register_step_pre_hook(before).remove)
            self._remove.append(optimizer.register_step_post_hook(after).remove)
            self._knows_steps = True

    def _forget(self) -> None:
        self._parts: list[MeasuredRows] = []
        self._directions: list[MeasuredRows] = []
        self._settled: list[MeasuredRows] = []
        self._settled_ids: set[int] = set()
        self._refused: Tensor | None = None
        self._waiting: Optimizer | None = None
        self._start: list[Noted] | None = None
        self._stepped = self._freed = self._all_taken = False
        self._passes = 0

    def begin(self, due: Collection[str]) -> None:
        """Begin a step, of whose gradients these statistics are measured."""
        self._complete = "grad" in due
        self._directed = "gradient_direction" in due
        on = self._complete or self._directed or any(stat in due for stat in UNREDUCED)
        if self._own is not None:
            self._own.begin(due)
        if on or self._on:
            self._on = on
            self._forget()
            if self._end is not None:
                self._end.begin(on)

    def take(self) -> list[MeasuredRows]:
        """Return the gradients of the step that ends; none where the scaler skipped the step."""
        if self._waiting is not None:
            # The step ends inside of the optimizer's, which called the model itself.
            self._spent(self._settle_waiting)
        parts = [*self._directions] if self._freed else [*self._rows(), *self._directions]
        own = [] if self._own is None else self._own.take()
        on, stepped, refused = self._on, self._stepped, self._refused
        self._forget()
        if not on:
            return []
        self._on = False
        if self._end is not None:
            self._end.begin(False)
        if self._scaler.skips and self._knows_steps and not stepped:
            self._warn(_SKIPPED)
            return []
        unknown = self._unknown
        for part in own:
            part.gradient_stage = "backward_scaled" if unknown else "backward"
            part.scale, part.divide = (float("nan") if unknown else self._scaler.now), not unknown
        for part in (found := [*parts, *own]):
            part.refused = refused
        return found

    def close(self) -> None:
        """Take every hook off. Safe twice."""
        if self._own is not None:
            self._own.end()
        remove, self._remove = self._remove, []
        for call in remove:
            call()

    def _rows(self) -> list[MeasuredRows]:
        """Return what was measured last, but of an optimizer that has stepped since what it took."""
        if not self._settled:
            return self._parts
        return [*(_part_of(part, self._settled_ids, False) for part in self._parts), *self._settled]

    def _ready(self) -> None:
        if self._on and self._complete:
            self._parts = list(self._measured("pre_clip", False))

    def _pass_begins(self) -> None:
        # Only what comes after a measured pass may be no pass that gives parameters a gradient.
        self._start = self._versions.now() if self._parts and self._complete else None

    def _passed(self) -> None:
        """Measure after a backward pass, unless an unknown scale is in the gradients.

        Its owner divides by it before the optimizer's step at the latest.
        """
        start, self._start = self._start, None
        if self._unknown:
            self._parts = []
        elif self._complete and not (start and self._versions.unchanged(start)):
            if self._all_taken:
                # As where a discriminator's gradients are added to by the generator's pass.
                self._settled = [_part_of(part, self._ids, True) for part in self._parts]
                self._settled_ids, self._all_taken = set(self._ids), False
            self._passes += 1
            self._parts = list(self._measured("pre_clip", True))
            if self._optimizers:
                self._versions.note()
            if self._gone():
                self._freed = True
                self._warn(_FREED)

    def _gone(self) -> bool:
        """Return whether a gradient that the pass gave is gone, and no known optimizer has taken it."""
        came = [] if self._end is None else self._end.accumulated
        return any(
            self._values(at) is None and self._ids[at] not in self._settled_ids
            for parameter in came
            if parameter.grad is None
            for at in self._indices.get(parameter, ())
        )

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self._on:
            return
        first, self._stepped = not self._stepped, True
        # A fused optimizer learns on the device that it has to skip the step.
        found = getattr(optimizer, "found_inf", None)
        if isinstance(found, Tensor):
            self._refused = found.detach().clone()
        if any(callable(given) for given in (*args, *kwargs.values())):
            # It computes the gradients itself, by calling that.
            self._waiting = optimizer
        elif self._complete and not self._freed:
            self._spent(lambda: self._settle(optimizer))
        if self._directed and first:
            self._spent(self._measure_direction)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self._waiting is optimizer:
            self._spent(self._settle_waiting)

    def _settle_waiting(self) -> None:
        optimizer, self._waiting = self._waiting, None
        if optimizer is not None and self._on and self._complete and not self._freed:
            self._settle(optimizer)

    def _measure_direction(self) -> None:
        part = MeasuredRows("gradient_direction")
        for ids, rows in () if self._direction is None else self._direction.measure():
            part.add(ids, rows)
        self._directions.append(part)

    def _settle(self, optimizer: Optimizer) -> None:
        """See that what was measured is what the optimizer takes, but for clipping; else measure that."""
        here = self._of(optimizer)
        if not here and any(self._of(other) for other in self._optimizers):
            # It is of another model.
            return
        inside = torch._C._current_graph_task_id() != -1
        # Where optimizers have parameters of their own making, each is taken to have all.
        there = set(here)
        every = not inside and (
            not here
            or not any(p.parameter.requires_grad for at, p in enumerate(self._points) if at not in there)
        )
        ids = set(self._ids) if every else {self._ids[at] for at in here}
        late = self._end is not None and self._end.late
        changed = inside or late or not self._parts
        if late:
            self._warn(_LATE)
        elif self._parts and not inside:
            words = self._change(here or range(len(self._points)), optimizer)
            changed = words is not None
            if words is not None:
                self._warn(words_of(words))
        elif not inside:
            self._warn(UNKNOWN_SCALE if self._unknown else _MISSED)
        parts = self._parts
        if changed:
            divide = not self._unknown and not self._scaler.unscaled(optimizer)
            parts = list(self._measured("pre_step", divide, None if every else ids))
        if every:
            self._parts, self._all_taken = parts, True
            self._settled, self._settled_ids = [], set()
            return
        # Later passes leave gradients of other optimizers there, too.
        self._settled = [_part_of(part, ids, False) for part in self._settled]
        self._settled += [_part_of(part, ids, True) for part in parts]
        self._settled_ids |= ids

    def _of(self, optimizer: Optimizer) -> list[int]:
        """Return which parameters an optimizer has; it may be given more."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._known.get(optimizer)
        if known is None or known[0] != count:
            held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            here = [at for at, point in enumerate(self._points) if id(point.parameter) in held]
            known = self._known[optimizer] = count, here
        return known[1]

    def _change(self, here: Sequence[int], optimizer: Optimizer) -> str | None:
        """Return what else than clipping happened since the last pass, in words.

        Where only a device knows it, its rows are dropped if so, and later ones are measured when the
        optimizer takes them.
        """
        if self._changes:
            return ""
        kinds = self._versions.kinds(here)
        if (words := next((_AT_ONCE[kind] for kind in _AT_ONCE if kind in kinds), None)) is not None:
            return words
        pairs = [
            (row, values)
            for at in self._versions.sample(kinds)
            if (values := self._values(at)) is not None and (row := self._row(self._ids[at])) is not None
        ]
        # One device is enough to tell.
        pairs = [(row, values) for row, values in pairs if row.device == pairs[0][0].device]
        if not pairs:
            return None
        unscaled = self._scaler.unscaled(optimizer)
        writes = min((kind for kind in kinds if isinstance(kind, int)), default=0) - unscaled
        found = Comparison(
            [row for row, _ in pairs],
            rows_of([values for _, values in pairs]),
            tuple(values.dtype for _, values in pairs),
            [rows for part in self._parts for rows in part.rows if rows.device == pairs[0][0].device],
            self._scaler.now if unscaled or self._scaler.told else 1.0,
            self._passes,
            writes,
            self._more_than_clipping,
        )
        if found.here:
            return found.more_than_clipping()
        for part in self._parts:
            part.proof = found
        return None

    def _row(self, name: int) -> Tensor | None:
        """Return what was measured of a name."""
        for part in self._parts:
            if name in part.ids:
                at = part.ids.index(name)
                for rows in part.rows:
                    if at < len(rows):
                        return rows[at]
                    at -= len(rows)
        return None

    def _more_than_clipping(self, words: str) -> None:
        # Called in the producer thread.
        self._changes = True
        self._warn(f"{words_of(words)} Those of the step itself are not recorded.")

    def _values(self, at: int) -> Tensor | None:
        gradient = self._points[at].gradient()
        return None if gradient is None else local_values(gradient)

    @property
    def _unknown(self) -> bool:
        return self._end is not None and self._scaler.unknown(self._end.half)

    def _measured(
        self, stage: str, divide: bool, only: Collection[int] | None = None
    ) -> Iterator[MeasuredRows]:
        for given, counted in ((self._gradients, True), (self._replicas, False)):
            part = MeasuredRows("grad", [], [], stage, self._scaler.now, divide, counted=counted)
            for measured, rows in given.measure(only):
                part.add(measured, rows)
            if counted or part.rows:
                yield part
        if self._gradients.in_part:
            first = self._names[self._gradients.in_part[0]]
            self._warn(
                f"Gradients of {len(self._gradients.in_part)} parameters are left out: no process has "
                f"them, only parts of their sum ({first})."
            )


def _part_of(part: MeasuredRows, ids: Collection[int], inside: bool) -> MeasuredRows:
    """Return the rows of these names, or of all others."""
    found = replace(part, ids=[], rows=[])
    begin = 0
    for rows in part.rows:
        here = part.ids[begin : begin + len(rows)]
        begin += len(rows)
        chosen = [at for at, name in enumerate(here) if (name in ids) is inside]
        if chosen:
            # A copy: the next measurement may write where these are.
            found.add([here[at] for at in chosen], rows[chosen])
    return found
