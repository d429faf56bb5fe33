"""What nvidia-dlfw-inspect is given as ``statistics_logger``: its numbers in full precision, live."""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...protocol import MOMENT_COLUMNS, cast_of, cast_rows_of, counts_from_one
from ..instrument import Instrument

if TYPE_CHECKING:
    from ..instrument import Host

__all__ = ["InspectScalars"]

_MOST = 100_000


class InspectScalars(Instrument):
    """Takes the numbers of Transformer Engine's debug features, and sends what is of casts as statistics.

    ::

        scalars = InspectScalars()
        tracer = megalens.trace(model, instruments=[scalars])
        nvdlfw_inspect.api.initialize(config_file=…, feature_dirs=…, statistics_logger=scalars)

    Steps are the iterations that come with the numbers. Of processes whose numbers are reduced over a group,
    the first replica's are sent.
    """

    name = "inspect_scalars"
    title = "Transformer Engine"

    def __init__(self) -> None:
        self._given: dict[int, dict[str, float]] = defaultdict(dict)
        self._from_one: bool | None = None
        self._host: Host | None = None
        # That package takes no loggers of other classes than its own. Who uses it has loaded it.
        if (theirs := sys.modules.get("nvdlfw_inspect.logging")) is not None:
            theirs.BaseLogger.register(type(self))

    def attach(self, host: Host) -> None:
        self._host = host

    def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
        """Take a number; in the training thread."""
        here = self._given[int(iteration)]
        if cast_of(name) is not None and len(here) < _MOST:
            here[name] = float(value)

    def step_ends(self) -> None:
        self._send()

    def release(self, closing: bool) -> None:
        """Send what came after the last step, as what is logged at its end does."""
        self._send()

    def _send(self) -> None:
        given, self._given = self._given, defaultdict(dict)
        host = self._host
        if host is None or not host.sends or host.place.dp or host.place.tp:
            return
        for step, numbers in given.items():
            if numbers:
                host.later(partial(self._rows, host, step, numbers))

    def _rows(self, host: Host, step: int, numbers: dict[str, float]) -> None:
        if self._from_one is None:
            self._from_one = counts_from_one(found[1] for name in numbers if (found := cast_of(name)))
        rows = cast_rows_of(numbers, self._from_one)
        n = len(rows)
        figures = {name: np.array([row[name] for row in rows.values()]) for name in MOMENT_COLUMNS}
        host.send(
            "moments",
            {
                "step": np.full(n, step),
                "samples": np.full(n, -1),
                "stat": [stat for stat, _ in rows],
                "name": [name for _, name in rows],
                "rank": np.full(n, host.place.rank, np.int32),
                "stage": np.full(n, -1, np.int32),
                **figures,
                "rounding": np.zeros(n),
                "gradient_stage": [""] * n,
                "loss_scale": np.ones(n),
            },
            step,
        )
