"""The links of one rank to those that it exchanges messages with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from .errors import StageError
from .inbox import Inbox
from .link import Link

__all__ = ["connect"]


def connect(
    ranks: Sequence[int],
    place: int,
    peers: Iterable[int],
    inbox: Inbox,
    device: torch.device,
    *,
    ahead: int,
    timeout: float,
    error: type[StageError],
    makes: str,
) -> dict[int, Link]:
    """Return the links of a rank, by the places of the others. Called by all of the ranks together.

    On NCCL, where receives and sends between two ranks would wait for each other on one stream, messages to higher places and to lower ones have a group each, and headers go over gloo.

    Parameters
    ----------
    ranks : sequence of int
        Global ranks that are connected, by place.
    place : int
        This rank's among them.
    peers : iterable of int
        The places that it talks to; these talk to it, too.
    inbox : Inbox
        Where messages are filed.
    device : torch.device
        Where they are received.
    ahead : int
        Receives posted ahead.
    timeout : float
        Seconds that connecting may take.
    error : type of StageError
        What is raised.
    makes : str
        What every one of them makes, for the error's words.
    """
    # Older versions of torch have no such argument.
    unsorted: dict[str, Any] = {} if sorted(ranks) == list(ranks) else {"sort_ranks": False}

    def group(backend: str) -> Any:
        try:
            return distributed.new_group(
                list(ranks),
                backend=backend,
                timeout=timedelta(seconds=timeout),
                use_local_synchronization=True,
                **unsorted,
            )
        except RuntimeError as failure:
            raise error(
                f"The ranks {list(ranks)} did not all connect within {timeout:.3g} s: every one of them makes its {makes} ({str(failure)[:200]}).",
                code="waited",
                rank=ranks[place],
            ) from failure

    if len(ranks) == 1:
        return {}
    control = up = down = group("gloo")
    if device.type != "cpu":
        up, down = group("nccl"), group("nccl")
    links = {}
    for peer in sorted(peers):
        out, into = (up, down) if place < peer else (down, up)
        links[peer] = Link(inbox, ranks[peer], peer, out, into, control, device, ahead)
    for peer, link in links.items():
        # NCCL connects two ranks in the first message between them, and both wait for it: better here than in the middle of a step. Each rank takes its pairs by rising sum of
        # places, so that no ring of them waits for itself.
        try:
            link.greet(place < peer, timeout)
        except (RuntimeError, TimeoutError) as failure:
            raise error(
                f"Rank {ranks[place]} could not reach rank {ranks[peer]} within {timeout:.3g} s: {str(failure)[:200]}",
                code="lost",
                rank=ranks[place],
            ) from failure
    return links
