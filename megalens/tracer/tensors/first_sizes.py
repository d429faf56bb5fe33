"""Sizes before anything is traced: one step is looked at, so that viewers can say what tracing will send."""

from __future__ import annotations

from ..graph_operator import compiles
from ..graph_probes import is_compiled
from ..points import FLAGS, ModelPoints
from .batch import Batch
from .capture import Capture
from .config import change_plan
from .plan import TracingPlan

_FLAGS = 2
"""Tensors of which one is enough; where a module is not called, another is."""
_LAST = 6
"""The last step that is looked at, where an evaluation came into those before."""


class FirstSizes:
    """Counts the micro-batches of the second step and takes the length of its sequences. It sends no row.

    It is not the first step, since that shows whether anything is compiled, which would be compiled anew
    for a hook that goes again: there nothing is looked at.
    """

    def __init__(self, points: ModelPoints) -> None:
        self._points = points
        self._capture: Capture | None = None
        self._steps = 0

    def begin(self, step: int) -> None:
        """Look at a step that begins, if it is the one."""
        self._steps += 1
        if not 2 <= self._steps <= _LAST or compiles() or is_compiled(self._points.roots):
            return
        names = [
            name
            for name, here in self._points.flags.items()
            if here.layers and FLAGS[name].axes[0] == "position" and not FLAGS[name].exact
        ]
        flags = {
            name: {"compressor": {"name": "Empty"}, "layers": str(min(self._points.flags[name].layers))}
            for name in names[:_FLAGS]
        }
        capture = Capture(self._points, lambda text: None, _discard)
        try:
            capture.follow(change_plan(TracingPlan(), {"flags": flags}, self._points))
        except Exception:
            # Nobody has asked for it: who asks for the same is told why it cannot be had.
            capture.release()
            return
        capture.begin(step, "train")
        self._capture = capture

    def end(self) -> tuple[int | None, int]:
        """Take all hooks off. Return the positions, None where they were not seen, and the micro-batches."""
        capture, self._capture = self._capture, None
        if capture is None:
            return None, 0
        found = capture.positions, capture.micro_batches
        _discard(capture.take())
        capture.release()
        return found


def _discard(batch: Batch | None) -> None:
    if batch is not None and batch.stage is not None:
        batch.stage.give_back()
