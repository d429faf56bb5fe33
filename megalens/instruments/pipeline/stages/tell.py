"""What a tracer is told of the messages between stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .inbox import Arrival, Key
from .link import Link

__all__ = ["tell_received", "tell_sent"]


def tell_received(watch: Any, message: Arrival, before: int, chunk: int, micro_batch: int) -> None:
    """Tell of what came from another rank, for which this one waited since ``before``, ns."""
    if message.peer < 0:
        return
    watch.message(
        "receive",
        message.posted,
        message.arrived,
        blocked=max(0, message.arrived - max(before, message.posted)),
        nbytes=sum(each.numel() * each.element_size() for each in message.tensors if each is not None),
        peer=message.peer,
        sequence=message.sequence,
        chunk=chunk,
        micro_batch=micro_batch,
    )


def tell_sent(watch: Any, link: Link, chunk_of: Callable[[Key], int]) -> None:
    """Tell of what a link has sent."""
    while link.done:
        key, posted, ended, nbytes, sequence = link.done.popleft()
        watch.message(
            "send",
            posted,
            ended,
            blocked=0,
            nbytes=nbytes,
            peer=link.peer,
            sequence=sequence,
            chunk=chunk_of(key),
            micro_batch=-1 if key[0] == "S" else key[2],
        )
