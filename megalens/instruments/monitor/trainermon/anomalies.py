"""``anomaly.json``: the anomalies of TrainerMon's rules by rank, written while training, and read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ....protocol import MegalensError, is_whole
from ....protocol.outside import read_json_file, replace_file
from .config import MonitorConfig
from .rules import RecordedRules, rules_from
from .writing import Line, Writer, tag_of

RECORDS = "anomaly.json"
ANALYSIS = "anomaly_analyse.json"
_RANK_FOLDER = re.compile(r"rank\d{1,5}")
_MOST_BYTES = 28 << 20
_MOST_WARNINGS = 1_000
# The part of the step by a tag's last component. Without one it comes first, as in its tools.
_PARTS = {
    "actv": 0,
    **dict.fromkeys(("actv_grad", "pre_grad", "post_grad", "acc_grad"), 1),
    **dict.fromkeys(("exp_avg", "exp_avg_sq"), 2),
}
_INTEGERS = ("rank", "step", "micro_step", "pp_stage", "vpp_stage", "call_id")

_MOST = 100_000


class AnomalyWriter:
    """Judges each number on its way to ``inner``. Findings go to ``tell``, and with ``dump`` to
    ``anomaly.json``.

    ``folder`` is the run's ``anomaly_detected``; ``mates`` are the ranks of this process's pipeline.
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
        self._pp_stage, self._mates = pp_stage, list(mates)
        self._path = folder / f"rank{rank}" / RECORDS if config.alert.get("dump") else None
        self._found: dict[str, dict[str, Any]] = {}
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._save(self._path)

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
        """Judge the lines, and pass them on."""
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
        found = Anomaly(self._rank, step, 0, self._pp_stage, line.chunk, line.call, tag, message, self._mates)
        if self._path is not None and (len(self._found) < _MOST or found.key in self._found):
            self._found[found.key] = vars(found)

    def _save(self, path: Path) -> None:
        replace_file(path, json.dumps(self._found, indent=1).encode())

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True)
class Anomaly:
    """One record, with the members that it has in the file.

    Attributes
    ----------
    rank, step, micro_step, pp_stage, vpp_stage : int
        Where and when.
    call_id : int
        Index of the tag among those that the rank measured in that step; -1 where it has none.
    tag_name : str
        Chunk, name, micro-batch, rank and what was measured, such as ``0:layers.0.mlp.output:0/rank0/actv``.
    message : str
        For people.
    group_mates : list of int
        Ranks of the process group.
    """

    rank: int
    step: int
    micro_step: int
    pp_stage: int
    vpp_stage: int
    call_id: int
    tag_name: str
    message: str
    group_mates: list[int] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Name of the record in the file."""
        return f"{self.tag_name}_step_{self.step}_call_{self.call_id}"

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Sort key: step, micro-batch, part of the step, stage (backwards in the backward pass), call."""
        part = _PARTS.get(self.tag_name.rpartition("/")[2], -1)
        way = 1 if part == 0 else -1
        return self.step, self.micro_step, part, way * self.vpp_stage, way * self.pp_stage, self.call_id

    @classmethod
    def of(cls, record: Any) -> Anomaly:
        """Return a record as it was read; raises ``ValueError`` naming the wrong member."""
        if not isinstance(record, dict):
            raise ValueError(f"a record must be an object, got {record!r:.100}")
        for name in _INTEGERS:
            if not is_whole(record.get(name), -(2**53)):
                raise ValueError(f"{name} must be a whole number, got {record.get(name)!r:.100}")
        for name in ("tag_name", "message"):
            if not isinstance(record.get(name), str):
                raise ValueError(f"{name} must be a text, got {record.get(name)!r:.100}")
        mates = record.get("group_mates", [])
        if not isinstance(mates, list) or not all(is_whole(each, 0) for each in mates):
            raise ValueError(f"group_mates must be a list of ranks, got {mates!r:.100}")
        return cls(**{name: record[name] for name in (*_INTEGERS, "tag_name", "message")}, group_mates=mates)


def read_anomalies(folder: Path) -> tuple[list[Anomaly], list[str]]:
    """Read the ``anomaly.json`` of every rank one level below the output's ``anomaly_detected``.

    Returns the records by ranks' folders and files, and a sentence about each that was left out. Raises
    ``MegalensError`` without such a folder, and for a file that cannot be read.
    """
    if not folder.is_dir():
        raise MegalensError(f"{folder} must be a folder that holds rank0/{RECORDS}; there is none.")
    found: list[Anomaly] = []
    warnings: list[str] = []
    more = 0
    for path in _files(folder):
        for key, record in _records(path).items():
            try:
                found.append(Anomaly.of(record))
            except ValueError as error:
                if len(warnings) < _MOST_WARNINGS:
                    warnings.append(f"{path.parent.name}/{path.name}: {key[:100]!r} is left out: {error}.")
                else:
                    more += 1
    return found, [*warnings, f"{more:,} more records are left out."] if more else warnings


def first_anomalies(
    anomalies: Iterable[Anomaly], most: int = 8, steps: Collection[int] = ()
) -> list[Anomaly]:
    """Return the ``most`` first anomalies, of some steps if named; simultaneous ones stay in order."""
    chosen = [each for each in anomalies if not steps or each.step in steps]
    return sorted(chosen, key=lambda each: each.order)[:most]


def write_anomalies(path: Path, anomalies: Iterable[Anomaly]) -> None:
    """Write records in order as one file, replacing it. Of records with one key the last stays."""
    records = {each.key: asdict(each) for each in anomalies}
    replace_file(path, json.dumps(records, indent=1, ensure_ascii=False).encode())


def _files(folder: Path) -> Iterator[Path]:
    ranks = [each for each in folder.iterdir() if _RANK_FOLDER.fullmatch(each.name) and each.is_dir()]
    for rank in sorted(ranks, key=lambda each: int(each.name[4:])):
        if (rank / RECORDS).is_file():
            yield rank / RECORDS


def _records(path: Path) -> dict[str, Any]:
    try:
        records = read_json_file(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise MegalensError(f"Could not read {path.parent.name}/{path.name}: {str(error)[:200]}") from error
    if not isinstance(records, dict):
        raise MegalensError(
            f"{path.parent.name}/{path.name} must hold an object of records, got a {type(records).__name__}."
        )
    return records
