"""Operations of torch's own pipeline schedules, which say of which micro-batch they are."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from ..instrument import Instrument

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
        self._roots: tuple[nn.Module, ...] = ()
        self._chunks: dict[int, int] = {}
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def begin(self, roots: Sequence[nn.Module]) -> None:
        """Stand before them, where the script uses them. Safe twice."""
        self._roots = tuple(roots)
        self._chunks.clear()
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
            self._instrument.operation_begins(kind, self._chunk(stage), number)
            try:
                return own(stage, number, *args, **kwargs)
            finally:
                self._instrument.operation_ends()

        return operation

    def _chunk(self, stage: Any) -> int:
        module = stage.submod
        found = self._chunks.get(id(module))
        if found is None:
            inside = set(map(id, module.modules()))
            found = next((chunk for chunk, root in enumerate(self._roots) if id(root) in inside), 0)
            self._chunks[id(module)] = found
        return found
