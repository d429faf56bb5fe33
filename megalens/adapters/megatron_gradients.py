"""The moment in a Megatron-Core step at which gradients are reduced, unscaled and known to be finite, and not yet clipped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["ready_moment"]

_PREPARE = "prepare_grads"
Stop = Callable[[], None]


def ready_moment(optimizer: Any) -> Callable[[Callable[[], None]], Stop] | None:
    """Return what takes a function to call whenever the gradients are ready, and gives back what stops that; None where ``optimizer`` does not tell the moment.

    Of Megatron-Core's optimizers it is when they have prepared gradients and found them finite, before they clip. One of torch's is called when all is done to gradients that the training does to them.
    """
    first = optimizer[0] if isinstance(optimizer, (list, tuple)) and optimizer else optimizer
    if callable(getattr(first, _PREPARE, None)):
        return functools.partial(_when_prepared, first)
    if callable(getattr(first, "register_step_pre_hook", None)):
        return functools.partial(_before_step, first)
    return None


def _when_prepared(optimizer: Any, then: Callable[[], None]) -> Stop:
    """Stand in for the method ``prepare_grads`` of this very optimizer.

    It answers what it always does: whether there was an infinite or undefined gradient, for which the step is skipped and ``then`` is not called. A chained optimizer asks all that it is made of, and the step is
    skipped where one of them says so; so only the outermost is stood in for.
    """
    before: Any = vars(optimizer).get(_PREPARE)
    prepare = getattr(optimizer, _PREPARE)
    active = True

    @functools.wraps(prepare)
    def prepared(*args: Any, **kwargs: Any) -> Any:
        found_infinite = prepare(*args, **kwargs)
        if active and not found_infinite:
            then()
        return found_infinite

    def stop() -> None:
        nonlocal active
        active = False
        # Whoever stood in after us keeps calling ours, which does nothing more.
        if vars(optimizer).get(_PREPARE) is prepared:
            if before is None:
                delattr(optimizer, _PREPARE)
            else:
                setattr(optimizer, _PREPARE, before)

    setattr(optimizer, _PREPARE, prepared)
    return stop


def _before_step(optimizer: Any, then: Callable[[], None]) -> Stop:
    stop: Stop = optimizer.register_step_pre_hook(lambda *_: then()).remove
    return stop
