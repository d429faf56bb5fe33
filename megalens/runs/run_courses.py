"""One scalar of thousands of runs: its course in blocks of steps.

A course has of each block of 2^n steps the least, the greatest and the last value, and is kept in the cache
until its recording changes. Blocks of two courses are joined exactly: nothing that rows hold is hidden.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import make_run_folder, stream_segments
from .errors import ClientError, bad_parameter
from .query import Query
from .run_folder import RunFolder
from .storage import HEADER, cache_file

Column = NDArray[np.float64]

MOST_RUNS = 5_000
BLOCKS = 256
_VERSION = "1"
_NONE = np.zeros(0)


@dataclass(frozen=True)
class ScalarCourse:
    """One run's values in blocks of ``2 ** level`` steps, at most 256.

    Attributes
    ----------
    block : ndarray
        Numbers of the blocks that have rows, ascending.
    low, high : ndarray
        Least and greatest finite value in each; NaN without one.
    last : ndarray
        The value of the newest step in each, as it is.
    bad_at : int
        The first step whose value is not finite; -1 without one.
    end : int
        The newest step with a value; -1 without one.
    """

    level: int
    block: Column
    low: Column
    high: Column
    last: Column
    bad_at: int
    end: int

    @classmethod
    def of(cls, steps: NDArray[np.int64], values: Column) -> ScalarCourse:
        """Make the course of rows in any order; of several of one step the last counts."""
        if not len(steps):
            return cls(0, _NONE, _NONE, _NONE, _NONE, -1, -1)
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        bad = np.flatnonzero(~np.isfinite(values))
        first_bad = int(steps[bad[0]]) if len(bad) else -1
        fine = cls(0, steps.astype(float), values, values, values, first_bad, int(steps[-1]))
        level = 0
        while (int(steps[-1]) >> level) - (int(steps[0]) >> level) >= BLOCKS:
            level += 1
        return fine.at(level)

    def at(self, level: int) -> ScalarCourse:
        """Return the course in the larger blocks of a higher level."""
        if not len(self.block):
            return self
        block = np.floor(self.block / 2.0 ** (level - self.level))
        starts = np.flatnonzero(np.diff(block, prepend=block[0] - 1))
        # NaN is passed over by fmin and fmax; an infinity is no extreme that can be drawn.
        low = np.where(np.isfinite(self.low), self.low, np.nan)
        high = np.where(np.isfinite(self.high), self.high, np.nan)
        return ScalarCourse(
            level,
            block[starts],
            np.fmin.reduceat(low, starts),
            np.fmax.reduceat(high, starts),
            self.last[np.append(starts[1:], len(block)) - 1],
            self.bad_at,
            self.end,
        )

    def tops(self) -> list[float]:
        """Return the greatest value of each block, NaN where values cease to be finite."""
        found = np.where(self.block == self.bad_at >> self.level, np.nan, self.high)
        return [float(each) for each in found]


class RunCourses:
    """Courses of one scalar, read again only where a recording changed. One thread at a time may ask.

    Parameters
    ----------
    name : str
        The scalar.
    home : Path
        The folder whose runs they are: it tells their file in the cache from others.
    """

    def __init__(self, name: str, home: Path) -> None:
        self._name = name
        self._file = cache_file("courses", home / name.replace("/", "\N{DIVISION SLASH}"))
        self._known: dict[str, tuple[str, ScalarCourse]] | None = None

    def of(self, folders: Sequence[Path]) -> list[ScalarCourse | None]:
        """Return the course of each run folder; None where it cannot be read.

        Raises ``ClientError`` for more than 5,000.
        """
        if len(folders) > MOST_RUNS:
            raise bad_parameter(f"At most {MOST_RUNS:,} runs are compared, got {len(folders):,}. Give fewer.")
        if self._known is None:
            self._known = self._kept()
        known = self._known
        stamps = [_stamp(folder) for folder in folders]
        stale = [
            at
            for at, folder in enumerate(folders)
            if str(folder) not in known or known[str(folder)][0] != stamps[at]
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for at, course in zip(stale, pool.map(self._read, [folders[at] for at in stale]), strict=True):
                known.pop(str(folders[at]), None)
                if course is not None:
                    known[str(folders[at])] = stamps[at], course
        for extra in list(known)[: max(0, len(known) - 2 * MOST_RUNS)]:
            del known[extra]
        # Growing runs change every few seconds: as in the index of runs, few are not worth a new file.
        if len(stale) * 50 >= len(folders) and stale:
            self._keep()
        return [known[str(folder)][1] if str(folder) in known else None for folder in folders]

    def _read(self, path: Path) -> ScalarCourse | None:
        try:
            folder = RunFolder(path)
            found = folder.read("scalars", Query(name=(self._name,)), ["step", "rank", "value"])
        except (ClientError, OSError):
            return None
        step, rank, value = (found[name].to_numpy() for name in ("step", "rank", "value"))
        mine = rank == rank.min(initial=np.iinfo(rank.dtype).max)
        return ScalarCourse.of(step[mine].astype(np.int64), value[mine].astype(float))

    def _kept(self) -> dict[str, tuple[str, ScalarCourse]]:
        with suppress(OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            with pa.ipc.open_file(self._file) as file:
                table = file.read_all()
            if (table.schema.metadata or {}).get(b"version") == _VERSION.encode():
                columns = (table[name].combine_chunks() for name in _LISTS)
                lists = [np.split(each.values.to_numpy(), each.offsets.to_numpy()[1:-1]) for each in columns]
                plain = [table[name].to_pylist() for name in ("path", "stamp", "level", "bad_at", "end")]
                return {
                    path: (stamp, ScalarCourse(level, block, low, high, last, bad_at, end))
                    for path, stamp, level, bad_at, end, block, low, high, last in zip(
                        *plain, *lists, strict=True
                    )
                }
        return {}

    def _keep(self) -> None:
        known = self._known or {}
        courses = [course for _, course in known.values()]
        columns: dict[str, Any] = {
            "path": list(known),
            "stamp": [stamp for stamp, _ in known.values()],
            **{name: [getattr(each, name) for each in courses] for name in ("level", "bad_at", "end")},
        }
        for name in _LISTS:
            columns[name] = pa.array([getattr(each, name) for each in courses], pa.list_(pa.float64()))
        table = pa.table(columns).replace_schema_metadata({"version": _VERSION})
        # A comparison is as good without what is kept: a full disk is no error.
        with suppress(OSError):
            make_run_folder(self._file.parent, exist_ok=True)
            new = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            with pa.OSFile(str(new), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            new.replace(self._file)


_LISTS = ("block", "low", "high", "last")


def scalar_names(folders: Sequence[Path]) -> list[str]:
    """Return the scalars of a few of the runs, a loss first."""
    found: dict[str, None] = {}
    for path in [folders[at] for at in sorted({0, len(folders) // 2, len(folders) - 1})] if folders else []:
        with suppress(ClientError, OSError):
            names = RunFolder(path).read("scalars", None, ["name"])["name"].unique().to_pylist()
            found.update(dict.fromkeys(sorted(names)))
    return sorted(found, key=lambda name: (name != "loss", "loss" not in name))


def _stamp(folder: Path) -> str:
    """Return what changes with a run's header, its attempts and its scalars."""
    parts: list[str | int] = []
    with suppress(OSError):
        info = os.lstat(folder / HEADER)
        parts += [info.st_mtime_ns, info.st_size, info.st_ctime_ns]
        newest = stream_segments(folder, "scalars")[-1:]
        for segment in newest:
            info = segment.path.lstat()
            parts += [segment.path.name, info.st_mtime_ns, info.st_size]
        attempts = folder / "attempts"
        parts += [attempts.stat().st_mtime_ns] if attempts.is_dir() else []
    return " ".join(map(str, parts))
