"""The roles of processes in a split training."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import SplitError
from .planner import asked_map

if TYPE_CHECKING:
    from ....tracer.coordinates import RankCoordinates


@dataclass(frozen=True)
class SplitPlace:
    """The role of one process; all numbers count from 0.

    Attributes
    ----------
    rank : int
        Global rank.
    role : str
        ``forward`` or ``backward``.
    stage, stages : int
        Pipeline stage, and how many there are.
    replica, replicas : int
        Whose samples it trains on.
    tensor, tensor_size : int
        Index among the processes of its role that share its stage.
    group : torch.distributed.ProcessGroup or None
        These processes, where they are several and processes are connected.
    """

    rank: int
    role: str
    stage: int
    stages: int
    replica: int
    replicas: int
    tensor: int
    tensor_size: int
    group: Any = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """For messages: ``rank 3 (forward, stage 1, tensor 0)``."""
        more = f", tensor {self.tensor}" if self.tensor_size > 1 else ""
        more += f", replica {self.replica}" if self.replicas > 1 else ""
        return f"rank {self.rank} ({self.role}, stage {self.stage}{more})"

    def error(self, message: str, **more: Any) -> SplitError:
        """Return an error of this process; ``more`` is for :class:`SplitError`."""
        return SplitError(message, role=self.role, stage=self.stage, rank=self.rank, **more)

    @property
    def first(self) -> bool:
        return self.stage == 0

    @property
    def last(self) -> bool:
        return self.stage == self.stages - 1


@dataclass(frozen=True)
class SplitLayout:
    """The processes of a split training, as the engine's rank map has them; made by :meth:`of`.

    Attributes
    ----------
    tensor, forward_tensor : int
        Tensor-parallel degree of the backward and of the forward processes.
    stages, replicas : int
        Pipeline stages; copies that train on samples of their own.
    last_forward : bool
        Whether the last stage has forward processes.
    processes : tuple of SplitPlace
        By global rank.
    """

    tensor: int
    forward_tensor: int
    stages: int
    replicas: int
    last_forward: bool
    processes: tuple[SplitPlace, ...]

    @classmethod
    def of(
        cls,
        tensor: int = 1,
        pipeline: int = 1,
        data: int = 1,
        *,
        forward_tensor: int | None = None,
        last_forward: bool = True,
        context: int = 1,
        expert: int = 1,
        world: int | None = None,
    ) -> SplitLayout:
        """Return the layout of some degrees.

        Parameters
        ----------
        tensor, pipeline, data : int
            Tensor-parallel degree of the backward processes, pipeline stages, replicas.
        forward_tensor : int, optional
            Tensor-parallel degree of the forward processes, which divides ``tensor``.
        last_forward : bool
            Whether the last stage has forward processes.
        context, expert : int
            Must be 1.
        world : int, optional
            Number of processes.

        Raises
        ------
        SplitError
            With the field at fault.
        """
        answer = asked_map(
            tensor,
            pipeline,
            data,
            forward_tensor=forward_tensor,
            last_forward=last_forward,
            context=context,
            expert=expert,
            world=world,
        )
        sizes = {"forward": answer["forward_tensor"], "backward": tensor}
        processes = [
            SplitPlace(
                each["real"],
                each["role"],
                each["pipeline"],
                pipeline,
                each["replica"],
                data,
                each["tensor"],
                sizes[each["role"]],
            )
            for each in answer["processes"]
        ]
        return cls(tensor, answer["forward_tensor"], pipeline, data, last_forward, tuple(processes))

    @property
    def world(self) -> int:
        return len(self.processes)

    @property
    def share(self) -> int:
        """How many backward processes of a stage one forward process serves."""
        return self.tensor // self.forward_tensor

    @property
    def lanes(self) -> int:
        """Stages of forward processes followed by those of backward processes."""
        return 2 * self.stages - (not self.last_forward)

    def place(self, rank: int) -> SplitPlace:
        """Return the role of a process; raises ``SplitError`` for an unknown rank."""
        if not 0 <= rank < self.world:
            raise SplitError(f"rank must be 0 to {self.world - 1} in this layout, got {rank}.", field="rank")
        return self.processes[rank]

    def rank_of(self, role: str, stage: int, replica: int, tensor: int) -> int | None:
        return self._ranks.get((role, stage, replica, tensor))

    def backward_of(self, forward: SplitPlace, stage: int) -> list[int]:
        """Return the backward processes of a stage that a forward process serves."""
        first = forward.tensor * self.share
        ranks = (self.rank_of("backward", stage, forward.replica, first + at) for at in range(self.share))
        return [each for each in ranks if each is not None]

    def peers(self, rank: int) -> list[int]:
        """Return the processes that a process exchanges messages with, rising."""
        here = self.place(rank)
        neighbours = (here.stage - 1, here.stage + 1)
        if here.role == "forward":
            found = [self.rank_of("forward", stage, here.replica, here.tensor) for stage in neighbours]
            found += [
                each for stage in (here.stage, here.stage + 1) for each in self.backward_of(here, stage)
            ]
        else:
            found = [self.rank_of("backward", stage, here.replica, here.tensor) for stage in neighbours]
            at = here.tensor // self.share
            found += [
                self.rank_of("forward", stage, here.replica, at) for stage in (here.stage - 1, here.stage)
            ]
        return sorted(each for each in found if each is not None)

    def connected(self, rank: int) -> list[int]:
        """Return the processes that messages may reach from a process, with itself: a chain of stages."""
        here = self.place(rank)
        return [each.rank for each in self.processes if self._chain(each) == self._chain(here)]

    def tracer_place(self, rank: int) -> RankCoordinates:
        """Return a process' coordinates for the tracer.

        Forward processes are the first stages of a pipeline, backward processes the others, so that the
        timeline shows both as one run.
        """
        from ....tracer.coordinates import RankCoordinates

        here = self.place(rank)
        lane = here.stage + (0 if here.role == "forward" else self.lanes - self.stages)
        peers = [
            each.rank
            for each in self.processes
            if (each.role, each.stage, each.replica) == (here.role, here.stage, here.replica)
        ]
        return RankCoordinates(
            rank,
            tp=here.tensor,
            pp=lane,
            dp=here.replica,
            tp_ranks=tuple(peers),
            world_size=self.world,
            tp_size=here.tensor_size,
            pp_size=self.lanes,
            dp_size=self.replicas,
        )

    @cached_property
    def _ranks(self) -> dict[tuple[str, int, int, int], int]:
        return {(each.role, each.stage, each.replica, each.tensor): each.rank for each in self.processes}

    def _chain(self, place: SplitPlace) -> tuple[int, int]:
        return place.replica, place.tensor if place.role == "forward" else place.tensor // self.share
