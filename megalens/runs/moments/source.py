"""The moments of one run: an index, rows, and merged groups; the twin of the browser's ``IMomentSource``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol import (
    MOMENT_STATISTICS,
    MOMENT_STATS,
    in_ranges,
    read_moments,
    read_steps,
    stream_schema,
)
from ..errors import ClientError, chosen_ranges, no_memory
from ..recorded_arrow import DAMAGE
from .grouping.answer import MomentGroups, answer_groups, until_stopped
from .grouping.cells import CellKeys
from .grouping.name_filter import NameFilter, Where
from .grouping.query import MomentQuery, check_stat
from .grouping.series import MERGED
from .rows.pieces import STAGE, STAGES, Chunk, Listed, Piece, Progress, Wanted, complete_steps, different

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..dask_engine import DaskEngine
    from ..query import StepChoice

_CODES = pa.dictionary(pa.int32(), pa.utf8())
ROWS_SCHEMA = pa.schema(
    pa.field("name_id", pa.int32())
    if field.name == "name"
    else pa.field(field.name, _CODES if pa.types.is_string(field.type) else field.type)
    for field in stream_schema("moments")
)
"""Rows of an answer: the stream's columns, texts as dictionaries, and the number of the name."""
_COLUMNS = tuple(name for name in ROWS_SCHEMA.names if name not in ("step", "name_id", "stat"))

FRAME_COLUMNS = (*MOMENT_STATISTICS, "variance_error", "kurtosis_error", "samples", "scaled", STAGE)
"""Columns behind the groups' own: statistics, extremes, the rounding errors of variance (relative) and
kurtosis (absolute), samples consumed (-1: unknown), whether an unknown loss scale may be in the values, and
the stage of gradients.
"""


class MomentRows:
    """A source of rows that lie in pieces and may grow."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        """Sentences about what is superseded, left out or unreadable."""
        self._changes = 0
        self._stats: dict[str, Listed] | None = {}

    def refresh(self, progress: Progress | None = None) -> bool:
        """Look for new rows, and return whether there were any."""
        raise NotImplementedError

    def pieces(self) -> list[Piece]:
        """Return all rows, as they were found by the last refresh."""
        raise NotImplementedError

    def close(self) -> None:
        """Close files. Safe twice."""
        raise NotImplementedError

    @property
    def version(self) -> str:
        """Changes whenever there are more rows."""
        return str(self._changes)

    @property
    def samples(self) -> bool:
        """Whether a number of samples is known with each step."""
        return any(piece.samples for piece in self.pieces())

    def stats(self) -> dict[str, Listed]:
        """Return what there is by stat, names sorted; computed once for each version."""
        if self._stats is None:
            self._stats = _found_stats(self.pieces())
        return self._stats

    def chunks(self, wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of complete steps, in the order of their steps."""
        return complete_steps(self.pieces(), wanted)

    def _changed(self) -> None:
        self._changes += 1
        self._stats = None


def _found_stats(pieces: Sequence[Piece]) -> dict[str, Listed]:
    """Return what there is in all pieces, in the order of :data:`MOMENT_STATS`."""
    found: dict[str, Listed] = {}
    for stat in MOMENT_STATS:
        here = [piece.listed[stat] for piece in pieces if stat in piece.listed]
        if here:
            steps = different(np.concatenate([one.steps for one in here]))
            # Pieces that have the same names have one tuple of them.
            names = {name for one in {id(one.names): one.names for one in here}.values() for name in one}
            found[stat] = Listed(sum(one.rows for one in here), steps, tuple(sorted(names)))
    return found


class StatEntry(TypedDict):
    """What there is of one stat; ``steps`` is their number."""

    stat: str
    rows: int
    first: int
    last: int
    steps: int


class MomentIndex(TypedDict):
    """The answer of the endpoint ``moments``."""

    version: str
    stats: list[StatEntry]
    names: list[str]
    samples: bool
    warnings: list[str]


