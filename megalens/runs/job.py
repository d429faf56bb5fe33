"""A job: recordings of its ranks, nodes and restarts, read as one run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import LAST_STEP, STREAMS, Streams, join_numbers, ranges_text, shown_text
from ..protocol.messages_generated import Hello, Status
from .dask_engine import DaskEngine, each_on
from .errors import ClientError
from .job_index import JobRecording, recordings
from .job_moments import JobMoments
from .query import Query
from .recorded import RecordedRun
from .run_folder import RunFolder
from .run_words import attempt_words, job_name
from .tensor_index import TensorIndex

if TYPE_CHECKING:
    from .answers.selection import StreamRows
    from .moments import MomentSource
    from .run import Run

_AT_ONCE = 8
_MOST_RECORDINGS = 16_384
_MOST_NAMED = 10
_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class JobPart:
    """One recording of a job.

    Attributes
    ----------
    folder : RunFolder
        Its files.
    ranks : tuple of int
        Ranks of the job that have rows in it.
    shift : int
        What a rank in its rows is more in the job.
    first : int or None
        Its first step; None without rows.
    until : int
        Rows from this step on are superseded: a later attempt has them.
    """

    folder: RunFolder
    ranks: tuple[int, ...]
    shift: int
    first: int | None
    until: int = LAST_STEP + 1


class JobFolder(RunFolder):
    """Recordings that are read as one run: ranks beside one another, and attempts one after the other.

    Recordings of the same ranks at different times are attempts: of a step that two have, the later one
    counts. Recordings that give the same rank at the same time are of processes that did not know their rank:
    they are numbered through, in the order of their names.

    Parameters
    ----------
    paths : sequence of Path
        The run folders.
    engine : DaskEngine, optional
        Looks at those that are not in the index.

    Raises
    ------
    ClientError
        As :class:`RunFolder` for one that cannot be read; ``too-large`` for more than 16,384.
    """

    def __init__(self, paths: Sequence[Path], engine: DaskEngine | None = None) -> None:
        if len(paths) > _MOST_RECORDINGS:
            raise ClientError(
                f"A job may have {_MOST_RECORDINGS:,} recordings, got {len(paths):,}. Give fewer folders.",
                code="too-large",
            )
        with ThreadPoolExecutor(_AT_ONCE, "megalens-job") as pool:
            folders = list(pool.map(RunFolder, paths))
            self.path = Path(os.path.commonpath([path.absolute().parent for path in paths]))
            looked = pool.map if engine is None else engine.map
            found = recordings(self.path, folders, pool.map, looked)
        self.earlier = []
        self.chains, self.numbered = _chains(found)
        self.parts = [part for chain in self.chains for part in chain]
        self.streams = Streams(STREAMS.values())
        self._unreadable = []
        for part in self.parts:
            self._unreadable += self.streams.learn(part.folder.header.get("announced", {}))
        last = [chain[-1].folder for chain in self.chains]
        self._told = next((folder for folder in last if folder.header.get("model")), last[0])
        ended = [folder.ended for folder in last]
        names = [job_name(folder.name) for folder in last]
        run = {
            "id": self._told.id,
            "name": max(names, key=names.count),
            "started": min(part.folder.started for part in self.parts),
        }
        self.header = {**self._told.header, "run": run, "format": 2}  # type: ignore[typeddict-item]
        self.header["ended"] = max((at for at in ended if at is not None), default=None)
        if None in ended:
            self.header["ended"] = None
        self.header["state"] = "lost" if any(each.state == "lost" for each in last) else self._told.state

    def reopened(self) -> JobFolder:
        return JobFolder([part.folder.path for part in self.parts])

    @property
    def is_plain(self) -> bool:
        """Whether these are recordings of one job beyond doubt, so that nobody has to say so.

        They have one name but for numbers, one model, and no attempt begins where the one before began: the
        same script run twice is two runs. Processes that did not know their rank must differ in their names.
        """
        if self.numbered and len({chain[0].folder.name for chain in self.chains}) < len(self.chains):
            return False
        names = {job_name(part.folder.name) for part in self.parts}
        models = {json.dumps(part.folder.header.get("model"), sort_keys=True) for part in self.parts}
        for chain in self.chains:
            firsts = [part.first for part in chain if part.first is not None]
            if any(later <= firsts[0] for later in firsts[1:]):
                return False
        begun = [chain[0].folder.started for chain in self.chains]
        over = [self._end_of(chain[-1].folder) for chain in self.chains]
        return len(names) == 1 and len(models - {"null"}) <= 1 and max(begun) <= min(over)

    @staticmethod
    def _end_of(folder: RunFolder) -> float:
        return folder.ended if folder.ended is not None else float("inf")

    @property
    def ended(self) -> float | None:
        return self.header.get("ended")

    @property
    def step(self) -> int:
        return max((min(part.folder.step, part.until - 1) for part in self.parts), default=0)

    def hello(self) -> Hello:
        hello = self._told.hello()
        hello["run"] = self.header["run"]
        flags: dict[str, Any] = {}
        for part in self.parts:
            for info in part.folder.hello()["flags"]:
                known = flags.setdefault(info["name"], {**info})
                known["layers"] = sorted({*known["layers"], *info["layers"]})
                known["parts"] = list(dict.fromkeys([*known["parts"], *info["parts"]]))
        hello["flags"] = list(flags.values())
        hello["streams"] = self.streams.declarations()
        return hello

    @property
    def missing_steps(self) -> list[list[int]]:
        """Steps that no attempt of a rank has, for the first rank that lacks some."""
        found: list[list[int]] = []
        for chain in self.chains:
            for part in chain:
                found += [
                    [first, min(last, part.until - 1)]
                    for first, last in part.folder.missing_steps
                    if first < part.until
                ]
            found += [[first, last] for first, last in _gaps(chain)]
        return [list(each) for each in sorted({(first, last) for first, last in found})]

    def newest_step(self, stream: str) -> int:
        return max((min(part.folder.newest_step(stream), part.until - 1) for part in self.parts), default=0)

    def bytes(self) -> int:
        return sum(part.folder.bytes() for part in self.parts)

    def truncated(self) -> list[str]:
        cut = {stream for part in self.parts for stream in part.folder.truncated()}
        return [stream for stream in self.streams if stream in cut]

    def status(self) -> Status:
        """Return what is known of the job's end: its ranks, and in ``warnings`` what is missing."""
        status: Status = {
            "type": "status",
            "state": self.state,
            "step": self.step,
            "producers": [],
            "viewers": 0,
            "recording": {
                "state": "closed" if self.closed else "on",
                "bytes": self.bytes(),
                "missing_steps": self.missing_steps,
            },
            "ranks": [
                {
                    "rank": rank,
                    "name": shown_text(f"rank {rank} ({chain[-1].folder.path.name})", 200),
                    "state": "finished" if chain[-1].folder.state == "finished" else "lost",
                    "step": min(chain[-1].folder.step, chain[-1].until - 1),
                }
                for chain in self.chains
                for rank in chain[-1].ranks
            ],
        }
        status["ranks"].sort(key=lambda each: each["rank"])
        if warnings := self._warnings():
            status["warnings"] = warnings
        return status

    def _warnings(self) -> list[str]:
        ranks = {rank for part in self.parts for rank in part.ranks}
        found = []
        if self.numbered:
            found.append(
                f"Several of the {len(self.chains):,} recordings name the same rank at the same time: their "
                "ranks are numbered through, in the order of the recordings' names."
            )
        layouts = [layout for part in self.parts if (layout := part.folder.header.get("layout"))]
        world = max((layout["world_size"] for layout in layouts), default=0)
        if lacking := sorted(set(range(world)) - ranks):
            found.append(
                f"{len(lacking):,} of {world:,} ranks have no rows: {_ranges_of(lacking)}. Rank 0 alone may "
                "have logged, or their recordings are elsewhere."
            )
        early = [chain[-1] for chain in self.chains if chain[-1].folder.step < self.step]
        if early:
            named = "; ".join(
                f"rank {_ranges_of(part.ranks)} at step {part.folder.step:,}" for part in early[:_MOST_NAMED]
            )
            more = f" and {len(early) - _MOST_NAMED:,} more" if len(early) > _MOST_NAMED else ""
            found.append(f"The job goes to step {self.step:,}; recordings that end before: {named}{more}.")
        for chain in self.chains:
            found += [
                f"Steps {first:,} to {last:,} of rank {_ranges_of(chain[-1].ranks)} are in no recording."
                for first, last in _gaps(chain)
            ]
        found += [attempt_words(part.folder.id, part.until) for part in self.parts if part.until <= LAST_STEP]
        cut = self.truncated()
        found += [
            f"The {name} stream was cut short; it is read up to its last whole message." for name in cut
        ]
        rest = len(found) - _MOST_NAMED * 2
        return [*found[: _MOST_NAMED * 2], f"{rest:,} more things are missing."] if rest > 0 else found

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows, one recording after the other, as each step was trained last."""
        for part in self.parts:
            if stream not in part.folder.streams:
                continue
            asked = (query or Query()).before(part.until) if part.until <= LAST_STEP else query or Query()
            for batch in part.folder.batches(stream, _of_part(asked, part.shift), columns):
                yield _shifted(batch, part.shift)
        if stream == "audit":
            yield from self._seams(query or Query(), columns)

    def parted(self, stream: str, query: Query) -> list[tuple[RunFolder, Query]]:
        """Return a question to each recording."""
        parts = list[tuple[RunFolder, Query]]()
        for part in self.parts:
            one = copy(self)
            one.parts, one.chains = [part], [[part]]
            parts.append((one, query))
        return parts

    def _seams(self, query: Query, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield an event for each attempt that went on from another one."""
        schema = self.streams["audit"].schema
        rows = []
        for chain in self.chains:
            for before, after in pairwise(chain):
                if after.first is not None:
                    detail = {
                        "text": f"The training went on from step {after.first:,} as {after.folder.id}.",
                        "ranks": list(after.ranks)[:_MOST_NAMED],
                        "before": before.folder.id,
                    }
                    rows.append(
                        {
                            "step": after.first,
                            "time": after.folder.started,
                            "who": "job",
                            "action": "restart",
                            "detail": json.dumps(detail),
                        }
                    )
        table = query.filter(pa.Table.from_pylist(rows, schema))
        yield from (table if columns is None else table.select(columns)).to_batches()

    def tensor_index(self, check: Callable[[], None] = lambda: None) -> TensorIndex:
        found = [(part.folder.tensor_index(check), part.until, part.shift) for part in self.parts]
        return TensorIndex.joined(found)


