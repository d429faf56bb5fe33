"""The raw-moment JSONL files of one run as rows of the stream ``moments``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....protocol import MOMENT_STATS, shown_text
from ...errors import ClientError
from ..rows.cache_folder import trim_cache
from ..rows.moment_rows import Chunk, MomentRows, Progress, StatIndex, Wanted
from ..trainermon.trainermon_rows import TrainerMonRows
from .cached_file import CachedFile
from .duck import duck_cursor, duck_errors, quoted_path, sql_chunks
from .ingest import bring_up_to_date
from .tree import StatisticsTree

_COLUMNS = (
    "step, samples, stat, name, rank, -1::INTEGER AS stage, count, mean, m2, m3, m4, 'nan'::DOUBLE AS min, "
    "'nan'::DOUBLE AS max, unknown AS nan_count, unknown AS inf_count, unknown AS negative_inf_count, "
    "'nan'::DOUBLE AS near_zero_count, rounding, gradient_stage, loss_scale"
)

_FOREVER = 1 << 62


def rows_of(tree: StatisticsTree) -> MomentRows:
    """Return the rows of a run's files; they are read at the first refresh."""
    return TrainerMonRows(tree) if tree.layout == "trainermon" else JsonlRows(tree)


# Which records a later one supersedes: of a run that went back to an earlier step, and of writers of another
# world size.
@dataclass(frozen=True)
class Hidden:
    """Rows of some names of a stat within ranges of steps."""

    stat: str
    names: frozenset[str]
    spans: tuple[tuple[int, int], ...]


@dataclass
class Superseded:
    """What of one file does not count any more.

    Attributes
    ----------
    dead : ndarray
        Where the lines of superseded records begin.
    alive : ndarray
        The records that count, as :meth:`CachedFile.records` has them.
    hidden : list of Hidden
        Rows for which another file has newer ones.
    """

    dead: NDArray[np.int64]
    alive: NDArray[np.int64]
    hidden: list[Hidden] = field(default_factory=list)


def supersede(files: Sequence[CachedFile]) -> tuple[list[Superseded], list[str]]:
    """Return what of each file counts, and sentences about what does not.

    A record whose step is not after that of the previous one, of the same stat in the same file, shows that
    the run went back: every older record at or after that step is superseded. Of two files with the same
    names at the same steps the one written to last counts, from its beginning; gaps in it leave the other's
    rows.
    """
    warnings: dict[str, None] = {}
    found = [_within(file, warnings) for file in files]
    for code, stat in enumerate(MOMENT_STATS):
        writers = [at for at, one in enumerate(found) if (one.alive[:, 1] == code).any()]
        # Newest last; of equals the one that began later.
        writers.sort(
            key=lambda at: (files[at].written, int(found[at].alive[found[at].alive[:, 1] == code, 2].min()))
        )
        for number, older in enumerate(writers):
            for newer in writers[number + 1 :]:
                sentence = _between(files[older], found[older], files[newer], found[newer], code, stat)
                if sentence:
                    warnings[sentence] = None
    return found, list(warnings)


def _within(file: CachedFile, warnings: dict[str, None]) -> Superseded:
    records = file.records()
    dead = np.zeros(len(records), bool)
    for code in np.unique(records[:, 1]):
        of_stat = np.flatnonzero(records[:, 1] == code)
        steps = records[of_stat, 2]
        back = np.flatnonzero(steps[1:] <= steps[:-1])
        if not len(back):
            continue
        # A record is superseded if its step is not below the least step of all later ones.
        least = np.minimum.accumulate(steps[::-1])[::-1]
        dead[of_stat[:-1]] = least[1:] <= steps[:-1]
        first = int(back[-1])
        times = "" if len(back) == 1 else f" (the last of {len(back)} times)"
        warnings[
            f"{MOMENT_STATS[int(code)]}: the run went back from step {int(steps[first])} to "
            f"{int(steps[first + 1])}{times}; "
            "older rows at or after that step are superseded."
        ] = None
    return Superseded(records[dead, 0], records[~dead])


