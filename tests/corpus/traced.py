"""The run that Megalens traces, by its public interface alone, and what is then read of the recording."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import megalens

from .job import Job

FLAGS = (
    "QKV_mat_mul",
    "RawAttentionScore_mat_mul",
    "ContextLayer_mat_mul",
    "AttentionOutput_mat_mul",
    "MLP1_mat_mul",
    "MLP2_mat_mul",
    "HiddenStates",
    "InputTokens",
)
STATISTICS = ("grad", "param", "activation", "dgrad", "residual", "residual_dgrad")
_COORDINATES = ("layer", "step", "part", "micro_batch", "call")


@contextmanager
def quietly() -> Iterator[None]:
    """Run with hubs of one's own, in one thread, and let nothing be printed but what the program says."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="corpus-hubs-") as runtime:
        os.environ["MEGALENS_RUNTIME_DIR"] = runtime
        yield


@dataclass
class Recording:
    """What Megalens said and recorded of one watched model."""

    folder: Path
    refused: str | None = None
    """What ``megalens.trace`` or ``megalens.log_statistics`` raised."""
    refusals: dict[str, str] = field(default_factory=dict)
    """By flag, what was said when it was asked for."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    moments: list[dict[str, Any]] = field(default_factory=list)
    framed: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    """Gradients by step and name, as ``run.moments`` gives them."""
    warnings: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    arrays: list[tuple[dict[str, Any], Any]] = field(default_factory=list)
    """Rows, each with what ``run.array`` gives of it."""


class Traced(Job):
    """Traces with every flag, uncompressed, forward and backward, and logs statistics of gradients and
    parameters.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.recordings: list[Recording] = []
        self._tracers: list[Any] = []
        self._loggers: list[Any] = []

    def watch(self, model: nn.Module, *optimizers: torch.optim.Optimizer, **tracing: Any) -> None:
        folder = self._folder / str(len(self.recordings))
        self._begin(model, optimizers, Recording(folder), record=folder, **tracing)

    def restart(self, model: nn.Module, *optimizers: torch.optim.Optimizer, first_step: int) -> None:
        self._loggers.pop().close()
        self._tracers.pop().close()
        recording = self.recordings.pop()
        (run,) = recording.folder.iterdir()
        self._begin(model, optimizers, recording, resume=run, first_step=first_step)

    def _begin(
        self, model: nn.Module, optimizers: tuple[Any, ...], recording: Recording, **tracing: Any
    ) -> None:
        self.recordings.append(recording)
        taken = list(optimizers) if len(optimizers) != 1 else optimizers[0]
        try:
            tracer = megalens.trace(model, name="corpus", linger=0.0, **tracing)
        except megalens.TracerError as error:
            recording.refused = str(error)
            options = {"name": "corpus", "linger": 0.0, **tracing}
        else:
            for flag in FLAGS:
                self._ask(tracer, flag, recording)
            options = {"tracer": tracer}
        logger = self._log(model, taken or None, recording, options)
        tracer = logger.tracer
        self._tracers.append(tracer)
        self._loggers.append(logger)

    @staticmethod
    def _log(model: nn.Module, optimizers: Any, recording: Recording, options: dict[str, Any]) -> Any:
        statistics = dict.fromkeys(STATISTICS, 1)
        try:
            return megalens.log_statistics(model, optimizers, **statistics, **options)
        except megalens.TracerError as error:
            for name in ("residual", "residual_dgrad"):
                del statistics[name]
                recording.refusals[name] = str(error)
            return megalens.log_statistics(model, optimizers, **statistics, **options)

    @staticmethod
    def _ask(tracer: Any, flag: str, recording: Recording) -> None:
        passes = ["forward"] if flag == "InputTokens" else ["forward", "backward"]
        try:
            tracer.configure({flag: {"compressor": megalens.NoOp(), "samples": "all", "passes": passes}})
        except (megalens.TracerError, megalens.ProtocolError) as error:
            recording.refusals[flag] = str(error)

    @contextmanager
    def step(self) -> Iterator[None]:
        with ExitStack() as stack:
            for tracer in self._tracers:
                stack.enter_context(tracer.step())
            yield

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with ExitStack() as stack:
            for tracer in self._tracers:
                stack.enter_context(tracer.phase(name))
            yield

    def loss(self, value: Tensor) -> None:
        super().loss(value)
        for tracer in self._tracers:
            tracer.log(loss=value.detach())

    def close(self) -> None:
        for each in (*self._loggers, *self._tracers):
            each.close()

    def read(self) -> list[Recording]:
        """Close everything, and read the recordings."""
        self.close()
        for recording in self.recordings:
            (folder,) = [each for each in recording.folder.iterdir() if (each / "run.json").is_file()]
            with megalens.open(folder) as run:
                self._read(run, recording)
        return self.recordings

    @staticmethod
    def _read(run: Any, recording: Recording) -> None:
        recording.rows = run.tensors().to_pylist()
        recording.moments = run.table("moments").to_pylist()
        recording.warnings = list(run.warnings)
        recording.reasons = {name: info["reason"] for name, info in run.flags.items() if info.get("reason")}
        if any(row["stat"] == "grad" for row in recording.moments):
            frame = run.moments("grad", ["name"])
            recording.framed = {(row["step"], row["name"]): row for row in frame.to_dict("records")}
        # The first of each flag and part, and the newest of several rows of one key, by the call of a
        # notebook.
        chosen: dict[tuple[str, str, str], dict[str, Any]] = {}
        for row in recording.rows:
            first = chosen.setdefault((row["flag"], row["part"], row["pass"]), row)
            if all(row[name] == first[name] for name in _COORDINATES if name in row):
                chosen[row["flag"], row["part"], row["pass"]] = row
        for row in chosen.values():
            named = {name: row[name] for name in _COORDINATES if name in row}
            recording.arrays.append((row, run.array(row["flag"], **named, pass_=row["pass"])))
