"""The moment in Megatron-Core's step at which gradients are reduced, unscaled and known to be finite, and not yet clipped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["gradients_ready", "has_ready_moment"]

_PREPARE = "prepare_grads"


def has_ready_moment(optimizer: Any) -> bool:
    """Return whether ``optimizer`` is one of Megatron-Core's, which prepares gradients before it clips them."""
    return callable(getattr(optimizer, _PREPARE, None))


def gradients_ready(optimizer: Any, then: Callable[[], None]) -> Callable[[], None]:
    """Call ``then`` whenever ``optimizer`` has prepared finite gradients, before it clips them; what it returns stops that.

    The method ``prepare_grads`` of this very optimizer is stood in for, and answers what it always does: whether there was an infinite or undefined gradient, for which the step is skipped and ``then`` is not
    called. A chained optimizer asks all that it is made of, and the step is skipped where one of them says so; so only the outermost is stood in for.
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
