"""Messages that wait for the operation that needs them."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, NamedTuple

from torch import Tensor

Key = tuple[str, int, int]
"""``F`` (activations), ``B`` (a gradient) or ``S`` (summed weight gradients), virtual stage, micro-batch."""

Spec = tuple[Any, ...]
"""Dtype, shape, and whether it takes a gradient, of each tensor of a message."""


class Arrival(NamedTuple):
    """An arrived message: tensors, or None where there is no gradient.

    Times are ns of ``perf_counter_ns``: when the receive was posted and when it was done; 0 from the same
    rank.
    """

    tensors: tuple[Tensor | None, ...]
    peer: int = -1
    posted: int = 0
    arrived: int = 0
    sequence: int = -1
    works: tuple[Any, ...] = ()


class Inbox:
    """Messages by key. The threads of the links put them in; the training thread takes them out.

    ``lock`` guards all of it, and what links share with their threads. The training thread waits on
    ``changed``, which is notified of every message and failure; ``draining`` says that it waits until
    everything is sent. ``arrivals`` are keys that came from other ranks since a dynamic order last looked.
    Without ``training`` nothing takes a gradient. ``failure`` is the global rank whose link failed first, and
    its error.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.draining = False
        self.filed: dict[Key, Arrival] = {}
        self.arrivals: deque[Key] = deque()
        self._specs: dict[bool, dict[tuple[str, int], Spec]] = {True: {}, False: {}}
        self.training = True
        self.failure: tuple[int, BaseException] | None = None

    @property
    def specs(self) -> dict[tuple[str, int], Spec]:
        """By letter and virtual stage, the specs of its messages in such steps."""
        return self._specs[self.training]

    def put(self, key: Key, message: Arrival) -> None:
        with self.changed:
            self.filed[key] = message
            self.arrivals.append(key)
            self.changed.notify()

    def fail(self, peer: int, error: BaseException) -> None:
        """Note that a link failed; the first failure stays."""
        with self.changed:
            if self.failure is None:
                self.failure = peer, error
            self.changed.notify()


def shapes_text(spec: Spec) -> str:
    return ", ".join(
        f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]" for dtype, shape, _ in spec
    )
