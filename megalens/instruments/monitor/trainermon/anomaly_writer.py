"""The rules of a configuration over what is written, and ``anomaly.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .config import MonitorConfig
from .rules import RecordedRules, rules_from
from .writing import COMMUNICATION, Line, Writer

__all__ = ["AnomalyWriter", "tag_of"]

# What a kind of file is called in tags.
_TASKS = {
    "grad_unreduced": "acc_grad",
    "grad_reduced": "post_grad",
    "other": "mg_direction",
    "attention_hook": "qkt",
    "linear_hook": "sr",
    "moe_router_weight_hook": "router_weight",
    "moe_router_logit_hook": "router_logit",
}
_MOST = 100_000


def tag_of(line: Line, kind: str, rank: int) -> str:
    """Return a line's tag, such as ``0:layers.0.mlp.input:0/rank0/actv`` or ``all_reduce/rank0/pre_0``."""
    if kind == COMMUNICATION:
        operation, _, where = line.name.partition(".")
        return f"{operation}/rank{rank}/{where}"
    micro = "" if line.micro_step is None else f":{line.micro_step}"
    return f"{line.chunk}:{line.name}{micro}/rank{rank}/{_TASKS.get(kind, kind)}"


class AnomalyWriter:
    """Judges each number on its way to another writer. What is found is said, and with ``dump`` kept in ``anomaly.json``.

    Parameters
    ----------
    inner : Writer
        What the lines go to.
    config : MonitorConfig
        Its ``alert``.
    folder : Path
        ``anomaly_detected`` of the run.
    rank, pp_stage : int
        Of this process.
    mates : sequence of int
        The ranks of its pipeline.
    tell : callable
        Takes the message of each anomaly.
    """

    def __init__(
        self,
        inner: Writer,
        config: MonitorConfig,
        folder: Path,
        *,
        rank: int,
        pp_stage: int,
        mates: Sequence[int],
        tell: Callable[[str], object],
    ) -> None:
        self.inner, self._tell, self._rank = inner, tell, rank
        self._rules = RecordedRules(rules_from(config.alert["rules"]))
        self._about = {"rank": rank, "pp_stage": pp_stage, "group_mates": list(mates)}
        self._path = folder / f"rank{rank}" / "anomaly.json" if config.alert.get("dump") else None
        self._found: dict[str, dict[str, Any]] = {}
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._save(self._path)

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
        """Judge the lines, and hand them on."""
        found = False
        for line in lines:
            tag = tag_of(line, kind, self._rank)
            for op, value in line.values.items():
                message = self._rules.judge(tag, op, value, step)
                if message is not None:
                    found = True
                    self._tell(message)
                    self._keep(tag, step, line, message)
        if found and self._path is not None:
            self._save(self._path)
        self.inner.write(kind, step, lines)

    def _keep(self, tag: str, step: int, line: Line, message: str) -> None:
        key = f"{tag}_step_{step}_call_{line.call}"
        if self._path is not None and (len(self._found) < _MOST or key in self._found):
            about = self._about
            self._found[key] = {
                "rank": about["rank"],
                "step": step,
                "micro_step": 0,
                "pp_stage": about["pp_stage"],
                "vpp_stage": line.chunk,
                "call_id": line.call,
                "tag_name": tag,
                "message": message,
                "group_mates": about["group_mates"],
            }

    def _save(self, path: Path) -> None:
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(self._found, indent=1), encoding="utf-8")
        os.replace(partial, path)

    def close(self) -> None:
        """Close what the lines go to."""
        self.inner.close()
