"""What the functions of ``torch.distributed`` are given and give, call by call, and from where they are called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .....tracer.collectives import CollectiveHooks, Done, tensors_of
from .collector import CallRows

__all__ = ["CollectiveCalls"]

_EPS = 1e-8
_MOST_STACKS = 1000
_OURS = str(Path(__file__).parents[4])
_LEFT_OUT = re.compile(r"torch[/\\]nn[/\\]modules[/\\]module\.py|[/\\](multiprocessing|debugpy)[/\\]")


class CollectiveCalls:
    """Hooks for ``cc_distribution``. Nothing waits for the device.

    Parameters
    ----------
    lines : sequence of str
        Patterns of which one has to be found in the stack of a call, ``path[line]   function`` joined by ``;``. None: every call.
    before : bool
        Whether the tensors are also measured before the call.
    only_stacks : bool
        Whether nothing is measured, and stacks are kept.
    failed : callable
        Takes an exception of ours, which the training does not see.

    Attributes
    ----------
    stacks : dict
        By operation the stacks from which it was called, innermost frame first, with ``only_stacks``.
    """

    def __init__(
        self, lines: Sequence[str], *, before: bool, only_stacks: bool, failed: Callable[[Exception], None]
    ) -> None:
        self._lines = [re.compile(line) for line in lines]
        self._before, self._only_stacks, self._failed = before, only_stacks, failed
        self.stacks: dict[str, list[list[str]]] = {}
        self._rows = CallRows()
        self._hooks = CollectiveHooks(self._called)
        self._hooks.begin()

    def _called(self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Done | None:
        try:
            if self._lines or self._only_stacks:
                frames = _frames()
                stack = ";".join(frames)
                if self._lines and not any(line.search(stack) for line in self._lines):
                    return None
                if self._only_stacks:
                    known = self.stacks.setdefault(operation, [])
                    if frames not in known and len(known) < _MOST_STACKS:
                        known.append(frames)
                    return None
        except Exception as error:
            self._failed(error)
            return None
        found = [tensors for each in (*args, *kwargs.values()) if (tensors := tensors_of(each))]
        if self._before:
            self._look(operation, "pre", found)
        return lambda _: self._look(operation, "post", found)

    def _look(self, operation: str, when: str, found: Sequence[Sequence[Tensor]]) -> None:
        try:
            for number, tensors in enumerate(found):
                value = (
                    tensors[0]
                    if len(tensors) == 1
                    else torch.cat([each.detach().flatten() for each in tensors])
                )
                self._rows.add((0, f"{operation}.{when}_{number}", None), value, _EPS)
        except Exception as error:
            self._failed(error)

    def take(self) -> CallRows:
        """Return the rows of all calls since the last time, several of one name."""
        rows, self._rows = self._rows, CallRows()
        return rows

    def close(self) -> None:
        """Give the functions back. Safe twice."""
        self._hooks.end()


def _frames() -> list[str]:
    """Return where this is called from, innermost first, as ``path[line]   function``."""
    found, frame = [], inspect.currentframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_OURS) and not _LEFT_OUT.search(path):
            found.append(f"{path}[{frame.f_lineno}]   {frame.f_code.co_name}")
        frame = frame.f_back
    return found
