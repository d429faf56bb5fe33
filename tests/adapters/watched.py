"""Runs a model once while it is watched, and again while what the pass has shown is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from megalens.adapters import find_points
from megalens.adapters.watch import PassWatch
from megalens.tracer import FLAGS, ModelPoints
from megalens.tracer.tensors.capture import Capture
from megalens.tracer.tensors.config import change_plan, settings_from
from megalens.tracer.tensors.plan import TracingPlan

Traced = dict[tuple[str, int, str], Tensor]


def watched(
    model: nn.Module, forward: Callable[[], Any], adapter: Any = None
) -> tuple[ModelPoints, PassWatch]:
    """Return what one pass shows of ``model``; the pass gives what it gives when nothing watches."""
    state, hooks = torch.get_rng_state(), hooks_of(model)
    with torch.no_grad():
        bare = forward()
    torch.set_rng_state(state)
    watch = PassWatch(adapter.points(model) if adapter else find_points(model), adapter)
    with torch.no_grad(), watch:
        seen = forward()
    if isinstance(bare, Tensor):
        assert torch.equal(bare, seen)
    points = watch.finish()
    assert hooks_of(model) == hooks
    return points, watch


def hooks_of(model: nn.Module) -> list[Any]:
    return [[*each._forward_hooks, *each._forward_pre_hooks] for each in model.modules()]


@contextmanager
def captured(points: ModelPoints, *passes: str) -> Iterator[list[Any]]:
    """Give a list that has the rows of one training step at its end: every flag that there is, uncompressed
    and with all samples, in passes forward or in ``passes``.
    """
    warnings: list[str] = []
    capture = Capture(points, warnings.append, hand_over=lambda batch: None)
    settings = {
        name: {
            "compressor": {"name": "NoOp"},
            "samples": None,
            "passes": [*passes] if passes and FLAGS[name].gradient else ["forward"],
        }
        for name, here in points.flags.items()
        if here.layers
    }
    capture.follow(change_plan(TracingPlan(), settings_from(settings), points))
    # Training mode of the model itself is all that tells a pass of training; what is inside may stay without dropout.
    for root in points.roots:
        root.training = True
    rows: list[Any] = []
    try:
        capture.begin(1, "train")
        yield rows
        _, _, missing = capture.fired() or (0, 0, {})
        rows += capture.take().rows
        assert (missing, warnings) == ({}, []), (missing, warnings)
    finally:
        capture.release()


def traced(points: ModelPoints, forward: Callable[[], Any]) -> Traced:
    """Return what is traced of one pass."""
    with captured(points) as rows:
        forward()
    return by_key(rows)


def by_key(rows: Sequence[Any]) -> Traced:
    return {(r.meta.flag, r.meta.layer, r.meta.part): torch.as_tensor(r.values).detach() for r in rows}
