"""The end of a step in backward processes: gradients of all replicas, clipping, the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from ..errors import SplitError
from .mail import SplitGroups
from .weights import buckets_of, local_of, pieces_of

_LOW = (torch.bfloat16, torch.float16)


class WeightUpdate:
    """The optimizer of one backward process.

    ``cut`` has each parameter's dimension that is cut over tensor-parallel processes, or -1; a process that
    ``leads`` counts the uncut ones. ``clip`` is the largest norm of all gradients. With ``masters`` 16-bit
    parameters have float32 copies that the optimizer steps on, with gradients that are summed in float32.
    """

    def __init__(
        self,
        module: nn.Module,
        cut: Sequence[int],
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        groups: SplitGroups,
        *,
        leads: bool,
        clip: float | None,
        masters: bool,
    ) -> None:
        every = list(module.parameters())
        self._numbers = [n for n, each in enumerate(every) if each.requires_grad]
        self._parameters = [every[n] for n in self._numbers]
        self._counts = [leads or cut[n] >= 0 for n in self._numbers]
        self._groups, self._clip = groups, clip
        self.masters: dict[int, nn.Parameter] = {}
        """Float32 copies, by index among the parameters that take gradients."""
        if masters:
            self.masters = {
                at: nn.Parameter(each.detach().float())
                for at, each in enumerate(self._parameters)
                if each.dtype in _LOW
            }
        self.stepped = [self.masters.get(at, each) for at, each in enumerate(self._parameters)]
        """Parameters, or their masters, that the optimizer steps on."""
        self.optimizer = optimizer(list(self.stepped)) if self._parameters else None
        if self.optimizer is not None and not isinstance(self.optimizer, torch.optim.Optimizer):
            raise SplitError(
                "optimizer must make a torch.optim.Optimizer of a list of parameters, got a "
                f"{type(self.optimizer).__name__}.",
                field="optimizer",
            )
        self.norm: Tensor | None = None
        """Norm of all gradients at the last update, before clipping; None without clipping."""
        self.clear()

    def clear(self) -> None:
        for each in (*self._parameters, *self.stepped):
            each.grad = None

    def accumulate(self) -> None:
        """Add a micro-batch's 16-bit gradients to those of the masters."""
        for at, master in self.masters.items():
            parameter = self._parameters[at]
            if parameter.grad is None:
                continue
            if master.grad is None:
                master.grad = parameter.grad.float()
            else:
                master.grad += parameter.grad
            parameter.grad = None

    @torch.no_grad()
    def apply(self, calls: int) -> set[int]:
        """Step with the mean gradient of some calls and all replicas; return the parameters that had one."""
        if self._groups.replicas is not None:
            self._groups.guarded("the gradients of the other replicas", self._sum)
        replicas = 1 if self._groups.replicas is None else self._groups.replicas.size()
        local = self._gradients()
        if calls * replicas > 1:
            for each in local.values():
                each.div_(calls * replicas)
        if self._clip is not None:
            self._clip_all(local)
        if self.optimizer is not None:
            self.optimizer.step()
        for at, master in self.masters.items():
            if at in local:
                self._parameters[at].copy_(master)
        self.clear()
        return {self._numbers[at] for at in local}

    def _gradients(self) -> dict[int, Tensor]:
        """Return this process's gradients by index, where they exist."""
        found = {}
        for at, each in enumerate(self.stepped):
            if each.grad is None:
                continue
            if isinstance(each.grad, DTensor):
                placements = each.placements  # type: ignore[attr-defined]
                if each.grad.placements != placements:
                    each.grad = each.grad.redistribute(placements=placements)
            found[at] = local_of(each.grad)
        return found

    def _sum(self) -> None:
        """Sum gradients over the replicas; a gradient that only some have counts as zeros in the others."""
        group = self._groups.replicas
        there = torch.zeros(len(self.stepped), dtype=torch.uint8, device=self._groups.device)
        for at, each in enumerate(self.stepped):
            there[at] = each.grad is not None
        distributed.all_reduce(there, distributed.ReduceOp.MAX, group=group)
        for at in there.nonzero().flatten().tolist():
            if self.stepped[at].grad is None:
                self.stepped[at].grad = torch.zeros_like(self.stepped[at])
        local = self._gradients()
        for bucket in buckets_of(local.items()):
            flat = torch.cat([local[at].reshape(-1) for at in bucket])
            distributed.all_reduce(flat, group=group)
            for gradient, piece in pieces_of(flat, [local[at] for at in bucket]):
                gradient.copy_(piece)

    def _clip_all(self, local: dict[int, Tensor]) -> None:
        squares = torch.zeros((), dtype=torch.float64, device=self._groups.device)
        for at, each in local.items():
            if self._counts[at]:
                squares += (
                    torch.linalg.vector_norm(each, dtype=torch.promote_types(each.dtype, torch.float32))
                    .double()
                    .square()
                )
        group: Any = self._groups.model
        if group is not None:
            self._groups.guarded(
                "the norm of the other stages' gradients",
                lambda: distributed.all_reduce(squares, group=group),
            )
        self.norm = squares.sqrt()
        assert self._clip is not None
        # As torch.nn.utils.clip_grad_norm_ does it.
        factor = (self._clip / (self.norm + 1e-6)).clamp(max=1.0)
        for each in local.values():
            each.mul_(factor.to(each.dtype))
