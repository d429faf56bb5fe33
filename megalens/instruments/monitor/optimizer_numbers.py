"""What an optimizer says of itself at each step: its learning rate, and how many steps it counts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from .table import OPTIMIZER_RATE, OPTIMIZER_STEPS

_MOST = 256


class OptimizerNumbers:
    """Reads numbers where a step of an optimizer begins and ends. Waits for no device.

    A rate or a count in a GPU's memory is not read.
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._now: dict[str, float] = {}
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

    def _ends(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"][:1]:
                # Asked for by index, a state that is not there yet would be made.
                count = _number((optimizer.state.get(parameter) or {}).get("step"))
                if count is not None:
                    self._now[OPTIMIZER_STEPS] = min(count, self._now.get(OPTIMIZER_STEPS, count))


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and value.device.type == "cpu" else None
    return float(value) if isinstance(value, (int, float)) else None
