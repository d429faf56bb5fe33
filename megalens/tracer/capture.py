"""The step path: what happens to a tensor between its hook and the end of its step. Nothing here waits for anything."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .batch import NO_COUNTS, RAW_BYTES, Batch, RawRows, Row, RowMeta, ScalarRow
from .compressors import NarrowMean
from .config import Plan
from .points import Source
from .probes import Probe, install_probes
from .staging import StagePool

__all__ = ["Capture"]

_clock = time.perf_counter_ns
_MOST_METAS = 256


class Capture:
    """Follows a plan in the training thread: hooks, rows of the step so far, and what all that cost.

    Parameters
    ----------
    root : torch.nn.Module
        The module whose call is one forward pass.
    points : mapping
        ``FlagPoints`` by flag name.
    warn : callable
        Takes a sentence for the user; never raises and never waits.
    hand_over : callable
        Takes away what has gathered, as :meth:`take` gives it; never raises and never waits.
    """

    def __init__(
        self,
        root: torch.nn.Module,
        points: Any,
        warn: Callable[[str], None],
        hand_over: Callable[[], None],
    ) -> None:
        self._root = root
        self._points = points
        self._warn = warn
        self._hand_over = hand_over
        self._remove: Callable[[], None] | None = None
        self.plan = Plan()
        self.probes: list[Probe] = []
        self.errors = 0
        self.spent_ns = 0
        self.step = 0
        self.phase = "train"
        self.scope = 0
        self.in_forward = False
        self.micro_batch = -1
        self.positions: int | None = None
        self._any_active = False
        self._samples_in_batch = 1
        self._rows: list[Row | RawRows] = []
        self._scalars: list[ScalarRow] = []
        self._nbytes = 0
        self._on_device = False
        self.stages = StagePool()
        self._stage = self.stages.take()

    # Set-up, between steps.

    def follow(self, plan: Plan) -> None:
        """Trace what ``plan`` says from now on; an empty plan leaves no hook of ours on the model."""
        self.release()
        self.plan = plan
        if plan.flags:
            self.probes, self._remove = install_probes(self._root, self._points, plan, self)

    def release(self) -> None:
        """Take every hook of ours off the model. Safe twice."""
        remove, self._remove = self._remove, None
        self.probes = []
        self.plan = Plan()
        self._any_active = False
        self.in_forward = False
        if remove is not None:
            remove()

    # Around steps and phases.

    def begin(self, step: int, phase: str) -> None:
        """Start a step, or a phase."""
        self.step = step
        self.phase = phase
        self.scope += 1
        self.micro_batch = -1
        self.in_forward = False
        active = False
        for flag in self.plan.flags.values():
            active |= flag.update(step, phase)
        self._any_active = active

    def resume(self, phase: str, micro_batch: int, scope: int) -> None:
        """Go back to what a phase inside of a step had interrupted."""
        self.phase, self.micro_batch, self.scope = phase, micro_batch, scope
        active = [flag.update(self.step, phase) for flag in self.plan.flags.values()]
        self._any_active = any(active)

    def pause(self) -> None:
        """Between steps nothing is traced."""
        if self._any_active:
            for flag in self.plan.flags.values():
                flag.active = False
        self._any_active = False
        self.in_forward = False

    def fired(self) -> tuple[int, int, list[str]] | None:
        """Return how many probes fired in this step of those that were to, and the names of the others."""
        if not self._any_active:
            return None
        expected = fired = 0
        missing: list[str] = []
        scope = self.scope
        for probe in self.probes:
            if probe.flag.active:
                expected += 1
                # A later scope is a phase inside of this step.
                if probe.scope >= scope:
                    fired += 1
                elif len(missing) < 50:
                    missing.append(probe.label)
        return fired, expected, missing

    def take(self) -> Batch:
        """Hand over what has gathered."""
        batch = Batch(self.step, self._rows, self._scalars, self._nbytes, spent_ns=self.spent_ns)
        if self._stage.wanted:
            batch.stage, self._stage = self._stage, self.stages.take()
        if self._on_device:
            # The producer thread waits for it, not this one.
            batch.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            batch.ready.record()
            self._on_device = False
        self._rows, self._scalars, self._nbytes, self.spent_ns = [], [], 0, 0
        return batch

    # Inside a forward pass.

    def forward_begins(self) -> None:
        """Count a forward pass. What fires outside of one is recomputation for the backward pass and is no new tensor."""
        if self._any_active:
            self.micro_batch += 1
            self.in_forward = True

    def forward_ends(self) -> None:
        """Hand over what a forward pass gave. The backward pass that follows needs no interpreter, so that the producer thread has it for itself."""
        self.in_forward = False
        if self._rows:
            started = _clock()
            self._hand_over()
            self.spent_ns += _clock() - started

    def add(self, probe: Probe, tensor: Any) -> None:
        """Keep what one probe saw. Never raises: an error is counted and said once."""
        started = _clock()
        try:
            if isinstance(tensor, Tensor):
                self._add(probe, tensor)
            else:
                self._warn(f"{probe.label} gave no tensor{_hint(probe)}.")
        except Exception as error:  # A tracer's fault must not end a training step.
            self.errors += 1
            self._warn(f"{probe.label} could not be traced: {str(error)[:300] or type(error).__name__}")
        self.spent_ns += _clock() - started

    def scalar(self, name: str, value: Any, unit: str) -> None:
        """Keep one number; a tensor is copied as it is now and read later."""
        if isinstance(value, Tensor):
            value = value.detach()
            if value.device.type == "cuda":
                value, self._on_device = _to_host(value), True
            else:
                value = value.clone()
        if len(self._scalars) < 10_000:
            self._scalars.append(ScalarRow(self.step, time.time(), name, value, unit))

    def _add(self, probe: Probe, tensor: Tensor) -> None:
        source, flag = probe.source, probe.flag
        data = tensor.detach()
        if source.sequence_first:
            data = data.transpose(0, 1)
        data = self._batched(source, data)
        samples = data.shape[0]
        if flag.name == "InputTokens":
            self._samples_in_batch = samples
        if self.positions is None:
            self.positions = data.shape[2 if data.ndim == 4 else 1]
        # Selected before anything is computed: what is left out costs nothing.
        kept = data if flag.samples is None or flag.samples >= samples else data[: flag.samples]
        kernel = flag.kernel
        key = (self.micro_batch, self.phase, data.shape)
        metas = probe.metas.get(key)
        alike = source.split is None or source.cuts is not None
        if alike and isinstance(kernel, NarrowMean) and kept.nbytes <= RAW_BYTES:
            tiles = kernel.tiles_of(kept, source.cuts)
            if tiles is not None:
                # One copy is the least that can be done here; the arithmetic is the producer thread's.
                array = self._stage.room(tuple(kept.shape))
                np.copyto(array, kept.numpy())
                if metas is None:
                    parts = _parts(source, kept)
                    shapes = [(*part.shape[:-1], tiles) for part in parts]
                    metas = self._describe(probe, key, parts, shapes, samples)
                self._rows.append(RawRows(metas, kernel, array))
                self._nbytes += array.nbytes + 256
                probe.scope = self.scope
                return
        parts = _parts(source, kept)
        outputs = [kernel(part, probe.layer) for part in parts]
        counts = [_count(part) for part in parts]
        if metas is None:
            metas = self._describe(probe, key, parts, [tuple(output.shape) for output in outputs], samples)
        for meta, values, count in zip(metas, outputs, counts, strict=True):
            if values.is_cuda:
                values = _to_host(values)
                self._on_device = True
            if isinstance(count, Tensor):
                count = _to_host(count)
            self._rows.append(Row(meta, values, count))
            self._nbytes += values.nbytes + 256
        probe.scope = self.scope

    def _describe(
        self, probe: Probe, key: Any, parts: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], samples: int
    ) -> list[RowMeta]:
        flag, source = probe.flag, probe.source
        metas = [
            RowMeta(
                self.micro_batch,
                self.phase,
                probe.layer,
                flag.name,
                name,
                flag.text,
                (samples, *part.shape[1:]),
                shape,
            )
            for name, part, shape in zip(source.parts, parts, shapes, strict=True)
        ]
        if len(probe.metas) >= _MOST_METAS:
            probe.metas.clear()
        probe.metas[key] = metas
        return metas

    def _batched(self, source: Source, data: Tensor) -> Tensor:
        if not source.like_ids:
            return data
        if data.ndim == 1:
            data = data.unsqueeze(0)
        return data.expand(self._samples_in_batch, -1) if data.shape[0] == 1 else data


def _parts(source: Source, data: Tensor) -> Sequence[Tensor]:
    return (data,) if source.split is None else source.split(data)


def _count(data: Tensor) -> tuple[int, int] | Tensor:
    """Count NaN and infinity. Any of them makes the sum non-finite, so on the CPU one pass settles the usual case."""
    if not data.is_floating_point() or data.numel() == 0:
        return NO_COUNTS
    if data.is_cuda:
        return torch.stack((data.isnan().sum(), data.isinf().sum()))
    # On the CPU the number is already here: reading it waits for nothing.
    if math.isfinite(float(data.sum(dtype=torch.float32))):
        return NO_COUNTS
    return int(data.isnan().sum()), int(data.isinf().sum())


def _to_host(data: Tensor) -> Tensor:
    """Start a copy into pinned memory. It is complete once the batch's event is."""
    host = torch.empty(data.shape, dtype=data.dtype, pin_memory=True)
    return host.copy_(data, non_blocking=True)


def _hint(probe: Probe) -> str:
    if probe.flag.name == "RawAttentionScore_mat_mul":
        return ": the attention returns no probabilities. Set attn_implementation='eager' or its like"
    return ""
