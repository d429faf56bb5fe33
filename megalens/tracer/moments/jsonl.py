"""Statistics as JSON lines, one file for each, in the layout of Megatron-LM's raw-moment files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...protocol import (
    MOMENT_COLUMNS,
    MOMENT_POWERS,
    RAW_MOMENTS_FOLDER,
    RAW_SUMS,
    SCALED_STATS,
    raw_sums_from_moments,
)
from .gathering import CompleteStep, Merged

_BY = {"param": "param", "grad": "param"}


class JsonlFiles:
    """Writes ``<folder>/training_stats/<stat>_raw_moments_by_<param or layer>/rank0.jsonl``, one line a step.

    In the producer thread. A line is appended with one write, so that a concurrent reader sees a complete
    line or its beginning. Gradients inside of the model are written with their loss scale in them, which the
    line says. A disk that fails is reported once and ends the files, nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / RAW_MOMENTS_FOLDER
        self._failed = False
        self.warn: Callable[[str], None] = lambda text: None

    def __call__(self, complete: CompleteStep) -> None:
        for merged in complete.stats:
            if len(merged.tensors.names) and not self._failed:
                try:
                    self._append(
                        f"{merged.stat}_raw_moments_by_{_BY.get(merged.stat, 'layer')}", complete, merged
                    )
                except OSError as error:
                    self._failed = True
                    self.warn(
                        f"Statistics are not written to files any more, from step {complete.step} on: "
                        f"{error.strerror or error}"
                    )

    def _append(self, stat: str, complete: CompleteStep, merged: Merged) -> None:
        line = json.dumps(self._record(stat, complete, merged)) + "\n"
        folder = self._folder / stat
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "rank0.jsonl", "ab", buffering=0) as file:
            file.write(line.encode())

    def _record(self, stat: str, complete: CompleteStep, merged: Merged) -> dict[str, Any]:
        scale = merged.loss_scale
        known = bool(np.isfinite(scale))
        rows = merged.rows
        stage = merged.gradient_stage
        if merged.stat in SCALED_STATS:
            stage = "backward_scaled"
            if known:
                rows = rows * scale**MOMENT_POWERS
        sums = raw_sums_from_moments({name: rows[:, at] for at, name in enumerate(MOMENT_COLUMNS)})
        columns = [sums[name].tolist() for name in RAW_SUMS]
        record: dict[str, Any] = {"iter": complete.step}
        if complete.samples >= 0:
            record["consumed_train_samples"] = complete.samples
        record["stat"] = stat
        if stage:
            record["gradient_stage"] = stage
        if merged.stat in SCALED_STATS and known:
            record["loss_scale"] = scale
        record["values"] = {
            name: dict(zip(RAW_SUMS, figures, strict=True))
            for name, figures in zip(merged.tensors.names, zip(*columns, strict=True), strict=True)
        }
        return record
