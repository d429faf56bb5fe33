"""The messages of one process of a split training: all are expected, and each wait ends in time.

Groups of backward processes, and the links of one process.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore

from ....protocol import parse_json
from ..errors import SplitError
from ..stages.inbox import Inbox, Key, shapes_text
from ..stages.link import Link, connect, drain, report_received, report_sent, spec_of
from .layout import SplitLayout, SplitPlace

if TYPE_CHECKING:
    from ....tracer import Tracer


_clock = time.perf_counter_ns

_made: Counter[str] = Counter()


class SplitNotes:
    """Notes of one training, by name. Every process makes its trainings in the same order.

    A note may take ``timeout`` seconds to come.
    """

    def __init__(self, place: SplitPlace, timeout: float) -> None:
        self._place, self._timeout = place, timeout
        number = _made["split"]
        _made["split"] += 1
        store = distributed_c10d._get_default_store()
        self._store = PrefixStore(f"megalens/instruments/pipeline/split/{number}", store)

    def write(self, name: str, value: Any) -> None:
        try:
            self._store.set(name, json.dumps(value))
        except (RuntimeError, OSError) as error:
            raise self._gone(name, error) from error

    def read(self, name: str, whose: str) -> Any:
        """Return a note, waiting for it; ``whose`` names the sender in errors."""
        try:
            self._store.wait([name], timedelta(seconds=self._timeout))
            return parse_json(self._store.get(name))
        except (RuntimeError, OSError) as error:
            raise self._gone(whose, error) from error

    def leave(self, world: int) -> None:
        """Leave. The process with the store waits for everybody: others may still read in it."""
        with contextlib.suppress(SplitError):
            self.write(f"farewell/{self._place.rank}", True)
            if self._place.rank == 0:
                for rank in range(1, world):
                    self.read(f"farewell/{rank}", f"rank {rank} to end")

    def _gone(self, whose: str, error: BaseException) -> SplitError:
        return self._place.error(
            f"{self._place.name.capitalize()} waited up to {self._timeout:.3g} s for {whose}, and nothing "
            "came: every process makes its SplitTraining, and calls save(…) and load(…), like the others "
            f"({str(error)[:200]}).",
            code="waited",
        )


class Mail:
    """Sends and receives messages over the links of one process.

    ``names`` are the others' in messages. Tensors are wanted on ``device``, and received where the links
    receive them. ``headers`` says whether shapes change from message to message. After ``timeout`` seconds a
    missing message is given up.
    """

    def __init__(
        self,
        place: SplitPlace,
        names: Mapping[int, str],
        links: Mapping[int, Link],
        inbox: Inbox,
        device: torch.device,
        *,
        headers: bool,
        staged: bool,
        timeout: float,
    ) -> None:
        self.place = place
        self._names, self._links, self._inbox = names, links, inbox
        self._device, self._headers, self._staged, self._timeout = device, headers, staged, timeout
        self.watch: Tracer | None = None
        """The observer of every message, in a step that it follows."""

    # Both ends know the order of activations and gradients; the first message has the shapes.

    def begin(self, expected: Mapping[int, Iterable[Key]]) -> None:
        """Set this step's messages by rank, in order."""
        for rank, link in self._links.items():
            link.timed = self.watch is not None
            link.begin(expected.get(rank, ()), self._headers, False)

    def knows(self, key: tuple[str, int], tensors: Sequence[Tensor]) -> None:
        """Set the shapes of a kind of message."""
        self._inbox.specs[key] = spec_of(tensors)

    def take(self, key: Key, rank: int, what: str) -> tuple[Tensor, ...]:
        """Return a message, waiting for it; ``what`` names it in errors."""
        before, link = _clock(), self._links[rank]
        if self._inbox.failure is not None:
            raise self._lost(what, *self._inbox.failure)
        try:
            link.receive(key, self._timeout)
        except TimeoutError:
            raise self.error(
                "waited",
                f"{self.place.name.capitalize()} waited {self._timeout:.3g} s for {what} from "
                f"{self._names[rank]}, and it did not come: that process, or one before it, is stopped or "
                "stuck. timeout= of the training sets this limit.",
                key,
            ) from None
        except (RuntimeError, ValueError, IndexError) as error:
            raise self._lost(what, rank, error, key) from error
        message = self._inbox.filed.pop(key)
        for work in message.works:
            work.wait()
        if self.watch is not None:
            report_received(self.watch, message, before, 0, -1 if key[0] == "S" else key[2])
        tensors = [each for each in message.tensors if each is not None]
        return tuple(each.to(self._device) for each in tensors) if self._staged else tuple(tensors)

    def give(self, key: Key, rank: int, tensors: Sequence[Tensor]) -> None:
        """Post a message without waiting."""
        before = self._links[rank].send(key, self._ready(tensors), self._headers)
        if before is not None:
            raise self.error(
                "shape",
                f"{self.place.name.capitalize()} gave {shapes_text(spec_of(tensors))} in micro-batch "
                f"{key[2]}, and before {shapes_text(before)}. Where shapes change from one micro-batch to "
                "the next, say static_shapes=False in every process.",
                key,
            )

    def post_ahead(self) -> None:
        for link in self._links.values():
            link.post_ahead()

    # Only the sender knows the order of weights: every message has a header.

    def expect(self, keys: Iterable[Key], rank: int) -> None:
        """Expect more messages from a process, each with its own header."""
        self._links[rank].begin(keys, True, False)

    def send(self, key: Key, rank: int, tensors: Sequence[Tensor]) -> None:
        self._links[rank].send(key, self._ready(tensors), True)

    def drain(self) -> None:
        lost = partial(self._lost, "its own messages to be taken")
        drain(self._inbox, [*self._links.values()], self._timeout, lost, self._untaken)
        if self.watch is not None:
            for link in self._links.values():
                report_sent(self.watch, link, lambda _: 0)

    def close(self) -> None:
        """End the links' threads. Safe twice."""
        for link in self._links.values():
            link.close()

    def error(self, code: str, message: str, key: Key | None = None) -> SplitError:
        """Return an error with this process, and a message's micro-batch."""
        micro_batch = key[2] if key is not None and key[0] != "S" else None
        return self.place.error(message, code=code, micro_batch=micro_batch)

    def _ready(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [each.detach().cpu() for each in tensors] if self._staged else tensors

    def _lost(self, what: str, rank: int, error: BaseException, key: Key | None = None) -> SplitError:
        reason = str(error).partition(". ")[0][:300]
        name = self._names[rank]
        return self.error(
            "lost",
            f"{self.place.name.capitalize()} waited for {what} when its connection to {name} failed: "
            f"{reason}. That process is gone, or is stuck in an error of its own: see what it said.",
            key,
        )

    def _untaken(self, rank: int) -> SplitError:
        return self.error(
            "waited",
            f"{self.place.name.capitalize()} waited {self._timeout:.3g} s for {self._names[rank]} to take "
            "what was sent to it: that process is stopped or stuck, or calls step(…) less often. timeout= "
            "of the training sets this limit.",
        )


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
            raise self._here.error(
                f"{self._here.name.capitalize()} waited up to {self._timeout:.3g} s for {what}, and one of "
                f"them is gone, stopped or stuck: {str(error)[:200]}",
                code="lost",
            ) from error


def _groups_held() -> int:
    return len(distributed_c10d._world.pg_names)


def _has_nccl() -> bool:
    return "nccl" in str(distributed.get_backend_config())