def _between(
    older: CachedFile, old: Superseded, newer: CachedFile, new: Superseded, code: int, stat: str
) -> str | None:
    """Hide of ``old`` what ``new`` has, and return the sentence about it."""
    ours = old.alive[old.alive[:, 1] == code]
    theirs = new.alive[new.alive[:, 1] == code]
    least = most = None
    for mine in np.unique(ours[:, 4]):
        mine_names = frozenset(older.layouts[int(mine)])
        steps = ours[ours[:, 4] == mine, 2]
        for other in np.unique(theirs[:, 4]):
            shared = mine_names & frozenset(newer.layouts[int(other)])
            if not shared:
                continue
            spans = _spans(np.unique(theirs[theirs[:, 4] == other, 2]))
            inside = np.zeros(len(steps), bool)
            for low, high in spans:
                inside |= (steps >= low) & (steps <= high)
            if inside.any():
                old.hidden.append(Hidden(stat, shared, spans))
                least = min(int(steps[inside].min()), _FOREVER if least is None else least)
                most = max(int(steps[inside].max()), -_FOREVER if most is None else most)
    if least is None:
        return None
    return (
        f"{stat}: {newer.source.name} was written to after {older.source.name} and has the same tensors, so "
        f"its rows count for steps {least} to {most}. The job was probably restarted with another number of "
        "processes."
    )


