"""What the hub knows about the run: model, configuration, state, figures."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from ..protocol import SUBPROTOCOL, CheckedBody, compressor_infos
from .live_frame import LiveFrame

__all__ = ["RunState"]

_MEAN_STEPS = 32


class RunState:
    """Facts about the run, filled by what producers say and send.

    Parameters
    ----------
    run_id, name : str
        Run id and name.
    limits : dict
        The ``limits`` member of ``hello``.
    idle_seconds : float
        Without a step for this long, a run is idle.
    versions : dict
        Of the hub's own parts.
    """

    def __init__(
        self, run_id: str, name: str, limits: dict[str, int], idle_seconds: float, versions: dict[str, str]
    ) -> None:
        self.started = time.time()
        self.run: dict[str, Any] = {"id": run_id, "name": name, "started": self.started}
        self.limits = limits
        self.seq = 0
        self.step = 0
        self.ended: float | None = None
        self.config: dict[str, Any] = {"flags": {}}
        self.announced: dict[int, dict[str, Any]] = {}
        self.warnings: deque[str] = deque(maxlen=20)
        self._versions = versions
        self._idle_seconds = idle_seconds
        self._attached: list[int] = []
        self._came = False
        self._lost = False
        self._last_step_time: float | None = None
        self._reports: dict[int, dict[str, Any]] = {}
        self._nonfinite = 0
        self._first_nonfinite: dict[str, Any] | None = None
        self._step_bytes: deque[list[int]] = deque(maxlen=_MEAN_STEPS)

    @property
    def state(self) -> str:
        """One of the ``RunState`` names."""
        if self._attached:
            last = self._last_step_time
            return "idle" if last is None or time.monotonic() - last > self._idle_seconds else "training"
        if not self._came:
            return "lost" if self._lost else "waiting"
        return "lost" if self._lost else "finished"

    @property
    def done(self) -> bool:
        """Whether every producer that came is gone."""
        return self.state in ("finished", "lost")

    def announce(self, message: dict[str, Any]) -> None:
        """Take a producer's announcement."""
        rank = message["rank"]
        self.announced[rank] = message
        if rank == min(self.announced):
            self.config = message["config"]
            if message.get("run_name"):
                self.run["name"] = message["run_name"]

    def attach(self, rank: int) -> None:
        """Count a producer in."""
        self._attached.append(rank)
        self._came = True
        self._lost = False
        self.ended = None

    def detach(self, rank: int, *, finished: bool) -> None:
        """Count a producer out, after its goodbye or without one."""
        self._attached.remove(rank)
        self._lost = self._lost or not finished
        if not self._attached:
            self.ended = time.time()

    def give_up(self) -> None:
        """No producer came and none will."""
        self._lost = True
        self.ended = time.time()

    def report(self, rank: int, status: dict[str, Any]) -> None:
        """Take a producer's own ``status``."""
        self._reports[rank] = status
        if status["step"] != self.step:
            self._saw_step(status["step"])

    def saw(self, frame: LiveFrame, body: CheckedBody) -> None:
        """Take the figures of one frame."""
        self.seq = frame.seq
        if frame.stream == "audit":
            return
        if frame.step >= 0:
            self._saw_step(frame.step)
        if frame.stream != "tensors":
            return
        self._count_nonfinite(body)
        if self._step_bytes and self._step_bytes[-1][0] == frame.step:
            self._step_bytes[-1][1] += frame.size
        else:
            self._step_bytes.append([frame.step, frame.size])

    def hello(self) -> dict[str, Any]:
        """Return a ``hello`` without ``resumed``."""
        first = self.announced[min(self.announced)] if self.announced else None
        versions = dict(self._versions)
        for rank in sorted(self.announced, reverse=True):
            versions.update(self.announced[rank]["versions"])
        return {
            "type": "hello",
            "protocol": SUBPROTOCOL,
            "run": dict(self.run),
            "seq": self.seq,
            "model": first["model"] if first else None,
            "layout": first["layout"] if first else None,
            "flags": self.flags(),
            "compressors": first["compressors"] if first else compressor_infos(),
            "config": self.config,
            "limits": self.limits,
            "versions": versions,
        }

    def flags(self) -> list[dict[str, Any]]:
        """Return what can be traced over all ranks: each rank may hold other layers of the model."""
        flags: dict[str, dict[str, Any]] = {}
        for rank in sorted(self.announced):
            for info in self.announced[rank]["flags"]:
                known = flags.get(info["name"])
                if known is None:
                    flags[info["name"]] = dict(info)
                    continue
                known["layers"] = sorted({*known["layers"], *info["layers"]})
                if known["layers"]:
                    known.pop("reason", None)
        return list(flags.values())

    def status(self) -> dict[str, Any]:
        """Return the members of ``status`` that are the same for all viewers."""
        status: dict[str, Any] = {
            "type": "status",
            "state": self.state,
            "step": self.step,
            "time": time.time(),
            "nonfinite": {"count": self._nonfinite},
            "producers": sorted(set(self._attached)),
        }
        if self._first_nonfinite:
            status["nonfinite"]["first"] = self._first_nonfinite
        reports = [self._reports[rank] for rank in sorted(self._reports)]
        probes = [report["probes"] for report in reports if "probes" in report]
        if probes:
            status["probes"] = {
                "fired": sum(p["fired"] for p in probes),
                "expected": sum(p["expected"] for p in probes),
                "missing": [name for p in probes for name in p["missing"]][:50],
            }
        overheads = [report["overhead"] for report in reports if "overhead" in report]
        if overheads:
            status["overhead"] = max(overheads, key=lambda overhead: float(overhead["percent"]))
        if self._step_bytes:
            status["bytes_per_step"] = sum(size for _, size in self._step_bytes) / len(self._step_bytes)
        warnings = [*self.warnings, *(text for report in reports for text in report.get("warnings", ()))]
        if warnings:
            status["warnings"] = list(dict.fromkeys(warnings))[-20:]
        return status

    def producer_drops(self) -> int:
        """Rows that the producers say they gave up."""
        return sum(report.get("dropped", {}).get("producer", 0) for report in self._reports.values())

    def warn(self, text: str) -> None:
        """Add a sentence for the user, once."""
        if text[:500] not in self.warnings:
            self.warnings.append(text[:500])

    def description(self) -> dict[str, Any]:
        """Return ``run.json`` without what the recorder adds."""
        hello = self.hello()
        kept = ("run", "model", "layout", "flags", "compressors", "config", "versions")
        return {"format": 1, "state": self.state, "ended": self.ended, **{name: hello[name] for name in kept}}

    def _saw_step(self, step: int) -> None:
        self.step = max(step, 0)
        self._last_step_time = time.monotonic()

    def _count_nonfinite(self, body: CheckedBody) -> None:
        if body.all_zero("nan_count") and body.all_zero("inf_count"):
            return
        counts = [body.numbers(name) for name in ("nan_count", "inf_count")]
        self._nonfinite += max(int(counts[0].sum() + counts[1].sum()), 0)
        if self._first_nonfinite is None:
            row = int(((counts[0] + counts[1]) > 0).argmax())
            self._first_nonfinite = {
                name: body.table().column(name)[row].as_py() for name in ("step", "layer", "flag")
            }
