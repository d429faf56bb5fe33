"""``megalens.trace``: the one line that begins it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .config import Plan, change_plan, settings_from
from .errors import TracerError
from .hub_process import HubAddress, HubProcess, address_from
from .points import IAdapter, ModelPoints
from .tracer import Tracer

__all__ = ["trace"]


def trace(
    model: nn.Module,
    *,
    name: str | None = None,
    flags: Mapping[str, Any] | Iterable[str] | None = None,
    layers: str | int | Sequence[int] = "all",
    every: int = 1,
    phases: Sequence[str] | str = ("train",),
    samples: int | None = 1,
    record: str | Path | None = None,
    hub: Any = "spawn",
    tokenizer: Any = None,
    adapter: IAdapter | None = None,
    vectors_folders: Sequence[str | Path] = (),
    linger: float = 10.0,
) -> Tracer:
    """Begin to trace ``model``.

    Parameters
    ----------
    model : torch.nn.Module
        The model that is trained; its call is one forward pass.
    name : str, optional
        Name of the run.
    flags : mapping, iterable of str, optional
        What to trace from the first step on: ``{"MLP1_mat_mul": Tile(96)}``, or complete ``FlagSetting`` mappings, or just names. Nothing, and no hook, when absent:
        viewers can switch flags on at any time.
    layers, every, phases, samples
        Which layers (``"all"``, ``"1-4,7"``), every how-manieth training step, in which phases, and how many first samples of each micro-batch (None for all), where a
        flag does not say its own.
    record : str or Path, optional
        Folder into which the hub writes the run's own folder.
    hub : {'spawn'}, None, (address, token) or path
        Start a hub process (on rank 0 only; other ranks then trace nothing); or none, and trace nothing; or use one that runs, by its WebSocket address and token or by its runtime file.
    tokenizer : optional
        Anything with ``decode([id])``: token ids then travel with their text.
    adapter : IAdapter, optional
        Where the trace points are. Found by itself for the demo's GPT and for Hugging Face GPT-2, Llama and Qwen.
    vectors_folders : sequence of path
        Folders from which viewers may load projection vectors. None when absent.
    linger : float
        Seconds for which our own hub stays for viewers once the training is over.

    Returns
    -------
    Tracer
        Use ``with tracer.step():`` around each optimizer step, or ``tracer.wrap(optimizer)``.

    Raises
    ------
    TracerError
        When the model is not known, or the hub could not be started.
    ProtocolError
        When a flag setting is wrong, with the field at fault.
    """
    points = _points(model, adapter)
    folders = [Path(folder) for folder in vectors_folders]
    defaults = {"layers": layers, "every": every, "phases": phases, "samples": samples}
    plan = change_plan(Plan(), settings_from(flags, defaults), points, folders)
    process: HubProcess | None = None
    address: HubAddress | None = None
    if isinstance(hub, str) and hub == "spawn" and _rank() > 0:
        # One hub a job: the other ranks join it only when they are told where it is.
        hub, record = None, None
    if isinstance(hub, str) and hub == "spawn":
        process = HubProcess(name, None if record is None else str(record), linger)
        address = process.start()
    elif hub is not None:
        address = address_from(hub)
    if record is not None and process is None:
        raise TracerError(
            "record= is written by a hub that this call starts. Give the folder to the hub instead."
        )
    return Tracer(
        points,
        plan if address is not None else Plan(),
        address,
        process,
        name=name,
        folders=folders,
        decode=_decoder(tokenizer),
    )


def _points(model: nn.Module, adapter: IAdapter | None) -> ModelPoints:
    if not isinstance(model, nn.Module):
        raise TracerError(f"megalens.trace takes a torch.nn.Module; a {type(model).__name__} came.")
    if adapter is None:
        # The ready adapters are written on top of this room; it knows them by this name only.
        adapter = import_module("megalens.adapters").find_adapter(model)
    points: ModelPoints = adapter.points(model)
    return points


def _rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def _decoder(tokenizer: Any) -> Callable[[int], str] | None:
    if tokenizer is None:
        return None
    if not callable(getattr(tokenizer, "decode", None)):
        raise TracerError(
            f"tokenizer needs a decode method that takes ids; a {type(tokenizer).__name__} came."
        )
    return lambda number: str(tokenizer.decode([number]))
