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
        # Of each parameter's state after its last step, the tensors and their versions.
        self._left: dict[int, dict[int, int]] = {}
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
        for parameter, state in optimizer.state.items():
            left = self._left.get(id(parameter))
            if not left:
                continue
            # A new tensor in the place of an old one begins to count anew.
            written = sum(left.get(at, now) < now for at, now in _versions(state).items())
            if written:
                self._now[OPTIMIZER_WRITTEN + self._names[id(parameter)]] = written

    def _ends(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for parameter, state in optimizer.state.items():
            if id(parameter) in self._names:
                self._left[id(parameter)] = _versions(state)
        for group in optimizer.param_groups:
            for parameter in group["params"][:1]:
                # Asked for by index, a state that is not there yet would be made.
                count = _number((optimizer.state.get(parameter) or {}).get("step"))
                if count is not None:
                    self._now[OPTIMIZER_STEPS] = min(count, self._now.get(OPTIMIZER_STEPS, count))


def _versions(state: Any) -> dict[int, int]:
    if not isinstance(state, dict):
        return {}
    # The count of steps is judged by itself.
    return {
        id(value): value._version
        for key, value in state.items()
        if key != "step" and isinstance(value, Tensor) and not value.is_inference()
    }


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and value.device.type == "cpu" else None
    return float(value) if isinstance(value, (int, float)) else None
