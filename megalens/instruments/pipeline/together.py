"""One dynamic order on the ranks of a stage: the first chooses, the others follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

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