class JobRun(RecordedRun):
    """A job as one run: what :class:`Run` has, with a rank for each recording."""

    _folder: JobFolder

    def __init__(self, folder: JobFolder, engine: DaskEngine | None = None) -> None:
        super().__init__(folder, engine)

    @property
    def folder(self) -> Path | None:
        """None: its recordings have folders of their own, see :attr:`recordings`."""
        return None

    @property
    def recordings(self) -> Any:
        """The job's recordings as a data frame: ``folder``, ``id``, ``ranks``, ``first_step``, ``until``."""
        from pandas import DataFrame

        rows = [
            {
                "folder": str(part.folder.path),
                "id": part.folder.id,
                "ranks": _ranges_of(part.ranks),
                "first_step": part.first,
                "until": part.until if part.until <= LAST_STEP else None,
            }
            for part in self._folder.parts
        ]
        return DataFrame(rows, columns=["folder", "id", "ranks", "first_step", "until"])

    @property
    def attempts(self) -> list[Run]:
        return [RecordedRun(part.folder) for part in self._folder.parts if part.until <= LAST_STEP]

    def _moments(self) -> MomentSource:
        from .moments import MomentSource

        parts = [(part.folder.path, part.until, part.shift) for part in self._folder.parts]
        return MomentSource(JobMoments(parts, each_on(self._engine)), self._engine)

    @property
    def _own_rows(self) -> StreamRows:
        return self._folder


