"""A status message that reads well in a cell."""

from __future__ import annotations

import os
from typing import Any

from ..protocol import compressor_infos, layer_name, shown_text
from ..protocol.messages_generated import Budget, Hello, Overhead, RunInfo


def bare_hello(run: RunInfo) -> Hello:
    """Return a minimal ``hello`` for recorded files: no model, no flags, and limits that bound nothing."""
    return {
        "type": "hello",
        "protocol": "megalens.v2",
        "run": run,
        "seq": 0,
        "model": None,
        "layout": None,
        "flags": [],
        "compressors": compressor_infos(),
        "config": {"flags": {}},
        "limits": {"max_message_bytes": 1 << 20, "viewer_queue_bytes": 1, "backlog_bytes": 1},
        "versions": {},
    }


class RunStatus(dict[str, Any]):
    """The newest ``status`` message, as a dictionary. In a notebook it prints in words."""

    def __repr__(self) -> str:
        lines = [f"{self['state']} at step {_count(self['step'])}", *self._tracing(), *self._going()]
        lines += [f"note: {warning}" for warning in self.get("warnings", [])]
        return shown_text(os.linesep.join([lines[0], *(f"  {line}" for line in lines[1:])]))

    def _tracing(self) -> list[str]:
        lines = []
        probes = self.get("probes")
        if probes:
            lines.append(f"probes: {probes['fired']} of {probes['expected']} fired")
            # Of a tracer before 0.2 there are no reasons.
            for silent in probes.get("reasons", [{"missing": probes["missing"], "reason": ""}]):
                if silent["missing"]:
                    names = ", ".join(silent["missing"][:5])
                    more = len(silent["missing"]) - 5
                    why = f": {silent['reason']}" if silent["reason"] else ""
                    lines.append(f"  not {names}{f' and {more} more' if more > 0 else ''}{why}")
        if compiled := self.get("compiled"):
            lines.append(
                f"compiled with probes: {_times(compiled['times'])}, of that again: "
                f"{_times(compiled['again'])}"
            )
        if self.get("overhead"):
            parts = [
                (name, self["overhead"].get(name)) for name in ("training", "producer", "hub", "recorder")
            ]
            split = ", ".join(f"{name} {percent:.2g}" for name, percent in parts if percent is not None)
            lines.append(
                f"tracing costs {_interval(self['overhead'])} of step time, by its own "
                f"clocks{f' ({split})' if split else ''}"
            )
        if self.get("budget"):
            lines += _budget(self["budget"])
        if self.get("bytes_per_step"):
            lines.append(f"sends {_size(self['bytes_per_step'])} a step")
        nonfinite = self.get("nonfinite") or {}
        if nonfinite.get("count"):
            first = nonfinite.get("first")
            where = (
                f", first at step {_count(first['step'])} in {first['flag']} {layer_name(first['layer'])}"
                if first
                else ""
            )
            lines.append(f"not finite: {_count(nonfinite['count'])} values{where}")
        dropped = self.get("dropped") or {}
        if any(dropped.values()):
            given = ", ".join(f"{_count(rows)} by the {who}" for who, rows in dropped.items() if rows)
            lines.append(f"rows given up: {given}")
        return lines

    def _going(self) -> list[str]:
        lines = []
        if self.get("perturbed_steps"):
            of = f", {_count(self['armed_steps'])} by what is armed now" if "armed_steps" in self else ""
            lines.append(f"perturbed: {_count(self['perturbed_steps'])} steps so far{of}")
        ranks = self.get("ranks", [])
        wrong = [rank for rank in ranks if rank["state"] in ("silent", "lost")]
        if len(ranks) > 1 or wrong:
            lines.append(f"ranks: {len(ranks)}{'' if wrong else ', all heard of'}")
        for rank in wrong[:10]:
            since = f" for {rank['seconds']:.1f} s" if "seconds" in rank else ""
            lines.append(
                f"{rank.get('name') or 'rank ' + str(rank['rank'])}: {rank['state']}{since}, at step "
                f"{_count(rank['step'])}"
            )
        if len(wrong) > 10:
            lines.append(f"and {len(wrong) - 10} more ranks: run.ranks has all")
        if "viewers" in self:
            lines.append(f"viewers: {self['viewers']}")
        recording = self.get("recording")
        if recording:
            size = f", {_size(recording['bytes'])}" if recording.get("bytes") else ""
            why = f": {recording['message']}" if recording.get("message") else ""
            lines.append(f"recording: {recording['state']}{size}{why}")
        return lines


def _budget(budget: Budget) -> list[str]:
    compared = f" over {_count(budget['steps'])} steps" if budget.get("steps") else ""
    measured = f": {_interval(budget)}{compared}" if "percent" in budget else ""
    head = f"budget of {budget['limit']:g} %, {budget['state']}{measured}"
    return [head, *(f"  {sentence}" for sentence in budget["gave_up"])]


def _interval(cost: Budget | Overhead) -> str:
    between = f" ({cost['low']:.2g} to {cost['high']:.2g})" if "low" in cost and "high" in cost else ""
    return f"{cost['percent']:.2g} %{between}"


def _count(number: int) -> str:
    return f"{number:,}".replace(",", "\u202f")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{_count(number)} times"


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"
        number /= 1024
    raise AssertionError
