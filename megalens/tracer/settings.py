"""What ``megalens.trace`` is asked for: every setting once, with its bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..protocol import PHASES, RECORD_MODE, is_record_mode, is_whole
from ..protocol.messages_generated import Phase
from .coordinates import RankCoordinates
from .errors import TracerError
from .instrument import Instrument
from .points import IAdapter
from .tensors.plan import CONTROLS


@dataclass(frozen=True, kw_only=True)
class TraceSettings:
    """The settings of :func:`megalens.trace`.

    Attributes
    ----------
    name : str, optional
        Name of the run.
    flags : mapping, iterable of str, optional
        What to trace from the first step on: by name a compressor such as ``Tile(96)``, ``True`` (what suits
        it), ``False`` or ``None`` (off), or a ``FlagSetting`` mapping; or just names, which are on. Nothing,
        and no hook, when absent: viewers can switch flags on at any time.
    layers, every, phases, samples
        Which layers (``"all"``, ``"0-3,7"``), which training steps (every n-th), in which phases, and how
        many first samples of each micro-batch (``"all"`` or None for all), where a flag does not say its own.
        Phases are those of the steps when absent.
    record : str or Path, optional
        Folder into which the hub writes the run's own folder; or an address on other storage
        (``s3://bucket/runs``): the recording is then written in the cache, and another process sends each
        sealed segment there. Closing the tracer waits 20 s for that process, which goes on.
    record_bytes : int, optional
        What the recording may take while it is written. Its oldest steps are then given up for newer ones,
        and named; scalars stay. No bound when absent.
    record_mode : int, optional
        Permissions of the run's own folder, such as ``0o750``, and of what is written into it. When absent it
        is its owner's alone; where ``record`` has the setgid bit, by which a group shares a folder, the group
        may read the run too.
    resume : str or Path, optional
        Run folder, or the id of a run in ``record`` (in ``megalens-runs`` when absent), whose recording goes
        on: of a training that restarts from a checkpoint, with ``first_step``. What was recorded of that step
        and later ones becomes an earlier attempt: ``run.attempts``.
    hub : {'spawn'}, None, (address, token) or path
        Start a hub process (rank 0 does, and tells the other ranks of the job where it is); or none, and
        trace nothing; or use one that runs, by its WebSocket address and token or by its runtime file (again
        only rank 0's counts).
    tokenizer : optional
        Anything with ``decode([id])``: token ids then travel with their text.
    adapter : IAdapter, optional
        Where the trace points are. Found by itself where the model's structure tells: attention, MLP or
        experts in a list of layers.
    vectors_folders : sequence of path
        Folders from which viewers may load projection vectors. None when absent.
    linger : float
        Seconds for which our own hub stays for viewers once the training is over.
    allow : sequence of {'pause', 'watched', 'perturb', 'generate'}
        What viewers may do to the training beyond looking: pause it (and take single steps), have it train
        only while a viewer is attached, perturb it, have it write text between two steps (needs ``tokenizer``
        with ``encode`` and ``decode``, and the whole model in one process). Nothing when absent.
    budget : str or float, optional
        What tracing may cost, in per cent of step time (``"1%"``): it traces less to stay inside, and says
        what it gave up.
    instruments : iterable or mapping, optional
        What else watches the steps: instruments (:mod:`megalens.tracer.instrument`), or names of those that
        installed packages bring; as a mapping, with the settings of each.
    timeline : str or mapping, optional
        How finely each rank's steps are timed: ``"steps"``, ``"phases"``, ``"layers"`` or ``"operations"``,
        or ``{"granularity": "phases", "every": 10, "memory": True}``, which also reads how much memory is in
        use. Off when absent: viewers can switch it on at any time.
    place : Place, optional
        Where this process stands in its job, where the adapter cannot find out.
    first_step : int, optional
        Number of the first step; 1 when absent. A training that goes on from a checkpoint of step n says n +
        1, on every rank, so that its steps are not counted anew.
    phase : {'train', 'eval', 'generate'}
        What the steps are. Where they are no training, their forward passes need no gradients.
    hub_host : str
        Address on which our own hub listens. Loopback unless ranks on other hosts have to reach it.
    hub_port : int
        Its port; any free one when 0.
    compiled : bool or 'captured', optional
        Whether code that ``torch.compile`` compiles from now on gets probes, which show its tensors. When
        absent: where something in the model is to be compiled already. Say True where only a function that
        calls the model is compiled, or where the model is compiled after this call. ``'captured'`` is for
        code that CUDA graphs replay (``mode="reduce-overhead"``): it measures statistics by itself, and
        tensors are not traced.

    Raises
    ------
    TracerError
        When a setting is not as above, naming it.
    """

    name: str | None = None
    flags: Mapping[str, Any] | Iterable[str] | None = None
    layers: str | int | Iterable[int] = "all"
    every: int = 1
    phases: Sequence[str] | str | None = None
    samples: int | str | None = 1
    record: str | Path | None = None
    record_bytes: int | None = None
    record_mode: int | None = None
    resume: str | Path | None = None
    hub: Any = "spawn"
    tokenizer: Any = None
    adapter: IAdapter | None = None
    vectors_folders: Sequence[str | Path] = ()
    linger: float = 10.0
    allow: Sequence[str] = ()
    budget: Any = None
    instruments: Iterable[Instrument | str] | Mapping[str, Mapping[str, Any]] = ()
    timeline: Any = None
    place: RankCoordinates | None = None
    first_step: int | None = None
    phase: Phase = "train"
    hub_host: str = "127.0.0.1"
    hub_port: int = 0
    compiled: bool | Literal["captured"] | None = None

    def __post_init__(self) -> None:
        for name, fits, expected in (
            ("name", _none_or(self.name, str), "text"),
            (
                "adapter",
                self.adapter is None or hasattr(self.adapter, "points"),
                "an Adapter, as of megalens.adapters",
            ),
            ("place", _none_or(self.place, RankCoordinates), "a megalens.tracer.Place"),
            ("record", _none_or(self.record, str, Path), "a folder"),
            (
                "record_bytes",
                self.record_bytes is None or is_whole(self.record_bytes, 1),
                "a whole number from 1",
            ),
            ("record_mode", self.record_mode is None or is_record_mode(self.record_mode), RECORD_MODE),
            ("vectors_folders", not isinstance(self.vectors_folders, (str, Path)), "a list of folders"),
            ("allow", _words_among(self.allow, CONTROLS), f"a list out of {', '.join(CONTROLS)}"),
            ("first_step", self.first_step is None or is_whole(self.first_step, 1), "a whole number from 1"),
            ("resume", _none_or(self.resume, str, Path), "a run folder or the id of a run"),
            ("phase", self.phase in PHASES, f"one of {', '.join(PHASES)}"),
            ("linger", isinstance(self.linger, (int, float)) and self.linger >= 0, "seconds from 0"),
            ("hub_host", isinstance(self.hub_host, str), "an address such as '127.0.0.1'"),
            (
                "compiled",
                self.compiled == "captured" or _none_or(self.compiled, bool),
                "True, False, 'captured' or None",
            ),
            ("hub_port", is_whole(self.hub_port) and self.hub_port < 65536, "a port from 0 to 65535"),
        ):
            if not fits:
                raise TracerError(f"{name}=… must be {expected}, got {getattr(self, name)!r:.100}.")
        if self.resume is not None and self.first_step is None:
            raise TracerError(
                "resume=… needs first_step=…, the first step that is trained now: n + 1 after the "
                "checkpoint of step n."
            )
        for name, value in (("record", self.record), ("resume", self.resume)):
            if value is not None and not self.spawns:
                raise TracerError(
                    f"{name}={str(value)!r:.100} needs hub='spawn': it is the hub that this call starts "
                    "which records. One that runs already was told where when it was started."
                )

    @property
    def spawns(self) -> bool:
        """Whether the trace starts a hub of its own."""
        return isinstance(self.hub, str) and self.hub == "spawn"


def _none_or(value: Any, *kinds: type) -> bool:
    return value is None or isinstance(value, kinds)


def _words_among(value: Any, known: Iterable[str]) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str) and not {*value} - {*known}