def _spans(steps: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Return a writer's ranges: steps without gaps over twice the usual distance, the last one open."""
    if len(steps) < 2:
        return ((int(steps[0]), _FOREVER),)
    far = np.diff(steps)
    breaks = np.flatnonzero(far > 2 * np.median(far))
    firsts = [int(steps[0]), *(int(steps[at + 1]) for at in breaks)]
    lasts = [*(int(steps[at]) for at in breaks), _FOREVER]
    return tuple(zip(firsts, lasts, strict=True))


class JsonlRows:
    """Rows of a run's JSONL files, parsed once and cached; of a growing file new text is read."""

    def __init__(self, tree: StatisticsTree) -> None:
        self._tree = tree
        self._files: dict[str, CachedFile] = {}
        self._counts: list[Superseded] = []
        self._warnings: list[str] = []
        self._stats: list[StatIndex] = []
        self._samples = False
        self._version = ""
        self._unreadable: list[str] = []

    @property
    def version(self) -> str:
        return self._version

    @property
    def samples(self) -> bool:
        return self._samples

    @property
    def warnings(self) -> list[str]:
        return list(self._warnings)

    def refresh(self, progress: Progress | None = None) -> bool:
        """Read what was appended, and return whether there was any.

        Raises ``ClientError``: ``not-found`` where there is no file, ``unreadable`` where none may be read or
        none has raw moments.
        """
        first = not self._version
        closed: list[OSError] = []
        sources = self._tree.files(closed)
        shut = [
            f"{shown_text(Path(error.filename).name, 200)} cannot be looked into: {error.strerror or error}. "
            "Its files are not read."
            for error in closed
        ]
        if shut and not sources:
            raise ClientError(shut[0], code="unreadable")
        if not sources and first:
            raise ClientError(
                f"{shown_text(self._tree.root.name, 200)} holds no .jsonl file of raw moments yet. Expected "
                "files such as grad_raw_moments_by_param/rank0.jsonl in it."
            )
        found = [self._files.get(str(source.path)) or CachedFile(source) for source in sources]
        # What was read of a folder before it was closed stays.
        closed_folders = {Path(error.filename) for error in closed}
        unread = [file for file in self._files.values() if file.source.path.parent in closed_folders]
        files = sorted([*found, *unread], key=lambda file: file.source.order)
        self._files = {str(file.source.path): file for file in files}
        changed, unreadable = bring_up_to_date(found, progress)
        if unreadable and len(unreadable) == len(found):
            raise ClientError(unreadable[0], code="unreadable")
        unreadable = [*shut, *unreadable]
        if not changed and not first and unreadable == self._unreadable:
            return False
        self._unreadable = unreadable
        self._take_stock(files)
        if first:
            self._check(files)
            trim_cache()
        return True

    def stats(self) -> list[StatIndex]:
        return self._stats

    def _relation(self, connection: Any) -> str:
        """Return SQL for the rows, without those that are superseded."""
        complete: list[str] = []
        pieces = []
        for number, (file, counts) in enumerate(zip(self._files.values(), self._counts, strict=True)):
            parts = file.parts()
            if not parts:
                continue
            if not len(counts.dead) and not counts.hidden:
                complete += parts
                continue
            rows = _read(parts)
            if len(counts.dead):
                connection.register(f"dead{number}", pa.table({"line_start": counts.dead}))
                rows = f"SELECT * FROM ({rows}) ANTI JOIN dead{number} USING (line_start)"
            if counts.hidden:
                connection.register(f"hidden{number}", _hidden_table(counts))
                rows = (
                    f"SELECT r.* FROM ({rows}) r ANTI JOIN hidden{number} h "
                    "ON r.stat = h.stat AND r.name = h.name AND r.step >= h.low AND r.step <= h.high"
                )
            pieces.append(rows)
        if complete:
            pieces.append(_read(complete))
        union = " UNION ALL ".join(f"SELECT {_COLUMNS} FROM ({piece})" for piece in pieces)
        return union or f"SELECT {_COLUMNS} FROM ({_EMPTY})"

    def chunks(self, wanted: Wanted) -> Iterator[Chunk]:
        with duck_cursor() as connection:
            try:
                yield from sql_chunks(connection, self._relation(connection), self._stats, wanted)
            except duck_errors() as error:
                raise OSError(f"The cache of these files could not be read: {error}") from error

    def close(self) -> None:
        self._files, self._counts = {}, []

    def _take_stock(self, files: list[CachedFile]) -> None:
        self._counts, superseded = supersede(files)
        self._warnings = [*superseded, *self._unreadable]
        for file in files:
            if file.replaced:
                self._warnings.append(
                    f"{file.source.name} was cut short or replaced while it was open, and was read anew."
                )
        problems = [problem for file in files for problem in file.problems]
        self._warnings += problems[:20]
        left = sum(file.left_out for file in files) - len(problems[:20])
        if left > 0:
            self._warnings.append(f"{left} more lines were left out, in whole or in part.")
        self._stats = [found for code in range(len(MOMENT_STATS)) if (found := self._stat(files, code))]
        unscaled = [
            one.stat
            for one in self._stats
            if one.stat in ("dgrad", "residual_dgrad") and self._unscaled(one.stat)
        ]
        self._warnings += [
            f"{stat}: the loss scale is not recorded, so the values may be multiplied by it; skewness and "
            "kurtosis are not touched by that."
            for stat in unscaled
        ]
        state = hashlib.blake2b("\n".join(self._unreadable).encode(errors="replace"), digest_size=8)
        for file in files:
            state.update(
                f"{file.source.path}\0{file.offset}\0{file.replaced}\0{file.written}\n".encode(
                    errors="replace"
                )
            )
        self._version = state.hexdigest()

    def _stat(self, files: list[CachedFile], code: int) -> StatIndex | None:
        steps, names, rows = [], dict[str, None](), 0
        for file, counts in zip(files, self._counts, strict=True):
            alive = counts.alive[counts.alive[:, 1] == code]
            steps.append(alive[:, 2])
            rows += int(alive[:, 3].sum())
            for layout in np.unique(alive[:, 4]):
                names.update(dict.fromkeys(file.layouts[int(layout)]))
        known = np.unique(np.concatenate(steps)) if steps else np.zeros(0, np.int64)
        if not len(known):
            return None
        self._samples = True
        return StatIndex(MOMENT_STATS[code], rows, int(known[0]), int(known[-1]), len(known), list(names))

    def _unscaled(self, stat: str) -> bool:
        with duck_cursor() as connection:
            found = connection.execute(
                f"SELECT 1 FROM ({self._relation(connection)}) WHERE stat = '{stat}' AND isnan(loss_scale) "
                "LIMIT 1"
            ).fetchall()
        return bool(found)

    def _check(self, files: list[CachedFile]) -> None:
        if self._stats:
            return
        problems = [problem for file in files for problem in file.problems]
        what = f" {problems[0]}" if problems else " They are empty so far."
        if problems or all(file.offset for file in files):
            raise ClientError(
                f"{shown_text(self._tree.root.name, 200)} holds no raw-moment records.{what} Expected lines "
                'such as {"iter": 1, "stat": "grad_raw_moments_by_param", "values": '
                '{"decoder.layers.0.mlp.weight": {"count": 4.0, "sum_1": …}}}.',
                code="unreadable",
            )


_EMPTY = (
    "SELECT 0::BIGINT AS step, 0::BIGINT AS samples, '' AS stat, '' AS name, 0::INTEGER AS rank, 0::DOUBLE "
    "AS count, 0::DOUBLE AS mean, 0::DOUBLE AS m2, "
    "0::DOUBLE AS m3, 0::DOUBLE AS m4, 0::DOUBLE AS unknown, 0::DOUBLE AS rounding, '' AS gradient_stage, "
    "0::DOUBLE AS loss_scale WHERE false"
)


def _read(paths: list[str]) -> str:
    return f"SELECT * FROM read_parquet([{', '.join(map(quoted_path, paths))}])"


def _hidden_table(counts: Superseded) -> pa.Table:
    rows = [
        (hidden.stat, name, low, high)
        for hidden in counts.hidden
        for name in sorted(hidden.names)
        for low, high in hidden.spans
    ]
    stat, name, low, high = zip(*rows, strict=True)
    return pa.table({"stat": stat, "name": name, "low": low, "high": high})
