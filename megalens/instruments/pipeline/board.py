"""How a new order comes into force at the same step on all ranks, without any of them waiting.

::

    first rank   step s: post the order for s+1, then send the first forward pass of s ───▶ …
    any rank     step s: each operation depends on that pass ─▶ step s+1 begins: is an order posted for it?

A rank ends step s only after its part of it, for which the first rank's activations of step s had to come:
these were sent after the post. So whoever begins step s+1 finds the post, or there is none. The order is JSON
in the store that the job was started with, and deleted when all must have read it.

One dynamic order on the ranks of a stage: the first chooses, the others follow.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore

from ...protocol import parse_json
from .errors import PipelineError
from .plan_type import Operation

_TAG = 3
_KINDS = "FBIW"
_MOST_SENDING = 64


class Together:
    """Announces the next operation.

    When the first rank has an operation's input, the others' neighbours have computed it or will: they follow
    the first rank's neighbours. ``ranks`` are the tensor-, context- and data-parallel ranks of one stage;
    connecting may take ``timeout`` seconds.
    """

    def __init__(self, ranks: Sequence[int], timeout: float) -> None:
        self._group = distributed.new_group(
            list(ranks), backend="gloo", timeout=timedelta(seconds=timeout), use_local_synchronization=True
        )
        self._others = range(1, len(ranks))
        self.first = min(ranks)
        """Global rank that chooses."""
        self.leads = distributed.get_rank(self._group) == 0
        """Whether this one chooses."""
        self._sent: deque[tuple[Any, Tensor]] = deque()

    def choose(self, operation: Operation) -> None:
        """Announce an operation to the others, without waiting."""
        message = torch.tensor([_KINDS.index(operation.kind), operation.virtual, operation.micro_batch])
        for other in self._others:
            self._sent.append((self._group.send([message], other, _TAG), message))
        while len(self._sent) > _MOST_SENDING * len(self._others):
            # They are a few bytes, which the network took long ago.
            self._sent.popleft()[0].wait()

    def chosen(self, timeout: float) -> Operation:
        """Return the first rank's next operation; raises ``PipelineError`` after the timeout."""
        message = torch.empty(3, dtype=torch.int64)
        try:
            self._group.recv([message], 0, _TAG).wait(timedelta(seconds=timeout))
        except RuntimeError as error:
            raise PipelineError(
                f"Rank {self.first}, which holds the same stage, did not say within {timeout:.3g} s which "
                f"operation is next: {str(error)[:200]}",
                code="waited",
            ) from error
        kind, virtual, number = message.tolist()
        return Operation(_KINDS[kind], virtual, number)


_made: Counter[str] = Counter()


class Board:
    """Orders of one pipeline, by the step from which on they are in force.

    ``first`` is the global rank of the pipeline's first rank. ``decider`` is the one that decides: where
    parallel pipelines share stages, one for all; None on ranks that only know their own first one, which
    posts it. ``timeout`` is in seconds and for what is posted before the first step.
    """

    def __init__(self, first: int, decider: int | None, rank: int, timeout: float) -> None:
        self._timeout = timeout
        store = distributed_c10d._get_default_store()
        number = _made[f"{first}"]
        _made[f"{first}"] += 1
        own = PrefixStore(f"megalens/instruments/pipeline/{first}/{number}", store)
        if decider is not None:
            own.set("decider", str(decider))
        decided_by = int(self._get(own, "decider"))
        self._own = own
        self._store = (
            own
            if decided_by == first
            else PrefixStore(f"megalens/instruments/pipeline/{decided_by}/{number}", store)
        )
        self.decides = rank == decided_by
        """Whether this rank decides."""
        self.decider = decided_by
        """Global rank that decides."""

    def post(self, step: int, order: Mapping[str, Any]) -> None:
        self._store.set(f"order/{step}", json.dumps(order))

    def first(self) -> dict[str, Any]:
        """Return the order of the first step, waiting for it."""
        return _of(self._get(self._store, "order/1"))

    def look(self, step: int) -> dict[str, Any] | None:
        """Return the new order that is in force from a step on, if any."""
        key = f"order/{step}"
        if not self._store.check([key]):
            return None
        return _of(self._store.get(key))

    def forget(self, step: int) -> None:
        """Delete the post for a step that all ranks have begun."""
        self._store.delete_key(f"order/{step}")

    def publish(self, name: str, value: Any) -> None:
        """Post something to this rank's own pipeline."""
        self._own.set(name, json.dumps(value))

    def last_post(self, name: str) -> Any:
        """Return a rank's last post in this pipeline, or None."""
        return parse_json(self._own.get(name)) if self._own.check([name]) else None

    def wait_for(self, name: str) -> Any:
        """Return a rank's post in this pipeline, waiting for it."""
        return parse_json(self._get(self._own, name))

    def _get(self, store: Any, key: str) -> bytes:
        try:
            store.wait([key], timedelta(seconds=self._timeout))
        except (RuntimeError, ValueError) as error:
            raise PipelineError(
                f"Another rank of the pipeline did not come within {self._timeout:.3g} s: every rank makes "
                f"its DynamicSchedule, with its own stages ({str(error)[:200]}).",
                code="waited",
            ) from error
        return store.get(key)  # type: ignore[no-any-return]


def _of(given: bytes) -> dict[str, Any]:
    found = parse_json(given)
    if not isinstance(found, dict):
        raise PipelineError("What is posted as an order is none.", code="shape")
    if "error" in found:
        raise PipelineError(str(found["error"])[:2000])
    return found