class MomentSource:
    """What can be asked of a run's moments. Any thread may ask; one question at a time is answered, on the
    engine where there is one.
    """

    def __init__(self, rows: MomentRows, engine: DaskEngine | None = None) -> None:
        self._rows, self._engine = rows, engine
        self.tasks = (0, 0)
        """How many tasks of how many the engine has done of the question that is being answered."""
        # Each name's number: none is ever removed, so that they stay valid.
        self._names: dict[str, int] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._closed = False

    @property
    def version(self) -> str:
        return self._rows.version

    @property
    def engine(self) -> DaskEngine | None:
        return self._engine

    @property
    def warnings(self) -> list[str]:
        return self._rows.warnings

    def refresh(self, progress: Progress | None = None) -> bool:
        """Read what was appended since, and return whether there was any.

        ``progress`` is called with (done, total, what is being done) and may raise to cancel.
        """
        with self._lock:
            return self._rows.refresh(progress)

    def index(self) -> MomentIndex:
        with self._lock:
            stats = self._stats()
            return {
                "version": self.version,
                "stats": [
                    {
                        "stat": stat,
                        "rows": one.rows,
                        "first": int(one.steps[0]),
                        "last": int(one.steps[-1]),
                        "steps": len(one.steps),
                    }
                    for stat, one in stats.items()
                ],
                "names": list(self._names),
                "samples": self._rows.samples,
                "warnings": list(self._rows.warnings),
            }

    def names(self, stat: str) -> list[str]:
        """Return the names of the tensors that have a stat."""
        with self._lock:
            found = self._stats().get(stat)
            return [] if found is None else list(found.names)

    def rows(
        self,
        stats: Sequence[str],
        where: Where = None,
        steps: Sequence[int | None] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return rows, ordered by step, in the columns of :data:`ROWS_SCHEMA`; ``name_id`` is an index into
        ``names``.

        Raises ``ClientError`` (``too-large``) where more than ``limit`` rows match, saying how many.
        """
        found, stats = NameFilter(where), [check_stat(stat) for stat in stats]
        first, last = steps or (None, None)
        with self._lock, self._answering():
            known = self._stats()
            if found.all_names and not found.rows and steps is None:
                # Whoever opens a large run asks for everything first: it is known how much that is.
                _check_count(sum(known[stat].rows for stat in stats if stat in known), limit)
            names: dict[str, list[str]] = {}
            for stat in (stat for stat in stats if stat in known):
                of = known[stat].names
                names[stat] = [name for name, keep in zip(of, found.keep(of), strict=True) if keep]
            wanted = Wanted(names, _COLUMNS, found.rows, first, last)
            chunks, count = list[Chunk](), 0
            for chunk in until_stopped(self._rows.chunks(wanted), self._stop):
                count += len(chunk["step"])
                if limit is None or count <= limit:
                    chunks.append(chunk)
                else:
                    chunks.clear()
            _check_count(count, limit)
            return self._table(chunks, names)

    def _table(self, chunks: Sequence[Chunk], names: Mapping[str, Sequence[str]]) -> pa.Table:
        ids = np.array([self._names[name] for of in names.values() for name in of], np.int32)
        stat = np.repeat(np.arange(len(names), dtype=np.int32), [len(of) for of in names.values()])
        texts = {"stat": list(names), STAGE: list(STAGES)}
        columns = []
        for field in ROWS_SCHEMA:
            pieces = [
                ids[chunk["name_index"]]
                if field.name == "name_id"
                else stat[chunk["name_index"]]
                if field.name == "stat"
                else chunk[field.name].astype(np.int32)
                if field.name == STAGE
                else chunk[field.name]
                for chunk in chunks
            ]
            arrays = [pa.array(piece) for piece in pieces]
            if field.name in texts:
                known = pa.array(texts[field.name], pa.utf8())
                arrays = [pa.DictionaryArray.from_arrays(array, known) for array in arrays]
            columns.append(pa.chunked_array(arrays, field.type))
        return pa.Table.from_arrays(columns, schema=ROWS_SCHEMA)

    def groups(self, query: MomentQuery) -> MomentGroups:
        """Return merged groups; raises ``mixed`` when inputs and outputs of modules would be in one."""
        with self._lock, self._answering():
            return answer_groups(self._chunks, self._stats(), query, self._stop)

    def _chunks(self, wanted: Wanted, keys: CellKeys, stop: threading.Event) -> Iterator[Chunk]:
        if self._engine is None:
            return self._rows.chunks(wanted)
        from ..dask_engine import QuestionTasks
        from .grouping.planned import planned_chunks

        tasks = QuestionTasks(self._engine, self._tell)
        return planned_chunks(tasks, self._rows.pieces(), wanted, keys, stop)

    def _tell(self, done: int, of: int) -> None:
        self.tasks = (done, of)

    def interrupt(self) -> None:
        """End the question that is being answered, if any: it raises ``cancelled``. Does not wait."""
        self._stop.set()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._rows.close()

    def _stats(self) -> dict[str, Listed]:
        found = self._rows.stats()
        for one in found.values():
            for name in one.names:
                self._names.setdefault(name, len(self._names))
        return found

    @contextmanager
    def _answering(self) -> Iterator[None]:
        if self._closed:
            raise ClientError("This run was closed. Open it again.", code="closed")
        self._stop.clear()
        self.tasks = (0, 0)
        try:
            yield
        except MemoryError as error:
            raise no_memory("What you ask of these statistics") from error
        except DAMAGE as error:
            raise _changed() from error


def _changed() -> ClientError:
    return ClientError(
        "The files of these statistics could not be read: they changed or went while they were read. Ask "
        "again.",
        code="unreadable",
    )


def _check_count(count: int, limit: int | None) -> None:
    if limit is not None and count > limit:
        raise ClientError(
            f"{count} rows match, and at most {limit} were asked for. Ask for groups, fewer tensors or "
            "fewer steps.",
            code="too-large",
            field="limit_rows",
        )


def moment_frame(
    source: MomentSource,
    stat: str | Sequence[str],
    by: Any,
    steps: StepChoice,
    where: Where,
    mixed: bool,
    *,
    live: bool = False,
) -> DataFrame:
    """Return one row for each stat, step and group, in that order.

    Raises ``ClientError``: ``bad-parameter`` naming the argument, ``mixed``, or ``not-found`` when a run that
    gets no more rows has nothing of that stat.
    """
    chosen = chosen_ranges(steps, "steps", read_steps)
    span = None if chosen is None else (chosen[0][0], chosen[-1][1]) if chosen else (0, -1)
    if isinstance(by, str) or callable(by) or not hasattr(by, "__iter__"):
        by = [by]
    stats = [check_stat(one) for one in ([stat] if isinstance(stat, str) else stat)]
    queries = [MomentQuery.of_request(one, "mean", list(by), None, where, span, mixed=mixed) for one in stats]
    if not live:
        check_present(source, stats)
    frames = [group_frame(one, source.groups(query)) for one, query in zip(stats, queries, strict=True)]
    import pandas as pd

    joined: DataFrame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    if chosen is None or len(chosen) < 2:
        return joined
    # The steps between those that were asked for are grouped too, and left out here.
    inside = joined["step"].map(lambda step: in_ranges(step, chosen))
    return joined[inside].reset_index(drop=True)


def check_present(source: MomentSource, stats: Sequence[str]) -> None:
    present = [one for one in MOMENT_STATS if source.names(one)]
    absent = [one for one in stats if one not in present]
    if absent:
        what = (
            f"It has {', '.join(present)}."
            if present
            else "It has no statistics at all; see megalens.log_statistics."
        )
        raise ClientError(
            f"This run has no statistics of {absent[0]}. {what}", code="not-found", field="stat"
        )


def group_frame(stat: str, groups: MomentGroups, **more: NDArray[Any]) -> DataFrame:
    """Return one row for each step and group; ``more`` are further columns."""
    import pandas as pd

    table = groups.table
    merged = {name: table[name].to_numpy() for name in MERGED}
    read = read_moments(merged)
    keys = table.column_names[: table.column_names.index("step")]
    columns: dict[str, Any] = {"step": table["step"].to_numpy()}
    for name in keys:
        column = table[name].to_pandas()
        if table[name].null_count and pd.api.types.is_numeric_dtype(column):
            # Not float: a layer stays an integer next to missing ones.
            column = pd.Series(pd.array(table[name].to_pylist(), dtype="Int64"))
        columns[name] = column
    columns |= {name: read[name] if name in read else _plain(table[name]) for name in FRAME_COLUMNS}
    columns |= more
    frame: DataFrame = pd.DataFrame(columns).sort_values("step", kind="stable", ignore_index=True)
    frame.insert(0, "stat", stat)
    return frame


def _plain(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.utf8())
    plain: NDArray[Any] = column.to_numpy()
    return plain


def load_libraries() -> None:
    """Import what the first question would: a quarter of a second in advance."""
    # pyarrow imports pandas at the first conversion of values.
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