def _chains(found: Sequence[JobRecording]) -> tuple[list[list[JobPart]], bool]:
    """Return for each process, or group of them, its attempts in order, and whether ranks were numbered."""
    chains: list[list[JobRecording]] = []
    for each in sorted(found, key=lambda one: (one.folder.started, _natural(one.folder.path.name))):
        free = [
            chain
            for chain in chains
            if chain[-1].ranks == each.ranks and chain[-1].ended <= each.folder.started
        ]
        # Of several that are free, the one that has its name: numbers in names tell ranks apart.
        same = [chain for chain in free if chain[-1].folder.name == each.folder.name]
        if same or free:
            (same or free)[0].append(each)
        else:
            chains.append([each])
    chains.sort(
        key=lambda chain: (
            chain[0].ranks[0],
            _natural(chain[0].folder.name),
            _natural(chain[0].folder.path.name),
        )
    )
    taken: set[int] = set()
    numbered = False
    for chain in chains:
        own = {rank for each in chain for rank in each.ranks}
        numbered = numbered or bool(taken & own)
        taken |= own
    if numbered:
        chains.sort(key=lambda chain: (_natural(chain[0].folder.name), _natural(chain[0].folder.path.name)))
    made, shift = [], 0
    for chain in chains:
        until, parts = LAST_STEP + 1, []
        for each in reversed(chain):
            ranks = tuple(rank + shift for rank in each.ranks)
            parts.append(JobPart(each.folder, ranks, shift, each.first, until))
            until = min(until, until if each.first is None else each.first)
        made.append(parts[::-1])
        if numbered:
            shift += 1 + max(rank for each in chain for rank in each.ranks)
    return made, numbered


def _gaps(chain: Sequence[JobPart]) -> Iterator[tuple[int, int]]:
    """Yield the steps between an attempt's last and the next one's first."""
    for before, after in pairwise(chain):
        if after.first is not None and before.folder.step + 1 < after.first:
            yield before.folder.step + 1, after.first - 1


def _of_part(query: Query, shift: int) -> Query:
    """Return a question about ranks of the job in a recording's own."""
    if not shift:
        return query
    ranks = query.ranks and tuple((rank - shift, layers) for rank, layers in query.ranks)
    where = tuple((name, int(value) - shift if name == "rank" else value) for name, value in query.where)
    return replace(query, ranks=ranks, where=where)


def _shifted(batch: pa.RecordBatch, shift: int) -> pa.RecordBatch:
    at = batch.schema.get_field_index("rank")
    if not shift or at < 0:
        return batch
    ranks = pc.add(batch.column(at), pa.scalar(shift, batch.schema.field(at).type))
    return batch.set_column(at, batch.schema.field(at), ranks)


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = _NUMBERS.split(name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]


def _ranges_of(numbers: Sequence[int]) -> str:
    # Of a job of a million ranks nearly all may be missing.
    ranges = join_numbers(numbers, most=len(numbers))
    more = f" and {len(ranges) - _MOST_NAMED} more" if len(ranges) > _MOST_NAMED else ""
    return f"{ranges_text(ranges[:_MOST_NAMED])}{more}"
