"""Operations of torch's own pipeline schedules, which say of which micro-batch they are."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ....tracer.instrument import Instrument

__all__ = ["StageHooks"]

_OPERATIONS = {
    "forward_one_chunk": "forward",
    "backward_one_chunk": "backward",
    "backward_weight_one_chunk": "wgrad",
}


class StageHooks:
    """Stands before the operations of ``torch.distributed.pipelining``'s stages while steps are timed.

    Counting forward passes would tell micro-batches as long as each chunk has them in order; gradients of weights alone call no module at all.

    Parameters
    ----------
    instrument : Instrument
        Is told of each.
    """

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def begin(self) -> None:
        """Stand before them, where the script uses them. Safe twice."""
        module = sys.modules.get("torch.distributed.pipelining.stage")
        if module is None or self._replaced:
            return
        # torch's two kinds of stage have it from one class.
        place = module.PipelineStage.__mro__[1]
        for name, kind in _OPERATIONS.items():
            own = getattr(place, name, None)
            if own is not None:
                ours = self._told(own, kind)
                setattr(place, name, ours)
                self._replaced.append((place, name, own, ours))

    def end(self) -> None:
        """Give them back. Safe twice."""
        replaced, self._replaced = self._replaced, []
        for place, name, own, ours in replaced:
            if getattr(place, name) is ours:
                setattr(place, name, own)

    def _told(self, own: Callable[..., Any], kind: str) -> Callable[..., Any]:
        @functools.wraps(own)
        def operation(stage: Any, number: int, *args: Any, **kwargs: Any) -> Any:
            # However stages are placed, each round over the ranks is a chunk of every rank.
            self._instrument.operation_begins(kind, stage.stage_index // stage.group_size, number)
            try:
                return own(stage, number, *args, **kwargs)
            finally:
                self._instrument.operation_ends()

        return operation
