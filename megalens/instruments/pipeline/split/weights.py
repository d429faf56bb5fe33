"""Weights from backward processes to the forward processes of their stage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement, Shard

from ..errors import SplitError
from ..stages.inbox import Key
from .layout import SplitLayout
from .mail import Mail, SplitGroups, SplitNotes

_DIGEST_BYTES = 16

_BUCKET_BYTES = 1 << 25


# Which dimension of a weight is cut over tensor-parallel processes.
def cut_dimension(name: str, tensor: Tensor) -> int:
    """Return the cut dimension by a DTensor's placements or Megatron's attributes; -1 for a complete tensor.

    Raises ``SplitError`` naming the weight, for cuts of another kind.
    """
    if isinstance(tensor, DTensor):
        cuts: list[tuple[int, Any]] = [
            (at, each) for at, each in enumerate(tensor.placements) if not each.is_replicate()
        ]
        if not cuts:
            return -1
        if len(cuts) > 1 or type(cuts[0][1]) is not Shard:
            raise _odd(name, f"placements {tensor.placements}")
        at, cut = cuts[0]
        if tensor.shape[cut.dim] % tensor.device_mesh.size(at):
            raise _odd(name, f"{tensor.shape[cut.dim]} rows over {tensor.device_mesh.size(at)} processes")
        return int(cut.dim) % tensor.dim()
    if not getattr(tensor, "tensor_model_parallel", False):
        return -1
    if getattr(tensor, "partition_stride", 1) != 1:
        raise _odd(name, f"partition_stride {getattr(tensor, 'partition_stride', None)}")
    dimension = getattr(tensor, "partition_dim", -1)
    return int(dimension) % tensor.dim() if dimension >= 0 else -1


def local_of(tensor: Tensor, placements: tuple[Placement, ...] | None = None) -> Tensor:
    """Return this process's part of a tensor, sharing memory; partial gradients are summed first."""
    if not isinstance(tensor, DTensor):
        return tensor.detach()
    if placements is not None and tensor.placements != placements:
        tensor = tensor.redistribute(placements=placements)
    local: Tensor = tensor.to_local()
    return local.detach()


def buckets_of(tensors: Iterable[tuple[int, Tensor]]) -> Iterator[list[int]]:
    """Yield the numbers of consecutive tensors of one dtype, at most 32 MiB unless one alone is larger."""
    bucket: list[int] = []
    dtype: torch.dtype | None = None
    nbytes = 0
    for number, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if bucket and (tensor.dtype != dtype or nbytes + size > _BUCKET_BYTES):
            yield bucket
            bucket, nbytes = [], 0
        bucket.append(number)
        dtype, nbytes = tensor.dtype, nbytes + size
    if bucket:
        yield bucket


