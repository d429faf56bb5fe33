"""``megalens.trace``: the one line that begins it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ..adapters.find import find_points
from ..adapters.torch_pipeline import in_pipeline, stage_place
from ..protocol import RUNS_FOLDER, MegalensError, parse_budget
from ..slices import find_slices, load
from ..tracer.coordinates import RankCoordinates
from ..tracer.errors import TracerError
from ..tracer.graph_probes import is_compiled
from ..tracer.instrument import Instrument
from ..tracer.instruments import instruments_from
from ..tracer.points import IAdapter, ModelPoints
from ..tracer.sending.hub_process import HubAddress, HubProcess, address_from
from ..tracer.sending.peers import Rendezvous
from ..tracer.settings import TraceSettings
from ..tracer.tensors.config import change_plan, settings_from
from ..tracer.tensors.plan import CONTROLS, TracingPlan
from ..tracer.tracer import Tracer
from .keywords import takes_keywords

__all__ = ["model_points", "trace"]


@takes_keywords(TraceSettings)
def trace(model: nn.Module | Sequence[nn.Module], settings: TraceSettings) -> Tracer:
    """Begin to trace ``model``.

    Parameters
    ----------
    model : torch.nn.Module or sequence of them
        The model that is trained; its call is one forward pass. Of a pipeline stage with several model
        chunks, all of them.
    settings
        See below.

    Returns
    -------
    Tracer
        Use ``with tracer.step():`` around each optimizer step, or ``tracer.wrap(optimizer)``.

    Raises
    ------
    TracerError
        When the model is not known, an argument is not as above, or the hub could not be started.
    ProtocolError
        When a flag setting is wrong, with the field at fault.
    """
    points = _placed(_points(model, settings.adapter), settings.place)
    folders = [Path(folder) for folder in settings.vectors_folders]
    instruments = _instruments(model, settings, points.place)
    defaults = {
        "layers": settings.layers,
        "every": settings.every,
        "phases": settings.phases or (settings.phase,),
        "samples": settings.samples,
    }
    patch = settings_from(settings.flags, defaults, points.flags)
    if settings.budget is not None:
        patch["budget"] = parse_budget(settings.budget)
    if settings.compiled == "captured":
        points.untraceable = (
            "Code that CUDA graphs replay (compiled='captured') measures statistics by itself, and runs no "
            "Python to which a tensor could be given. Say compiled=True to trace tensors."
        )
    plan = change_plan(TracingPlan(phase=settings.phase), patch, points, folders)
    process, address = _hub(settings) if points.place.rank == 0 else (None, None)
    rendezvous = Rendezvous.of_job() if settings.hub is not None else None
    traced = address is not None or rendezvous is not None
    compiled = compiled_of(points, settings.compiled)
    if compiled == "captured" and traced and "perturb" in settings.allow:
        raise TracerError(
            "Nothing can be perturbed in code that CUDA graphs replay: leave 'perturb' out of allow=…, or "
            "say compiled=True."
        )
    tracer = Tracer(
        points,
        plan if traced else TracingPlan(phase=settings.phase),
        address,
        process,
        rendezvous=rendezvous,
        name=settings.name,
        folders=folders,
        decode=_decoder(settings.tokenizer),
        controls=[control for control in CONTROLS if control in settings.allow],
        first_step=settings.first_step or 1,
        phase=settings.phase,
        compiled=compiled if traced else False,
    )
    try:
        for instrument in instruments:
            instrument.bind(tracer)
            # Without a hub nothing is watched, as nothing is traced.
            if traced:
                tracer.attach(instrument)
    except BaseException:
        tracer.close()
        raise
    return tracer


def compiled_of(points: ModelPoints, asked: bool | Literal["captured"] | None) -> bool | Literal["captured"]:
    """Return whether code gets probes: where nothing was said, whether something is to be compiled."""
    return is_compiled(points.roots) if asked is None else asked


def _instruments(model: Any, settings: TraceSettings, place: RankCoordinates) -> list[Instrument]:
    """Return the given instruments, and those that slices add for these settings."""
    given = instruments_from(settings.instruments)
    names = {each.name for each in given}
    brought = [load(each.traced) for each in find_slices() if each.traced and each.name not in names]
    own = [made for make in brought if (made := make(model, settings, place)) is not None]
    names |= {each.name for each in own}
    for setting, asked, name in (
        ("timeline", settings.timeline is not None, "timeline"),
        ("allow=['generate']", "generate" in settings.allow and settings.hub is not None, "generation"),
    ):
        if asked and name not in names:
            raise TracerError(f"{setting} needs the instrument {name}, which this installation lacks.")
    return [*own, *given]


def _hub(settings: TraceSettings) -> tuple[HubProcess | None, HubAddress | None]:
    """Return our own hub where the settings want one, and the address of the hub."""
    if not settings.spawns:
        return None, None if settings.hub is None else address_from(settings.hub)
    retry = None
    folder, upload = _recording(settings.record)
    if settings.resume is not None:
        retry = (_resumed_folder(settings.resume, folder), settings.first_step or 1)
    process = HubProcess(
        settings.name,
        folder,
        settings.linger,
        settings.hub_host,
        settings.hub_port,
        settings.record_bytes,
        settings.record_mode,
        retry,
        upload,
    )
    return process, process.start()


def _recording(record: str | Path | None) -> tuple[str | None, str | None]:
    """Return the folder for recordings, and the address of the other storage to which they go."""
    address = "" if record is None else str(record)
    if "://" not in address:
        return address or None, None
    from ..runs.storage import cache_home, check_address

    try:
        check_address(address)
    except MegalensError as error:
        raise TracerError(f"record=… cannot be used. {error}") from error
    return str(cache_home() / "recordings"), address


def _resumed_folder(resume: str | Path, record: str | Path | None) -> Path:
    """Return the run folder of a path or a run id."""
    folders = [Path(resume), Path(record or RUNS_FOLDER) / resume]
    for folder in folders:
        if (folder / "run.json").is_file():
            return folder
    raise TracerError(
        f"resume={str(resume)!r:.100} is no recording: neither {folders[0]!s:.200} nor {folders[1]!s:.200} "
        "holds a run.json. Give a run folder, or the id of a run in record=…."
    )


def _placed(points: ModelPoints, place: RankCoordinates | None) -> ModelPoints:
    """Return the points with this process's coordinates in the job, by default as a replica or a stage."""
    if points.numbered:
        return points
    distributed = torch.distributed
    if place is None:
        place = points.place
        if place.world_size == 1 and distributed.is_available() and distributed.is_initialized():
            rank, world = distributed.get_rank(), distributed.get_world_size()
            place = RankCoordinates(rank=rank, dp=rank, tp_ranks=(rank,), world_size=world, dp_size=world)
        if points.watch is not None and place.world_size > 1:
            place = stage_place(points.roots, place)
    points = replace(points, place=place)
    return points if points.watch is None else in_pipeline(points)


def model_points(model: nn.Module | Sequence[nn.Module], adapter: IAdapter | None) -> ModelPoints:
    """Return the trace points of a model with this process's coordinates in the job; as for :func:`trace`."""
    return _placed(_points(model, adapter), None)


def _points(model: nn.Module | Sequence[nn.Module], adapter: IAdapter | None) -> ModelPoints:
    chunks = model if isinstance(model, (list, tuple)) and model else [model]
    if not all(isinstance(chunk, nn.Module) for chunk in chunks):
        kinds = ", ".join(sorted({type(chunk).__name__ for chunk in chunks}))
        raise TracerError(f"The model must be a torch.nn.Module or a list of model chunks, got {kinds}.")
    return find_points(model, adapter)


def _decoder(tokenizer: Any) -> Callable[[int], str] | None:
    if tokenizer is None:
        return None
    if not callable(getattr(tokenizer, "decode", None)):
        raise TracerError(
            f"tokenizer must have a decode method that takes ids, got a {type(tokenizer).__name__}."
        )
    return lambda number: str(tokenizer.decode([number]))
