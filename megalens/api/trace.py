"""``megalens.trace``: the one line that begins it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..adapters.find import find_adapter
from ..instruments.timeline.training.instrument import TimelineInstrument
from ..instruments.timeline.training.settings import TimelineSettings
from ..protocol import is_whole
from ..protocol.messages_generated import Model, Phase
from ..tracer.budget.budget import parse_budget
from ..tracer.errors import TracerError
from ..tracer.flags import FLAGS
from ..tracer.graph_probes import is_compiled
from ..tracer.instrument import Instrument
from ..tracer.place import Place
from ..tracer.points import FlagPoints, IAdapter, ModelPoints
from ..tracer.registered import instruments_from
from ..tracer.sending.hub_process import HubAddress, HubProcess, address_from
from ..tracer.sending.peers import Rendezvous
from ..tracer.tensors.config import CONTROLS, PHASES, TracingPlan, change_plan, settings_from
from ..tracer.tracer import Tracer

if TYPE_CHECKING:
    from ..instruments.generation import GenerationInstrument

__all__ = ["model_points", "trace"]

# Where the Jupyter server looks for recordings.
_RUNS = "megalens-runs"


def trace(
    model: nn.Module | Sequence[nn.Module],
    *,
    name: str | None = None,
    flags: Mapping[str, Any] | Iterable[str] | None = None,
    layers: str | int | Iterable[int] = "all",
    every: int = 1,
    phases: Sequence[str] | str | None = None,
    samples: int | str | None = 1,
    record: str | Path | None = None,
    record_bytes: int | None = None,
    resume: str | Path | None = None,
    hub: Any = "spawn",
    tokenizer: Any = None,
    adapter: IAdapter | None = None,
    vectors_folders: Sequence[str | Path] = (),
    linger: float = 10.0,
    allow: Sequence[str] = (),
    budget: Any = None,
    instruments: Iterable[Instrument | str] | Mapping[str, Mapping[str, Any]] = (),
    timeline: Any = None,
    place: Place | None = None,
    first_step: int | None = None,
    phase: Phase = "train",
    hub_host: str = "127.0.0.1",
    hub_port: int = 0,
    compiled: bool | None = None,
) -> Tracer:
    """Begin to trace ``model``.

    Parameters
    ----------
    model : torch.nn.Module or sequence of them
        The model that is trained; its call is one forward pass. Of a pipeline stage with several model chunks, all of them.
    name : str, optional
        Name of the run.
    flags : mapping, iterable of str, optional
        What to trace from the first step on: by name a compressor such as ``Tile(96)``, ``True`` (what suits it), ``False`` or ``None`` (off), or a ``FlagSetting`` mapping; or just
        names, which are on. Nothing, and no hook, when absent: viewers can switch flags on at any time.
    layers, every, phases, samples
        Which layers (``"all"``, ``"0-3,7"``), which training steps (every n-th), in which phases, and how many first samples of each micro-batch (``"all"`` or None for all), where a
        flag does not say its own. Phases are those of the steps when absent.
    record : str or Path, optional
        Folder into which the hub writes the run's own folder.
    record_bytes : int, optional
        What the recording may take while it is written. Its oldest steps are then given up for newer ones, and named; scalars stay. No bound when absent.
    resume : str or Path, optional
        Run folder, or the id of a run in ``record`` (in ``megalens-runs`` when absent), whose recording goes on: of a training that restarts from a checkpoint, with ``first_step``. What was recorded of that step and later ones is kept as an earlier attempt: ``run.attempts``.
    hub : {'spawn'}, None, (address, token) or path
        Start a hub process (rank 0 does, and tells the other ranks of the job where it is); or none, and trace nothing; or use one that runs, by its WebSocket address and token or by its runtime
        file (again only rank 0's counts).
    tokenizer : optional
        Anything with ``decode([id])``: token ids then travel with their text.
    adapter : IAdapter, optional
        Where the trace points are. Found by itself where the model's structure tells: attention, MLP or experts in a list of layers.
    vectors_folders : sequence of path
        Folders from which viewers may load projection vectors. None when absent.
    linger : float
        Seconds for which our own hub stays for viewers once the training is over.
    allow : sequence of {'pause', 'watched', 'perturb', 'generate'}
        What viewers may do to the training beyond looking: pause it (and take single steps), have it train only while a viewer is attached, perturb it, have it write text between two steps
        (needs ``tokenizer`` with ``encode`` and ``decode``, and the whole model in one process). Nothing when absent.
    budget : str or float, optional
        What tracing may cost, in per cent of step time (``"1%"``): it traces less to stay inside, and says what it gave up.
    instruments : iterable or mapping, optional
        What else watches the steps: instruments (:mod:`megalens.tracer.instrument`), or names of those that installed packages bring; as a mapping, with the
        settings of each.
    timeline : str or mapping, optional
        How finely each rank's steps are timed: ``"steps"``, ``"phases"``, ``"layers"`` or ``"operations"``, or ``{"granularity": "phases", "every": 10}``. Off when absent: viewers can switch it on at any time.
    place : Place, optional
        Where this process stands in its job, where the adapter cannot find out.
    first_step : int, optional
        Number of the first step; 1 when absent. A training that goes on from a checkpoint of step n says n + 1, on every rank, so that its steps are not counted anew.
    phase : {'train', 'eval', 'generate'}
        What the steps are. Where they are no training, their forward passes need no gradients.
    hub_host : str
        Address on which our own hub listens. Loopback unless ranks on other hosts have to reach it.
    hub_port : int
        Its port; any free one when 0.
    compiled : bool, optional
        Whether code that ``torch.compile`` compiles from now on gets probes, which show its tensors. When absent: where something in the model is to be compiled already. Say True where
        only a function that calls the model is compiled, or where the model is compiled after this call.

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
    words = isinstance(allow, Iterable) and not isinstance(allow, str)
    for argument, value, fits, expected in (
        ("name", name, name is None or isinstance(name, str), "text"),
        ("adapter", adapter, adapter is None or hasattr(adapter, "points"), "an Adapter, as of megalens.adapters"),
        ("place", place, place is None or isinstance(place, Place), "a megalens.tracer.Place"),
        ("record", record, record is None or isinstance(record, (str, Path)), "a folder"),
        ("record_bytes", record_bytes, record_bytes is None or is_whole(record_bytes, 1), "a whole number from 1"),
        ("vectors_folders", vectors_folders, not isinstance(vectors_folders, (str, Path)), "a list of folders"),
        ("allow", allow, words and not {*allow} - {*CONTROLS}, f"a list out of {', '.join(CONTROLS)}"),
        ("first_step", first_step, first_step is None or is_whole(first_step, 1), "a whole number from 1"),
        ("resume", resume, resume is None or isinstance(resume, (str, Path)), "a run folder or the id of a run"),
        ("phase", phase, phase in PHASES, f"one of {', '.join(PHASES)}"),
        ("linger", linger, isinstance(linger, (int, float)) and linger >= 0, "seconds from 0"),
        ("hub_host", hub_host, isinstance(hub_host, str), "an address such as '127.0.0.1'"),
        ("compiled", compiled, compiled is None or isinstance(compiled, bool), "True, False or None"),
        ("hub_port", hub_port, is_whole(hub_port) and hub_port < 65536, "a port from 0 to 65535"),
    ):  # fmt: skip
        if not fits:
            raise TracerError(f"{argument}=… must be {expected}, got {value!r:.100}.")
    # Times need no trace points.
    points = _known(model, adapter, place, lenient=timeline is not None and flags is None)
    folders = [Path(folder) for folder in vectors_folders]
    spans = TimelineInstrument(TimelineSettings.given(timeline))
    others = [spans, *instruments_from(instruments)]
    writer: GenerationInstrument | None = None
    if "generate" in allow and hub is not None and all(each.name != "generation" for each in others):
        writer = _writer(model, tokenizer, points.place)
        others.append(writer)
    defaults = {"layers": layers, "every": every, "phases": phases or (phase,), "samples": samples}
    patch = settings_from(flags, defaults, points.flags)
    if budget is not None:
        patch["budget"] = parse_budget(budget)
    plan = change_plan(TracingPlan(phase=phase), patch, points, folders)
    if resume is not None and first_step is None:
        raise TracerError(
            "resume=… needs first_step=…, the first step that is trained now: n + 1 after the checkpoint of step n."
        )
    process: HubProcess | None = None
    address: HubAddress | None = None
    leads = points.place.rank == 0
    for argument, value in (("record", record), ("resume", resume)):
        if value is None or (isinstance(hub, str) and hub == "spawn"):
            continue
        raise TracerError(
            f"{argument}={str(value)!r:.100} needs hub='spawn': it is the hub that this call starts which records. One that runs already was told where when it was started."
        )
    if not leads:
        pass
    elif isinstance(hub, str) and hub == "spawn":
        folder = None if record is None else str(record)
        again = None if resume is None else (_resumed_folder(resume, record), int(first_step or 1))
        process = HubProcess(name, folder, linger, hub_host, hub_port, record_bytes, again)
        address = process.start()
    elif hub is not None:
        address = address_from(hub)
    rendezvous = Rendezvous.of_job() if hub is not None else None
    traced = address is not None or rendezvous is not None
    tracer = Tracer(
        points,
        plan if traced else TracingPlan(phase=phase),
        address,
        process,
        rendezvous=rendezvous,
        name=name,
        folders=folders,
        decode=_decoder(tokenizer),
        controls=[control for control in CONTROLS if control in allow],
        first_step=int(first_step or 1),
        phase=phase,
        compiled=traced and (is_compiled(points.roots) if compiled is None else compiled),
    )
    if tracer.graph is not None:
        spans.place(tracer.graph, points.roots)
    try:
        # Without a hub nothing is watched, as nothing is traced.
        for instrument in others if traced else ():
            tracer.attach(instrument)
    except BaseException:
        tracer.close()
        raise
    spans.reconfigure = tracer.configure
    if writer is not None and traced:
        writer.bind(tracer)
    return tracer


def _resumed_folder(resume: str | Path, record: str | Path | None) -> Path:
    """Return the run folder that is meant by its path, or by the id of its run."""
    places = [Path(resume), Path(record or _RUNS) / resume]
    for place in places:
        if (place / "run.json").is_file():
            return place
    raise TracerError(
        f"resume={str(resume)!r:.100} is no recording: neither {places[0]!s:.200} nor {places[1]!s:.200} holds a run.json. Give a run folder, or the id of a run in record=…."
    )


def _writer(model: Any, tokenizer: Any, place: Place) -> GenerationInstrument:
    """Return the instrument that has the model in training write text."""
    # What few trainings need is not imported by all.
    from ..instruments.generation import GenerationInstrument, as_language_model

    if place.world_size > 1:
        raise TracerError(
            f"allow=['generate'] needs the whole model in one process, and this job has {place.world_size}. Leave it out here, and load a checkpoint with megalens.serve."
        )
    return GenerationInstrument(as_language_model(model, tokenizer))


def _placed(points: ModelPoints, place: Place | None) -> ModelPoints:
    """Return the points with this process's place in the job; every process is a replica where nobody knows better."""
    distributed = torch.distributed
    if place is not None:
        return replace(points, place=place)
    if points.place.world_size > 1 or not (distributed.is_available() and distributed.is_initialized()):
        return points
    rank, world = distributed.get_rank(), distributed.get_world_size()
    return replace(points, place=Place(rank=rank, dp=rank, tp_ranks=(rank,), world_size=world, dp_size=world))


def model_points(
    model: nn.Module | Sequence[nn.Module], adapter: IAdapter | None, *, lenient: bool = False
) -> ModelPoints:
    """Return the trace points of a model with this process's place in the job.

    Parameters
    ----------
    model, adapter
        As for :func:`trace`.
    lenient : bool
        Whether a module that no adapter knows has no trace points, where it otherwise is an error.
    """
    return _known(model, adapter, None, lenient=lenient)


def _known(
    model: nn.Module | Sequence[nn.Module], adapter: IAdapter | None, place: Place | None, *, lenient: bool
) -> ModelPoints:
    try:
        return _placed(_points(model, adapter), place)
    except TracerError as error:
        chunks = tuple(model) if isinstance(model, (list, tuple)) else (model,)
        if not lenient or adapter is not None or not all(isinstance(each, nn.Module) for each in chunks):
            raise
        reason = str(error).partition(" Its modules are:")[0][:400]
        unknown = {flag: FlagPoints(reason=reason) for flag in FLAGS}
        described: Model = {"name": type(chunks[0]).__name__, "layers": 0}
        return _placed(ModelPoints(chunks, described, unknown), place)


def _points(model: nn.Module | Sequence[nn.Module], adapter: IAdapter | None) -> ModelPoints:
    chunks = model if isinstance(model, (list, tuple)) and model else [model]
    if not all(isinstance(chunk, nn.Module) for chunk in chunks):
        kinds = ", ".join(sorted({type(chunk).__name__ for chunk in chunks}))
        raise TracerError(f"The model must be a torch.nn.Module or a list of model chunks, got {kinds}.")
    if adapter is None:
        return find_adapter(model).points(model)  # type: ignore[arg-type]
    points: ModelPoints = adapter.points(model)
    return points


def _decoder(tokenizer: Any) -> Callable[[int], str] | None:
    if tokenizer is None:
        return None
    if not callable(getattr(tokenizer, "decode", None)):
        raise TracerError(
            f"tokenizer must have a decode method that takes ids, got a {type(tokenizer).__name__}."
        )
    return lambda number: str(tokenizer.decode([number]))
