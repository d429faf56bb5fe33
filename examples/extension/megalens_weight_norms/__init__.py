"""The norm of each weight after each step, as rows of a stream of its own: an instrument of another package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from megalens.tracer import Host, Instrument

__all__ = ["WeightNorms"]

STREAM = "weight_norms"


class WeightNorms(Instrument):
    """Sends the L2 norm of each weight after every ``every``-th step.

    Parameters
    ----------
    every : int
        Steps from one measured step to the next.
    """

    name = STREAM
    # The declaration is data beside the code: fields and policy, as in Megalens' own streams.
    streams: Mapping[str, Any] = {
        STREAM: json.loads(Path(__file__).with_name("stream.json").read_text(encoding="utf-8"))
    }

    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be a whole number from 1, got {every!r}.")
        self._every = every
        self._step = 0
        self._held = False

    def attach(self, host: Host) -> None:
        """Find the weights: of a pipeline stage, those of all its model chunks."""
        self._host = host
        weights = {
            name: parameter
            for root in host.roots
            for name, parameter in root.named_parameters()
            if parameter.ndim > 1
        }
        self._names, self._weights = list(weights), list(weights.values())

    def step_begins(self, step: int, untraced: bool) -> None:
        """Note where the training is."""
        self._step, self._held = step, untraced

    def step_ends(self) -> None:
        """Measure on the device, and hand over; another thread waits for the figures and sends them."""
        # Replicas have the same weights: one of them tells.
        if self._held or self._step % self._every or self._host.place.dp or not self._host.sends:
            return
        with torch.no_grad():
            norms = torch.stack(torch._foreach_norm([weight.detach() for weight in self._weights]))
        step = self._step
        self._host.later(lambda: self._send(step, norms), norms.nbytes)

    def settings(self) -> dict[str, Any]:
        """Return what viewers are told."""
        return {"every": self._every}

    def _send(self, step: int, norms: torch.Tensor) -> None:
        values = norms.double().cpu().tolist()
        rows = {"step": [step] * len(values), "name": self._names, "value": values}
        self._host.send(STREAM, rows, step)
