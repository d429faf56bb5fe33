"""What the compiler is told, and asked, where there are probes in its code."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["compiles", "guard_hooks", "release_hooks"]

_SKIPS = "skip_nnmodule_hook_guards"
_open: set[int] = set()
_skipped_before = True


def compiles() -> bool:
    """Return whether ``torch.compile`` has compiled anything in this process that is still there."""
    frames: Any = sys.modules.get("torch._dynamo.convert_frame")
    return frames is not None and any(code() is not None for code in frames.input_codes.seen)


def guard_hooks(owner: int) -> bool:
    """Have the compiler notice hooks that come and go, in what it compiles from now on; return whether it has compiled anything before, which it forgets.

    By itself it takes a module that had no hooks when it was compiled for one that has none, and uses its code for others of its class.

    Parameters
    ----------
    owner : int
        Who asks for it; until :func:`release_hooks`.
    """
    global _skipped_before
    import torch._dynamo as dynamo

    if not _open:
        _skipped_before = getattr(dynamo.config, _SKIPS)
    _open.add(owner)
    setattr(dynamo.config, _SKIPS, False)
    compiled = compiles()
    dynamo.reset_code_caches()
    return compiled


def release_hooks(owner: int) -> None:
    """Have the compiler go on as before, when nobody asks for more. Safe twice."""
    import torch._dynamo as dynamo

    if owner in _open:
        _open.discard(owner)
        if not _open:
            setattr(dynamo.config, _SKIPS, _skipped_before)
