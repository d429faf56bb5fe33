"""Groups of backward processes, and the links of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d

from ..errors import SplitError
from ..stages.inbox import Inbox
from ..stages.link import connect
from .layout import SplitLayout
from .mail import Mail, SplitNotes


class SplitGroups:
    """The groups of one process. Every process makes it, at once.

    ``notes`` tell the others' devices; connecting, and later each exchange, may take ``timeout`` seconds.
    """

    def __init__(
        self, layout: SplitLayout, rank: int, device: torch.device, notes: SplitNotes, timeout: float
    ) -> None:
        here = layout.place(rank)
        self._layout, self._here, self._timeout = layout, here, timeout
        self.device = device
        """Device of this process's module."""
        notes.write(f"device/{rank}", device.type)
        types = {notes.read(f"device/{each.rank}", f"{each.name} to begin") for each in layout.processes}
        # NCCL reaches GPUs alone: where some processes have none, everything goes over the CPU.
        self.staged = types != {"cpu"} and not (types == {"cuda"} and _has_nccl())
        self._backend = "nccl" if types == {"cuda"} and not self.staged else "gloo"

        def peers(**differ: bool) -> list[int]:
            return [
                each.rank
                for each in layout.processes
                if each.role == here.role
                and all(
                    differ.get(axis) or getattr(each, axis) == getattr(here, axis)
                    for axis in ("stage", "replica", "tensor")
                )
            ]

        self._count_alike(notes)
        backward = here.role == "backward"
        self.tensor = self._group(peers(tensor=True))
        """Processes of this role, stage and replica; None where there is only one, as below."""
        self.place = replace(here, group=self.tensor)
        """This process, with that group."""
        self.replicas = self._group(peers(replica=True) if backward else [rank])
        """Backward processes with the same weights."""
        self.model = self._group(peers(stage=True, tensor=True) if backward else [rank])
        """Backward processes of one replica."""

    def mail(self, *, ahead: int, headers: bool) -> Mail:
        """Connect this process with those that it exchanges messages with."""
        rank = self._here.rank
        ranks = self._layout.connected(rank)
        where = torch.device("cpu") if self.staged else self.device
        inbox = Inbox()
        links = connect(
            ranks,
            ranks.index(rank),
            [ranks.index(each) for each in self._layout.peers(rank)],
            inbox,
            where,
            ahead=ahead,
            timeout=self._timeout,
            error=SplitError,
            makes="SplitTraining",
        )
        return Mail(
            self._here,
            {each.rank: each.name for each in self._layout.processes},
            {link.peer: link for link in links.values()},
            inbox,
            self.device,
            headers=headers,
            staged=self.staged and self.device.type != "cpu",
            timeout=self._timeout,
        )

    def _group(self, ranks: Sequence[int]) -> Any:
        """Connect some processes; those without others make a group of their own, so that all count alike."""
        alone = len(ranks) < 2
        found = self.guarded(
            f"ranks {list(ranks)} to connect",
            lambda: distributed.new_group(
                [self._here.rank] if alone else list(ranks),
                backend="gloo" if alone else self._backend,
                timeout=timedelta(seconds=self._timeout),
                use_local_synchronization=True,
            ),
        )
        return None if alone else found

    def _count_alike(self, notes: SplitNotes) -> None:
        """Make as many groups as every other process.

        torch names a group that only its members make by its ranks and by how many groups each of them has.
        """
        notes.write(f"groups/{self._here.rank}", _groups_held())
        counts = [
            notes.read(f"groups/{each.rank}", f"{each.name} to begin") for each in self._layout.processes
        ]
        while _groups_held() < max(counts):
            self._group([self._here.rank])

    def guarded(self, what: str, work: Callable[[], Any]) -> Any:
        """Run collective work; raises ``SplitError`` where a process is gone, or late."""
        try:
            return work()
        except RuntimeError as error:
            here = self._here
            raise SplitError(
                f"{here.name.capitalize()} waited up to {self._timeout:.3g} s for {what}, and one of them "
                f"is gone, stopped or stuck: {str(error)[:200]}",
                code="lost",
                role=here.role,
                stage=here.stage,
                rank=here.rank,
            ) from error


def _groups_held() -> int:
    return len(distributed_c10d._world.pg_names)


def _has_nccl() -> bool:
    return "nccl" in str(distributed.get_backend_config())
