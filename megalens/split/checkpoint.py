"""A split training on disk: a file for each stage and tensor-parallel process, and a manifest that says when all of them are whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from ..protocol import parse_json
from .errors import SplitError
from .layout import SplitLayout
from .notes import SplitNotes
from .place import SplitPlace
from .shards import local_of
from .update import WeightUpdate

__all__ = ["SplitCheckpoint"]

_FORMAT = 1
_MANIFEST = "manifest.json"


class SplitCheckpoint:
    """Saves and loads for one process. Every process calls both; the backward processes of replica 0 write, all backward processes read.

    Parameters
    ----------
    layout, place : SplitLayout, SplitPlace
        Who does what, and this process.
    module : torch.nn.Module
        The stage.
    update : WeightUpdate or None
        Of a backward process.
    notes : SplitNotes
        How they wait for each other.
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
        self._saves = 0

    def save(self, folder: str | Path, counts: dict[str, int]) -> None:
        """Write a checkpoint. What was whole in the folder before stays so until this one is.

        Parameters
        ----------
        folder : str or Path
            That all processes see.
        counts : dict
            Steps so far, and what else is counted.
        """
        self._saves += 1
        folder, here, key = Path(folder), self._place, f"save/{self._saves}"
        writers = [each for each in self._layout.processes if each.role == "backward" and each.replica == 0]
        names = {each.rank: _name(each, counts) for each in writers}
        if here.rank in names:
            self._notes.say(f"{key}/{here.rank}", self._tried(lambda: self._write(folder / names[here.rank])))
        if here.rank == writers[0].rank:
            faults = [self._notes.hear(f"{key}/{each.rank}", f"{each.name} to save") for each in writers]
            fault = next((each for each in faults if each), None)
            manifest = {
                "format": _FORMAT,
                **{name: getattr(self._layout, name) for name in ("tensor", "stages")},
                **counts,
                "files": list(names.values()),
            }
            fault = fault or self._tried(lambda: _publish(folder, manifest))
            self._notes.say(f"{key}/done", fault)
        fault = self._notes.hear(f"{key}/done", f"{writers[0].name} to save")
        if fault:
            raise self._error(f"The checkpoint in {folder} could not be written: {fault}", "folder")

    def load(self, folder: str | Path) -> dict[str, int]:
        """Read a checkpoint, and return what was counted."""
        folder, here = Path(folder), self._place
        try:
            said = parse_json((folder / _MANIFEST).read_bytes())
            assert isinstance(said, dict)
            assert said["format"] == _FORMAT
        except (OSError, ValueError, KeyError, AssertionError) as error:
            raise self._error(
                f"folder must hold a checkpoint that save(…) wrote whole, with {_MANIFEST}; {folder} does not: {type(error).__name__} {str(error)[:200]}",
                "folder",
            ) from error
        for name, what in (("tensor", "tensor-parallel degree"), ("stages", "number of stages")):
            mine = getattr(self._layout, name)
            if said[name] != mine:
                raise self._error(
                    f"The checkpoint in {folder} was written with {name} {said[name]}, and this training has {mine}: a checkpoint is read with the same {what}. Degree and replicas of forward processes may differ.",
                    name,
                )
        if here.role == "backward":
            name = next(n for n in said["files"] if n.endswith(f"-stage{here.stage}-tensor{here.tensor}.pt"))
            try:
                # Nothing but tensors, numbers and texts: no code of a stranger's.
                self._read(torch.load(folder / name, map_location="cpu", weights_only=True))
            except Exception as error:
                raise self._error(
                    f"{here.name.capitalize()} could not read {folder / name}: {type(error).__name__}: {str(error)[:300]}",
                    "folder",
                ) from error
        return {name: int(said[name]) for name in ("calls", "updates")}

    def _write(self, path: Path) -> None:
        update = self._update
        assert update is not None
        optimizer = update.optimizer
        held = {
            "weights": {name: local_of(each) for name, each in _tensors(self._module)},
            "masters": {at: local_of(each) for at, each in update.masters.items()},
            "optimizer": None if optimizer is None else tree_map(_plain, optimizer.state_dict()),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        with partial.open("wb") as file:
            torch.save(held, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    @torch.no_grad()
    def _read(self, held: dict[str, Any]) -> None:
        update = self._update
        assert update is not None
        named = dict(_tensors(self._module))
        if named.keys() != held["weights"].keys() or update.masters.keys() != held["masters"].keys():
            odd = sorted(named.keys() ^ held["weights"].keys()) or ["masters"]
            raise ValueError(f"only one of the checkpoint and this training has {odd[0]}")
        for name, each in named.items():
            _copy(name, each, held["weights"][name])
        for at, master in update.masters.items():
            _copy(f"the master of parameter {at}", master, held["masters"][at])
        if update.optimizer is None or held["optimizer"] is None:
            return
        state = held["optimizer"]
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
        here = self._place
        return SplitError(message, field=field, role=here.role, stage=here.stage, rank=here.rank)


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


def _copy(name: str, into: Tensor, value: Tensor) -> None:
    local = local_of(into)
    if local.shape != value.shape or local.dtype != value.dtype:
        raise ValueError(
            f"{name} is {value.dtype}{list(value.shape)} in the checkpoint and {local.dtype}{list(local.shape)} here"
        )
    local.copy_(value)


def _like(parameter: Tensor, value: Any) -> Any:
    """Return an optimizer's tensor as the parameter is: cut, where that is a DTensor."""
    if (
        isinstance(value, Tensor)
        and isinstance(parameter, DTensor)
        and value.shape == local_of(parameter).shape
    ):
        return DTensor.from_local(value, parameter.device_mesh, parameter.placements)
    return value
