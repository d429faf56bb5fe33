"""A split training on disk: a file for each stage and tensor-parallel process, and a manifest for all.

The end of a step in backward processes: gradients of all replicas, clipping, the optimizer's step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from ....protocol import MegalensError, parse_json
from ..errors import SplitError
from .layout import SplitLayout, SplitPlace
from .mail import SplitGroups, SplitNotes
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


_FORMAT = 1
_MANIFEST = "manifest.json"


class SplitCheckpoint:
    """Saves and loads for one process. Every process calls both; replica 0's backward processes write, all
    read.

    ``update`` is that of a backward process; ``notes`` coordinate them.
    """

    def __init__(
        self,
        layout: SplitLayout,
        place: SplitPlace,
        module: nn.Module,
        update: WeightUpdate | None,
        notes: SplitNotes,
    ) -> None:
        self._layout, self._place, self._module = layout, place, module
        self._update, self._notes = update, notes
        self._backward = [each for each in layout.processes if each.role == "backward"]
        self._times = 0

    def save(self, folder: str | Path, counts: dict[str, int]) -> None:
        """Write a checkpoint with some counts to a folder that all processes see.

        A complete checkpoint in the folder stays until this one is complete.
        """
        folder, here = Path(folder), self._place
        writers = [each for each in self._backward if each.replica == 0]
        manifest = {
            "format": _FORMAT,
            **{name: getattr(self._layout, name) for name in ("tensor", "stages")},
            **counts,
            "files": [_name(each, counts) for each in writers],
        }
        fault = self._together(
            writers,
            lambda: self._write(folder / _name(here, counts)),
            lambda: _publish(folder, manifest),
        )
        if fault is not None:
            raise self._error(f"The checkpoint in {folder} could not be written: {fault}", "folder")

    def load(self, folder: str | Path) -> dict[str, int]:
        """Read a checkpoint and return its counts. Nothing changes unless all processes could read theirs."""
        folder, here = Path(folder), self._place
        try:
            manifest: Any = parse_json((folder / _MANIFEST).read_bytes())
            if manifest["format"] != _FORMAT:
                raise ValueError(f"its format is {manifest['format']!r:.20}, not {_FORMAT}")
            # No name is taken from the file.
            counts = {name: int(manifest[name]) for name in ("calls", "updates")}
            found = {name: int(manifest[name]) for name in ("tensor", "stages")}
        except (OSError, ValueError, KeyError, TypeError, MegalensError) as error:
            raise self._error(
                f"folder must hold a checkpoint that save(…) wrote whole, with {_MANIFEST}; {folder} does "
                f"not: {type(error).__name__} {str(error)[:200]}",
                "folder",
            ) from error
        for name, what in (("tensor", "tensor-parallel degree"), ("stages", "number of stages")):
            mine = getattr(self._layout, name)
            if found[name] != mine:
                raise self._error(
                    f"The checkpoint in {folder} was written with {name} {found[name]}, and this training "
                    f"has {mine}: a checkpoint is read with the same {what}. Forward processes and replicas "
                    "may be others.",
                    name,
                )
        loaded: dict[str, Any] = {}

        def read() -> None:
            # Only tensors, numbers and texts: no code from the file runs.
            loaded.update(torch.load(folder / _name(here, counts), map_location="cpu", weights_only=True))
            self._check(loaded)

        fault = self._together(self._backward, read)
        if fault is not None:
            raise self._error(f"The checkpoint in {folder} could not be read: {fault}", "folder")
        if loaded:
            self._take(loaded)
        return counts

    def _together(
        self, those: Sequence[SplitPlace], work: Callable[[], None], then: Callable[[], None] | None = None
    ) -> str | None:
        """Run ``work`` in some processes, then ``then`` in the first; every process returns any error."""
        self._times += 1
        key, here, first = f"checkpoint/{self._times}", self._place, those[0]
        if any(each.rank == here.rank for each in those):
            self._notes.write(f"{key}/{here.rank}", self._tried(work))
        if here.rank == first.rank:
            faults = [
                self._notes.read(f"{key}/{each.rank}", f"{each.name} and its checkpoint") for each in those
            ]
            fault = next((each for each in faults if each), None)
            if fault is None and then is not None:
                fault = self._tried(then)
            self._notes.write(f"{key}/done", fault)
        outcome: str | None = self._notes.read(f"{key}/done", f"{first.name} and its checkpoint")
        return outcome

    def _write(self, path: Path) -> None:
        update = self._update
        assert update is not None
        optimizer = update.optimizer
        content = {
            "weights": {name: local_of(each) for name, each in _tensors(self._module)},
            "masters": {at: local_of(each) for at, each in update.masters.items()},
            "optimizer": None if optimizer is None else tree_map(_plain, optimizer.state_dict()),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        with partial.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def _check(self, content: dict[str, Any]) -> None:
        """Raise ``ValueError`` where what was read is not of this stage."""
        update = self._update
        assert update is not None
        named = dict(_tensors(self._module))
        for mine, theirs in ((named, content["weights"]), (dict(update.masters), content["masters"])):
            odd = sorted(map(str, mine.keys() ^ theirs.keys()))
            if odd:
                raise ValueError(f"only one of it and this training has the weight or master {odd[0]}")
            for name, each in mine.items():
                local, value = local_of(each), theirs[name]
                if local.shape != value.shape or local.dtype != value.dtype:
                    raise ValueError(
                        f"{name} is {value.dtype}{list(value.shape)} in it and "
                        f"{local.dtype}{list(local.shape)} here"
                    )
        groups = [] if update.optimizer is None else update.optimizer.param_groups
        theirs = (content["optimizer"] or {}).get("param_groups", [])
        if [len(each["params"]) for each in groups] != [len(each["params"]) for each in theirs]:
            raise ValueError("its optimizer has other groups of parameters")

    @torch.no_grad()
    def _take(self, content: dict[str, Any]) -> None:
        update = self._update
        assert update is not None
        for name, each in _tensors(self._module):
            local_of(each).copy_(content["weights"][name])
        for at, master in update.masters.items():
            local_of(master).copy_(content["masters"][at])
        if update.optimizer is None:
            return
        state = content["optimizer"]
        numbers = [n for group in state["param_groups"] for n in group["params"]]
        stepped = [each for group in update.optimizer.param_groups for each in group["params"]]
        for number, parameter in zip(numbers, stepped, strict=True):
            for name, value in state["state"].get(number, {}).items():
                state["state"][number][name] = _like(parameter, value)
        update.optimizer.load_state_dict(state)

    def _tried(self, work: Any) -> str | None:
        try:
            work()
        except Exception as error:
            return f"{self._place.name}: {type(error).__name__}: {str(error)[:300]}"
        return None

    def _error(self, message: str, field: str) -> SplitError:
        return self._place.error(message, field=field)


def _name(place: SplitPlace, counts: dict[str, int]) -> str:
    return f"step{counts['calls']}-stage{place.stage}-tensor{place.tensor}.pt"


def _publish(folder: Path, manifest: dict[str, Any]) -> None:
    partial = folder / "manifest.part"
    partial.write_text(json.dumps(manifest), encoding="utf-8")
    partial.replace(folder / _MANIFEST)
    # Of checkpoints before this one, which nothing names any more.
    for path in folder.glob("step*-stage*-tensor*.pt"):
        if path.name not in manifest["files"]:
            path.unlink(missing_ok=True)


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _plain(value: Any) -> Any:
    return local_of(value) if isinstance(value, Tensor) else value


def _like(parameter: Tensor, value: Any) -> Any:
    """Return an optimizer's tensor cut as the parameter, where that is a DTensor."""
    if (
        isinstance(value, Tensor)
        and isinstance(parameter, DTensor)
        and value.shape == local_of(parameter).shape
    ):
        return DTensor.from_local(value, parameter.device_mesh, parameter.placements)
    return value
