"""Coordinates of a process in its job, and copies from its device that the step does not wait for."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, empty

from ..protocol.messages_generated import RankPlace


def to_host(data: Tensor) -> Tensor:
    """Start a copy into pinned memory. It is complete once an event that is recorded after it is."""
    host = empty(data.shape, dtype=data.dtype, pin_memory=True)
    return host.copy_(data, non_blocking=True)


def plain_tensor(data: Tensor) -> Tensor:
    """Return the tensor itself of a subclass that only adds methods: such cannot be given to numpy."""
    kind = type(data)
    if kind is Tensor or kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return data
    return data.as_subclass(Tensor)


@dataclass(frozen=True)
class RankCoordinates:
    """Coordinates of one process in the job, each counted from 0, and the sizes of their axes.

    Attributes
    ----------
    tp, pp, dp : int
        Index in the tensor-parallel group, pipeline stage, data-parallel replica.
    tp_ranks : tuple of int
        Global ranks that hold pieces of the same layers for the same samples, in the order of ``tp``; the
        first of them sends.
    world_size, tp_size, pp_size, dp_size, vpp_size, ep_size, cp_size : int
        Sizes of the job and of its groups; ``vpp_size`` is model chunks per stage.
    """

    rank: int = 0
    tp: int = 0
    pp: int = 0
    dp: int = 0
    tp_ranks: tuple[int, ...] = (0,)
    world_size: int = 1
    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    vpp_size: int = 1
    ep_size: int = 1
    cp_size: int = 1

    @property
    def name(self) -> str:
        """For people: ``rank 3 (tp 1, pp 1)``."""
        coordinates = [
            f"{axis} {at}"
            for axis, at, size in (
                ("tp", self.tp, self.tp_size),
                ("pp", self.pp, self.pp_size),
                ("dp", self.dp, self.dp_size),
            )
            if size > 1
        ]
        return f"rank {self.rank}" + (f" ({', '.join(coordinates)})" if coordinates else "")

    @property
    def leads(self) -> bool:
        """Whether this process sends for its tensor-parallel group."""
        return self.rank == self.tp_ranks[0]

    def to_message(self, host: str | None = None) -> RankPlace:
        place: RankPlace = {"rank": self.rank, "tp": self.tp, "pp": self.pp, "dp": self.dp}
        if host:
            place["host"] = host[:200]
        return place
