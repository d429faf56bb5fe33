"""The run: what a kernel, a report and the Jupyter server know of one training run, live or recorded."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ..protocol import Streams, renamed, shown_text
from ..protocol.messages_generated import (
    Cancel,
    CompressorInfo,
    ConfigPatch,
    FlagInfo,
    FlagSetting,
    Generate,
    Generating,
    Hello,
    Layout,
    Model,
    Origin,
)
from ..slices import named, run_attributes
from .controls import Controls
from .errors import ClientError
from .query import LayerChoice, Query, StepChoice
from .run_words import check_flag, run_words
from .status import RunStatus
from .tables import Tables
from .tensor_array import with_experts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

    from .answers.selection import StreamRows
    from .dask_engine import DaskEngine
    from .moments import MomentSource, Progress

_Self = TypeVar("_Self", bound="Run")


class Run(Controls):
    """One training run. Made by :func:`megalens.runs.connect` and :func:`megalens.runs.open_run`.

    Use it as a context manager, or call :meth:`close`, to end the connection. What arrived before stays
    readable.
    """

    _hello: Hello

    # What the run is

    @property
    def id(self) -> str:
        """Run id."""
        return str(self._hello["run"]["id"])

    @property
    def name(self) -> str:
        """Run name."""
        return str(self._hello["run"]["name"])

    @property
    def started(self) -> float:
        """Seconds since the epoch."""
        return float(self._hello["run"]["started"])

    @property
    @abstractmethod
    def live(self) -> bool:
        """Whether rows may still arrive."""

    @property
    def state(self) -> str:
        """``waiting``, ``training``, ``paused``, ``idle``, ``finished`` or ``lost``."""
        return str(self.status["state"])

    @property
    def step(self) -> int:
        """Newest step; 0 before the first."""
        return int(self.status["step"])

    @property
    def model(self) -> Model | None:
        """What the traced model is; ``None`` until a producer has announced."""
        return self._hello["model"]

    @property
    def layout(self) -> Layout | None:
        """Parallel layout: ``world_size``, ``tp``, ``pp``, ``dp``."""
        return self._hello["layout"]

    @property
    def origin(self) -> Origin | None:
        """The source of the rows when no tracer of ours sends them: ``kind``, ``name``, ``steps``."""
        return self._hello.get("origin")

    @property
    def flags(self) -> dict[str, FlagInfo]:
        """What can be traced, by name: ``title``, ``layers``, ``parts``, ``axes`` and more."""
        return {info["name"]: info for info in self._hello["flags"]}

    @property
    def compressors(self) -> dict[str, CompressorInfo]:
        """Compressors by name, with the JSON Schema of their parameters."""
        return {info["name"]: info for info in self._hello["compressors"]}

    @property
    def config(self) -> dict[str, FlagSetting]:
        """What is traced now: settings by flag name. A flag that is not here is off."""
        return dict(self._hello["config"]["flags"])

    @property
    def logged(self) -> dict[str, int]:
        """Statistics that the training logs: steps between measurements by ``param``, ``grad`` and so on."""
        return {
            stat: every for stat, every in self._hello.get("statistics", {}).items() if isinstance(every, int)
        }

    @property
    def versions(self) -> dict[str, str]:
        """Versions of megalens, torch, python … that made the run."""
        return dict(self._hello["versions"])

    @property
    @abstractmethod
    def status(self) -> RunStatus:
        """The newest ``status`` message: state, step, probes, overhead, non-finite, drops, recording."""

    @property
    def ranks(self) -> Any:
        """Every known training process: ``rank``, ``name``, ``state``, ``step``, ``seconds`` of silence."""
        from pandas import DataFrame

        return DataFrame(self.status.get("ranks", []), columns=["rank", "name", "state", "step", "seconds"])

    @property
    @abstractmethod
    def warnings(self) -> list[str]:
        """Sentences about what went wrong or is missing."""

    @property
    @abstractmethod
    def truncated(self) -> list[str]:
        """Streams of a recording whose file was cut short; read up to their last complete message."""

    @property
    @abstractmethod
    def folder(self) -> Path | None:
        """The run folder, where this machine has one."""

    @property
    def attempts(self) -> list[Run]:
        """Earlier attempts of a training that went back to a checkpoint, oldest first: runs of their own,
        with their ``id``.

        Empty where this machine has none.
        """
        return []

    @property
    def has_streams(self) -> bool:
        """Whether there are rows of streams, and not statistics alone."""
        return True

    # Description of the run

    _engine: DaskEngine | None = None
    """Where questions are answered, if not here."""

    @property
    def _own_rows(self) -> StreamRows | None:
        """The source of rows that are in no single folder."""
        return None

    @abstractmethod
    def _read(self, stream: str, query: Query) -> pa.Table:
        """Return the matching rows of a stream, in the order in which they came."""

    def _received(self, stream: str, query: Query) -> pa.Table:
        """Return those that are in memory, where some are."""
        return self._read(stream, query)

    def _not_kept(self, stream: str, query: Query) -> str | None:
        """Return a sentence on matching rows that are nowhere any more; None where none is known."""
        return None

    @renamed(layer="layers")
    def tensors(
        self,
        flag: str | None = None,
        layers: LayerChoice = None,
        part: str | None = None,
        steps: StepChoice = None,
        phase: str | None = None,
        pass_: str | None = None,
        rank: int | None = None,
    ) -> pa.Table:
        """Return traced tensors.

        Parameters
        ----------
        flag : str, optional
            Trace point by name.
        layers : int, iterable of int or str, optional
            A layer, several, or a range text such as ``"0-3,7"``.
        part : str, optional
            Named part, such as ``"q"``.
        steps : int, slice, range, iterable of int or str, optional
            One step; ``slice(10, None)`` or ``range(10, 20)``, as everywhere in Python without the end; a
            list of steps; or a text such as ``"10-19,30"``.
        phase : str, optional
            ``train``, ``eval`` or ``generate``.
        pass_ : str, optional
            ``forward``, or ``backward`` for the gradients of the same tensors.
        rank : int, optional
            Rows of one global rank; without it replicas stand beside one another, told apart by the column
            ``rank``.

        Returns
        -------
        pyarrow.Table
            Rows of the stream ``tensors``; ``values`` is flat float32 of shape ``shape``. ``.to_pandas()``
            works on it. Where parts are of the experts of a mixture, a column ``expert`` has their numbers.
            Of a live run also what memory no longer has, where this machine has the recording; a warning
            says where steps are nowhere any more.

        Raises
        ------
        ClientError
            ``bad-parameter``, naming the argument; a flag that this run does not have is one.
        """
        check_flag(self.flags, flag)
        query = Query.of(
            flag=flag, layers=layers, part=part, steps=steps, phase=phase, pass_=pass_, rank=rank
        )
        found = self._read("tensors", query)
        if steps is not None and not found.num_rows and (why := self._not_kept("tensors", query)):
            warnings.warn(f"Not kept: {why}", stacklevel=3)
        return with_experts(found)

    def array(
        self,
        flag: str,
        layer: int | None = None,
        step: int | None = None,
        *,
        part: str | None = None,
        micro_batch: int | None = None,
        phase: str = "train",
        pass_: str = "forward",  # noqa: S107
        rank: int | None = None,
        call: int | None = None,
    ) -> NDArray[np.float32]:
        """Return one traced tensor with its shape. Of a live run with a recording on this machine also what
        memory no longer has.

        Parameters
        ----------
        flag : str
            Trace point by name.
        layer, step : int, optional
            Layer, counted from 0, and step. Where they are absent the only layer there is, and the newest
            step.
        part, micro_batch, rank, call : optional
            Named part, forward pass of the step, global rank, and which call of the layer in that pass; the
            first that there is when absent. Gradients of another backward pass of the same forward pass
            are behind all calls.
        phase, pass_ : str
            As in :meth:`tensors`.

        Returns
        -------
        numpy.ndarray
            float32 ``[samples, …]``: the axes of ``run.flags[flag]["axes"]``, the last one as the compressor
            left it. A copy.

        Raises
        ------
        ClientError
            ``bad-parameter`` or ``not-found``, naming the argument and what there is.
        """
        from .run_rows import rows_of
        from .tensor_array import tensor_array

        return tensor_array(
            rows_of(self),
            self.flags,
            flag,
            phase,
            pass_,
            layer=layer,
            step=step,
            part=part,
            rank=rank,
            micro_batch=micro_batch,
            call=call,
        )

    @renamed(name="names")
    def scalars(self, names: str | Iterable[str] | None = None, steps: StepChoice = None) -> pa.Table:
        """Return scalars: ``step``, ``time`` (seconds since the epoch), ``rank``, ``name``, ``value``,
        ``unit``.

        Parameters
        ----------
        names : str or iterable of str, optional
            Such as ``"loss"``; every name when absent.
        steps : optional
            As in :meth:`tensors`.
        """
        return self._read("scalars", Query.of(names=names, steps=steps))

    @renamed(group_by="by")
    def moments(
        self,
        stat: str | Sequence[str] = "grad",
        by: Any = ("layer",),
        steps: StepChoice = None,
        where: Any = None,
        mixed: bool = False,
    ) -> DataFrame:
        """Return statistics of groups of tensors, merged exactly as if the values themselves had been
        grouped.

        Parameters
        ----------
        stat : str or sequence of str
            ``param``, ``grad``, ``activation``, ``dgrad``, ``residual``, ``residual_dgrad``,
            ``attention_entropy``, ``attention_max``, ``router_entropy``, ``router_similarity``,
            ``stable_rank``, ``kernel_norm``; of casts to fewer bits ``underflow``, ``overflow``,
            ``saturated``, ``subnormal``, ``cast_error``, ``cast_scale``, ``cast_amax``.
        by : str, function or sequence of them
            Any of ``name``, ``layer``, ``stack``, ``family``, ``kind``, ``module_type``, ``item_type``,
            ``role``, ``expert``, ``rank``, ``stage``; a regular expression with groups (named ones become
            columns, a name that it does not match is left out); a function of the name. ``[]`` is the total.
        steps : optional
            As in :meth:`tensors`.
        where : mapping or callable, optional
            Which tensors take part, by the same columns: ``{"layer": 2, "role": "output"}``, ``{"layer":
            "0-3", "family": ["mlp"]}``, ``{"name": r"fc1"}``; or a function of the name.
        mixed : bool
            Let inputs and outputs of modules enter one group. The same values may count twice then, so it is
            refused without this.

        Returns
        -------
        pandas.DataFrame
            One row for each step and group: ``stat``, ``step``, the columns of the group, ``count, mean,
            variance, std, l2, rms, skewness, kurtosis, excess_kurtosis, nan_count, inf_count, min, max,
            near_zero_count, near_zero_share``, then ``variance_error, kurtosis_error, samples, scaled,
            gradient_stage``; see ``docs/statistics.md``. NaN is no answer: count 0, or not known.

        Raises
        ------
        ClientError
            ``bad-parameter`` naming the argument, ``mixed``, or ``not-found`` when the run has none of that
            stat.
        """
        from .moments import moment_frame

        source = self.moment_source
        source.refresh()
        return moment_frame(source, stat, by, steps, where, mixed, live=self.live)

    @property
    def moment_source(self) -> MomentSource:
        """The run's statistics without pandas: an index, rows and groups as Arrow tables; read on first use.

        Raises ``ClientError`` when they cannot be read.
        """
        if self._source is None:
            source = self._moments()
            source.refresh(self._progress)
            self._source = source
        return self._source

    _source: MomentSource | None = None
    _progress: Progress | None = None

    @abstractmethod
    def _moments(self) -> MomentSource:
        """Return the source of the statistics, of which nothing is read yet."""

    @property
    def table(self) -> Tables:
        """The rows of any stream of the run: ``run.table("weight_norms")``; see :class:`Tables`."""
        return Tables(self._streams, self._read)

    @property
    @abstractmethod
    def _streams(self) -> Streams: ...

    def readings(self, kind: str) -> DataFrame:
        """Return statistics row by row, as they were measured.

        Parameters
        ----------
        kind : str
            What was measured, by its name here (``"grad"``) or by that of TrainerMon's files
            (``"grad_reduced"``).

        Returns
        -------
        pandas.DataFrame
            ``kind`` and ``rank``; of files of TrainerMon then their own columns: ``vpp_stage``, ``name``,
            ``step``, ``micro_step`` where there is one, one for each operation, ``shape`` and ``dtype``. Of
            other runs ``name``, ``step``, ``norm``, ``min``, ``max``, ``mean``, ``zeros`` (the share of
            values near zero) and ``nans``.

        Raises
        ------
        ClientError
            ``bad-parameter`` for a kind that there cannot be.
        """
        from .moments.frame import own_readings

        source = self.moment_source
        source.refresh()
        return own_readings(source, kind)

    def sql(self, query: str) -> DataFrame:
        """Answer a query in SQL, as DuckDB understands it: ``run.sql("from scalars where name = 'loss'")``.

        Parameters
        ----------
        query : str
            One ``SELECT``, ``WITH``, ``FROM``, ``DESCRIBE`` or ``SUMMARIZE``. Each stream of the run is a
            table of its name: ``tensors``, ``moments``, ``scalars`` and so on. Steps that were trained again
            are there once, as they were trained last.

        Returns
        -------
        pandas.DataFrame
            What it gives. Values that are not finite stay, and lists stay lists.

        Raises
        ------
        ClientError
            ``bad-parameter`` with DuckDB's own words and the names of the tables. A query reads the run
            alone: other files, the network and variables of the notebook are out of its reach.
        """
        from .run_rows import all_rows
        from .sql import sql_frame

        return sql_frame(all_rows(self), query)

    def export(
        self,
        to: str,
        path: str | os.PathLike[str] | None = None,
        streams: str | Iterable[str] | None = None,
        force: bool = False,
    ) -> dict[str, int]:
        """Write the run as files that other tools read, into a folder.

        A line of text shows how far it is; interrupt it to cancel, which leaves nothing behind.

        Parameters
        ----------
        to : str
            ``parquet`` or ``csv``, a file for each stream, by step; ``tensorboard``, scalars and statistics;
            ``safetensors``, traced tensors as arrays; ``perfetto``, spans and alarms.
        path : str or path, optional
            The folder, which is made; ``<run id>-<to>`` when absent.
        streams : str or iterable of str, optional
            Of these streams alone.
        force : bool
            Replace a folder that an export wrote.

        Returns
        -------
        dict
            Rows that were written, by stream.

        Raises
        ------
        ClientError
            ``bad-parameter``, naming the argument; ``not-found`` where there are no rows; ``not-installed``,
            naming what installs it; ``unwritable``.
        """
        from .exports import export_run
        from .run_rows import all_rows

        return export_run(self._hello["run"], all_rows(self), to, path, streams, force=force)

    def audit(self) -> pa.Table:
        """Return who changed what, and the step at which it took effect."""
        return self._read("audit", Query())

    def __getattr__(self, name: str) -> Any:
        # Methods of slices, such as generate of the generation lab and alarms of the monitor.
        return run_attributes("run", self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *named("run")})

    def _await(self, stream: str, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``done`` holds of a stream's rows, and return whether it does."""
        return done()

    def _request(self, message: Generate | Cancel, timeout: float) -> Generating:
        """Send a request, whose id is chosen here, and return its answer."""
        raise ClientError(
            f"{self.name} is not live, so its model writes nothing. megalens.serve(model, tokenizer) makes "
            "a live one.",
            code="recorded",
        )

    @abstractmethod
    def wait(self, step: int | None = None, timeout: float | None = None) -> int:
        """Wait until the rows of a step have arrived.

        Parameters
        ----------
        step : int, optional
            The step to wait for; the one after the newest when absent.
        timeout : float, optional
            Seconds; for ever when absent.

        Returns
        -------
        int
            The newest step.

        Raises
        ------
        ClientError
            ``timeout``, or ``closed`` when the run ended before that step.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection and its thread. Safe twice."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = [] if self._engine is None else [f"  read by the Dask cluster at {self._engine.address}"]
        return shown_text(os.linesep.join([*run_words(self), *where]))


class ReadRun(Run):
    """A run that is read from files. Nobody knows whether somebody still writes them, so it is not live."""

    _kind = "is a recorded run"

    @property
    def live(self) -> bool:
        """False."""
        return False

    def close(self) -> None:
        """Release the statistics in memory; everything stays readable. Safe twice."""
        if self._source is not None:
            self._source.close()
            self._source = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _configure(self, patch: ConfigPatch, timeout: float) -> int:
        raise ClientError(
            f"{self.name} {self._kind}, so nothing of it can be changed. Connect to a live run with "
            "connect().",
            code="recorded",
        )