def pieces_of(flat: Tensor, like: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each of some tensors with its piece of a flat one, in its shape."""
    first = 0
    for each in like:
        yield each, flat[first : first + each.numel()].view(each.shape)
        first += each.numel()


def _odd(name: str, got: str) -> SplitError:
    return SplitError(
        f"Weight {name} must be whole in every process or cut into equal parts along one dimension, got "
        f"{got}. Use a tensor-parallel degree that divides it.",
        code="shape",
        field=name,
    )


class StageWeights:
    """The weights of one process, and the processes of the other role with the same.

    A forward process may serve several backward ones: then it has all of their parts. Weights are numbered in
    the module's order of parameters, then buffers; these are sent completely at first and after a checkpoint
    was read, since afterwards both roles see the same data.
    """

    def __init__(self, layout: SplitLayout, module: nn.Module, mail: Mail) -> None:
        here = self._place = mail.place
        self._mail, self._share = mail, layout.share
        named: list[tuple[str, Tensor]] = list(module.named_parameters())
        self.parameters = len(named)
        """How many of the weights are parameters."""
        named += module.named_buffers()
        self._names = [name for name, _ in named]
        self._tensors = [tensor for _, tensor in named]
        self.cut = [-1] * len(named)
        """By number the dimension that is cut over the processes of this role, or -1."""
        if here.tensor_size > 1:
            self.cut = [cut_dimension(name, tensor) for name, tensor in named]
        # Of each weight the dimension along which a forward process has several parts.
        self._joined = list(self.cut) if self._share > 1 else [-1] * len(named)
        if here.role == "backward":
            at = here.tensor // self._share
            other = layout.rank_of("forward", here.stage, here.replica, at)
            self.others = [] if other is None else [other]
        else:
            self.others = layout.backward_of(here, here.stage)
        self._versions = [-1] * len(named)
        self._number = 0
        self.moved_bytes = 0
        """Of the weights last sent or received."""

    def agree(self, notes: SplitNotes) -> None:
        """Compare both roles' weights before anything runs; raises ``SplitError`` (``shape``) in both."""
        here = self._place
        mine = f"{here.role}/{here.stage}/{here.replica}/{here.tensor}"
        if here.role == "backward":
            if not self.others:
                return
            specs = [
                [name, list(local_of(tensor).shape), str(tensor.dtype), cut]
                for name, tensor, cut in zip(self._names, self._tensors, self._joined, strict=True)
            ]
            notes.write(f"weights/{mine}", specs)
            forward = f"forward/{here.stage}/{here.replica}/{here.tensor // self._share}"
            fault = notes.read(f"verdict/{forward}", f"the forward process of stage {here.stage}")
        else:
            fault = None
            first = here.tensor * self._share
            for at in range(self._share):
                key = f"weights/backward/{here.stage}/{here.replica}/{first + at}"
                fault = fault or self._unlike(notes.read(key, f"backward process {self.others[at]}"))
            notes.write(f"verdict/{mine}", fault)
        if fault is not None:
            error = self._mail.error("shape", fault[1])
            error.field = fault[0]
            raise error

    def _unlike(self, theirs: list[Any]) -> tuple[str, str] | None:
        names = [each[0] for each in theirs]
        if names != self._names:
            odd = sorted(set(names) ^ set(self._names)) or names
            return (
                odd[0],
                f"Stage {self._place.stage} must have the same weights in its forward and backward "
                f"processes, and only one of them has {odd[0]}. Make both of one class.",
            )
        for number, (name, shape, dtype, cut) in enumerate(theirs):
            self._joined[number] = cut
            wanted = list(shape)
            if cut >= 0:
                wanted[cut] *= self._share
            own = self._tensors[number]
            if list(local_of(own).shape) != wanted or str(own.dtype) != dtype:
                parts = (
                    f"{self._share} parts of {shape}, cut along dimension {cut}" if cut >= 0 else "it whole"
                )
                return (
                    name,
                    f"Weight {name} of stage {self._place.stage} is {dtype}{shape} in a backward process, "
                    f"and so must be {dtype}{wanted} in its forward process, which has {parts}; got "
                    f"{own.dtype}{list(local_of(own).shape)}. "
                    "What is cut is known by a DTensor's placements, or Megatron's tensor_model_parallel "
                    "and partition_dim; forward_tensor must divide it.",
                )
        return None

    def begin_alike(self, groups: SplitGroups) -> None:
        """Start the backward processes of all replicas with the weights of the first."""
        group = groups.replicas
        if group is None:
            return
        first = distributed.get_global_rank(group, 0)

        def work() -> None:
            for each in self._tensors:
                distributed.broadcast(local_of(each), first, group=group)

        groups.guarded("the weights of the first replica", work)

    # On their way.

    def changed(self, touched: Collection[int] = ()) -> set[int]:
        """Return the parameters written to since they were sent, and those that got a gradient."""
        return set(touched) | {
            n for n in range(self.parameters) if self._tensors[n]._version != self._versions[n]
        }

    def move(self, numbers: Collection[int] | None) -> None:
        """Send weights, or receive them, and wait for the end."""
        if self._place.role == "forward":
            self.receive()
        else:
            self.send(numbers)
        self._mail.drain()

    def send(self, numbers: Collection[int] | None = None) -> None:
        """Post some weights, all when None, to the forward process."""
        self._number += 1
        self.moved_bytes = 0
        numbers = range(len(self._tensors)) if numbers is None else numbers
        for number in numbers:
            self._versions[number] = self._tensors[number]._version
        for rank in self.others:
            # Uncut weights come from the first of the backward processes that a forward process serves.
            lead = self._place.tensor % self._share == 0
            sent = sorted(n for n in numbers if lead or self._joined[n] >= 0)
            chosen = torch.zeros(len(self._tensors), dtype=torch.uint8)
            chosen[sent] = 1
            self._mail.send(self._key(0), rank, [chosen])
            for at, bucket in enumerate(self._buckets(sent), 1):
                flat = torch.cat([local_of(self._tensors[n]).reshape(-1) for n in bucket])
                self.moved_bytes += flat.numel() * flat.element_size()
                self._mail.send(self._key(at), rank, [flat])

    def receive(self) -> None:
        """Receive weights from every backward process, each into its part."""
        self._number += 1
        self.moved_bytes = 0
        for at, rank in enumerate(self.others):
            what = f"the weights of stage {self._place.stage}"
            self._mail.expect([self._key(0)], rank)
            chosen = self._mail.take(self._key(0), rank, what)[0].cpu()
            buckets = list(self._buckets(chosen.nonzero().flatten().tolist(), at))
            self._mail.expect([self._key(n) for n in range(1, len(buckets) + 1)], rank)
            for number, bucket in enumerate(buckets, 1):
                flat = self._mail.take(self._key(number), rank, what)[0]
                self.moved_bytes += flat.numel() * flat.element_size()
                with torch.no_grad():
                    for part, piece in pieces_of(flat, [self._part(n, at) for n in bucket]):
                        part.copy_(piece)

    # Are they the same?

    def compare(self) -> None:
        """Compare parameters with the other role's by hash; raises ``SplitError`` (``diverged``) in both."""
        self._number += 1
        key = self._key(0)
        for at, rank in enumerate(self.others):
            self._mail.expect([key], rank)
            self._mail.send(key, rank, [self._digests(at)])
        unlike: list[int] = []
        for at, rank in enumerate(self.others):
            theirs = self._mail.take(key, rank, "the hashes of its weights")[0].cpu()
            unlike += (theirs != self._digests(at)).any(dim=1).nonzero().flatten().tolist()
        # The others are to find it, too, even if this process ends now.
        self._mail.drain()
        if not unlike:
            return
        name = self._names[min(unlike)]
        error = self._mail.error(
            "diverged",
            f"Weight {name} of stage {self._place.stage} is not the same in its forward and its backward "
            f"process ({self._place.name} and {self.others}), and {len(set(unlike)) - 1} more are not: "
            "something other than the training has changed it in one of them. Change weights in backward "
            "processes alone, or in both alike.",
        )
        error.field = name
        raise error

    def _digests(self, at: int) -> Tensor:
        rows = []
        for number in range(self.parameters):
            flat = self._part(number, at).cpu().contiguous().reshape(-1).view(torch.uint8)
            values: Any = flat.numpy()
            rows.append(list(blake2b(values, digest_size=_DIGEST_BYTES).digest()))
        return torch.tensor(rows, dtype=torch.uint8).reshape(-1, _DIGEST_BYTES)

    def _part(self, number: int, at: int) -> Tensor:
        """Return a view of the other process's part of a weight."""
        local = local_of(self._tensors[number])
        cut = self._joined[number]
        if self._place.role == "backward" or cut < 0:
            return local
        size = local.shape[cut] // self._share
        return local.narrow(cut, at * size, size)

    def _buckets(self, numbers: Sequence[int], at: int = 0) -> Iterator[list[int]]:
        # Both ends make them of parts of the same size.
        return buckets_of((n, self._part(n, at)) for n in numbers)

    def _key(self, at: int) -> Key:
        return "S", at, self._number
