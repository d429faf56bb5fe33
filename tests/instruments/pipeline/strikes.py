"""A process of a job that dies, or stops, and what the others are told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from megalens.instruments.pipeline.errors import StageError

__all__ = ["strike_in", "told_and_ended"]

_TOLD = ("code", "operation", "role", "stage", "micro_batch", "rank", "message")


def strike_in(module: nn.Module, strike: str, folder: str) -> None:
    """Have this process die, or stop, in the second forward pass of a module from now on."""
    (Path(folder) / "pid").write_text(str(os.getpid()))
    passes = iter(range(100))

    def strike_now(*_: Any) -> None:
        if next(passes) == 1:
            os.kill(os.getpid(), signal.SIGKILL if strike == "kill" else signal.SIGSTOP)

    module.register_forward_hook(strike_now)


def told_and_ended(
    rank: int, folder: str, work: Callable[[], object], again: Callable[[], object], awaited: int
) -> None:
    """Write what the error of some work says, and that of doing it ``again``, and end.

    Where others are ``awaited``, the process that stopped is killed once so many of them were told.
    """
    try:
        work()
    except StageError as error:
        said = {name: getattr(error, name, None) for name in _TOLD}
        try:
            again()
        except StageError as more:
            said["again"] = str(more)
        partial = Path(folder) / f"{rank}.part"
        partial.write_text(json.dumps(said))
        partial.rename(Path(folder) / f"{rank}.json")
    if awaited:
        deadline = time.monotonic() + 60
        while len(list(Path(folder).glob("*.json"))) < awaited and time.monotonic() < deadline:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((Path(folder) / "pid").read_text()), signal.SIGKILL)
    # Without the words of farewell that the group would wait for.
    os._exit(0)
