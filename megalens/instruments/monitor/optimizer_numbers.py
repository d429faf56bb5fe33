"""What is known of an optimizer at each step: its learning rate, how many steps it counts, and what of its
state was written since its last step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ...tracer.moments.points import ParamPoint
from .table import OPTIMIZER_RATE, OPTIMIZER_STEPS, OPTIMIZER_WRITTEN

_MOST = 256


class OptimizerNumbers:
    """Reads numbers where a step of an optimizer begins and ends. Waits for no device.

    A rate or a count in a GPU's memory is not read. That a tensor was written is known by torch's count of
    its versions, which writes through ``.data`` leave as it is.
    """

    def __init__(self, optimizers: Sequence[Optimizer], params: Iterable[ParamPoint]) -> None:
        self._now: dict[str, float] = {}
        self._names = {id(point.parameter): point.name for point in params}
        # Of each optimizer where its state stands (name, parameter, key), and as what its last step left it;
        # nothing of the state itself, which somebody may move to another memory.
        self._places: dict[int, list[tuple[str, Any, str]]] = {}
        self._counts: dict[int, int] = {}
        self._left: dict[int, list[tuple[int, int]]] = {}
        # Written in the training thread, taken in the producer thread.
        self._steps: OrderedDict[int, dict[str, float]] = OrderedDict()
        self._handles = [each.register_step_pre_hook(self._begins) for each in optimizers]
        self._handles += [each.register_step_post_hook(self._ends) for each in optimizers]

    def step_ends(self, step: int) -> None:
        """Keep what was read for ``step``."""
        if self._now:
            self._steps[step], self._now = self._now, {}
            while len(self._steps) > _MOST:
                self._steps.popitem(last=False)

    def of(self, step: int) -> Mapping[str, float]:
        """Return the numbers of a step, once."""
        return self._steps.pop(step, {})

    def close(self) -> None:
        """Take the hooks off. Safe twice."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        rates = [rate for group in optimizer.param_groups if (rate := _number(group.get("lr"))) is not None]
        if rates:
            self._now[OPTIMIZER_RATE] = max(*rates, self._now.get(OPTIMIZER_RATE, 0.0))
        left, now = self._left.get(id(optimizer), []), self._versions(optimizer)
        if left != now and len(left) == len(now):
            for (name, _, _), before, after in zip(self._places[id(optimizer)], left, now, strict=True):
                # A new tensor in the place of an old one begins to count anew.
                if before[0] == after[0] and before[1] < after[1]:
                    key = OPTIMIZER_WRITTEN + name
                    self._now[key] = self._now.get(key, 0) + 1

    def _ends(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        state, here = optimizer.state, id(optimizer)
        if len(state) != self._counts.get(here):
            self._counts[here] = len(state)
            self._places[here] = [
                (self._names[id(parameter)], parameter, key)
                for parameter, values in state.items()
                if id(parameter) in self._names and isinstance(values, dict)
                for key, value in values.items()
                # The count of steps is judged by itself.
                if key != "step" and isinstance(value, Tensor)
            ]
        self._left[here] = self._versions(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"][:1]:
                # Asked for by index, a state that is not there yet would be made.
                count = _number((optimizer.state.get(parameter) or {}).get("step"))
                if count is not None:
                    self._now[OPTIMIZER_STEPS] = min(count, self._now.get(OPTIMIZER_STEPS, count))

    def _versions(self, optimizer: Optimizer) -> list[tuple[int, int]]:
        """Return the identity and version of each tensor of its state; called twice a step."""
        get: Any = optimizer.state.get
        try:
            return [
                (id(value := get(parameter)[key]), value._version)
                for _, parameter, key in self._places.get(id(optimizer), ())
            ]
        except (AttributeError, KeyError, RuntimeError, TypeError):
            # It is gone, or of inference, which counts no versions.
            return []


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and value.device.type == "cpu" else None
    return float(value) if isinstance(value, (int, float)) else None
