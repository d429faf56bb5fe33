"""Writing a run as files that other tools read: formats by name, complete folders or none."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ...protocol import parse_json
from ...slices import load, named
from ..errors import ClientError, bad_argument, bad_parameter
from ..query import Query

if TYPE_CHECKING:
    from ...protocol.messages_generated import RunInfo
    from ..answers.selection import StreamRows
    from ..moments import Progress

_HERE = "megalens.runs.exports"
_FORMATS = {
    "parquet": f"{_HERE}.formats:PARQUET",
    "csv": f"{_HERE}.formats:CSV",
    "tensorboard": f"{_HERE}.event_files:TENSORBOARD",
    "safetensors": f"{_HERE}.formats:SAFETENSORS",
}
# Marks the folder of an export, which a later one may replace.
_MANIFEST = "export.json"
# Rows become Python objects in some formats.
_PIECE_ROWS = 20_000
_PIECE_BYTES = 16 * 2**20


class Format(NamedTuple):
    """How files of one kind are written: ``write`` puts files, no folders, into an :class:`Export`'s folder.

    ``streams`` are those that the files can have; any when empty.
    """

    write: Callable[[Export], None]
    streams: tuple[str, ...] = ()


class Export:
    """What is to be written.

    Attributes
    ----------
    run : str
        Id of the run.
    started : float
        When it began, seconds since the epoch.
    folder : Path
        Where files go; it is moved to its target when all are written.
    streams : mapping
        Rows by stream, of those that were chosen and have any.
    read : Counter
        How many rows of each stream were taken.
    """

    def __init__(
        self, run: RunInfo, folder: Path, streams: Mapping[str, OrderedRows], tell: Progress
    ) -> None:
        self.run, self.started = run["id"], run["started"]
        self.folder, self.streams, self._tell = folder, streams, tell
        self.read: Counter[str] = Counter()
        self._total = sum(each.count for each in streams.values())

    def schema(self, stream: str) -> pa.Schema:
        return self.streams[stream].schema

    def batches(self, stream: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stream by step, a piece at a time; none of one that was not chosen."""
        for batch in self.streams[stream].batches() if stream in self.streams else ():
            for at in range(0, batch.num_rows, _PIECE_ROWS):
                piece = batch.slice(at, _PIECE_ROWS)
                yield piece
                self.read[stream] += piece.num_rows
                self._tell(self.read.total(), self._total, stream)


def export_run(
    run: RunInfo,
    rows: StreamRows,
    to: str,
    path: str | os.PathLike[str] | None = None,
    streams: str | Iterable[str] | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write a run as files of other tools; see :meth:`megalens.runs.run.Run.export`.

    ``progress`` is called with (rows done, rows in all, the stream) and may raise to cancel; a line of text
    when absent.
    """
    formats = {**_FORMATS, **named("exports")}
    if to not in formats:
        raise bad_argument("to", f"one of {', '.join(formats)}", to)
    form: Format = load(formats[to])
    target = Path(f"{run['id']}-{to}" if path is None else path).expanduser().resolve()
    _check_free(target, force)
    found = _found(rows, to, form, streams)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    from ..moments import ProgressBar

    try:
        partial.mkdir(parents=True)
        with closing(ProgressBar("rows")) if progress is None else nullcontext(progress) as tell:
            export = Export(run, partial, found, tell)
            form.write(export)
        _put(partial, target, run["id"], to, export.read)
    except OSError as error:
        raise ClientError(
            f"{target} cannot be written: {error.strerror or error}.", code="unwritable", field="path"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return dict(export.read)


def _found(
    rows: StreamRows, to: str, form: Format, streams: str | Iterable[str] | None
) -> dict[str, OrderedRows]:
    able = [name for name in rows.streams if not form.streams or name in form.streams]
    chosen = able if streams is None else [streams] if isinstance(streams, str) else [*streams]
    for name in chosen:
        if name not in able:
            raise bad_argument("streams", f"any of {', '.join(able)} with {to}", name)
    looked = {name: _ordered_rows(rows, name) for name in chosen}
    found = {name: each for name, each in looked.items() if each.count}
    if not found:
        raise ClientError(
            f"The run has no rows of {', '.join(chosen) or 'such streams'}, so there is nothing to export "
            f"to {to}.",
            field="streams",
        )
    return found


def _check_free(target: Path, force: bool) -> None:
    """Raise where the target exists, or with ``force`` where it is anything but an earlier export."""
    if not target.exists() or (target.is_dir() and not os.listdir(target)):
        return
    if not force:
        why = "is there already. Give another folder, or replace it with force=True (--force)"
    elif {*_written(target), _MANIFEST} == ({*os.listdir(target)} if target.is_dir() else None):
        return
    else:
        why = "holds more than an export wrote, so it is not replaced. Give another folder"
    raise bad_parameter(f"{target} {why}.", "path")


def _written(folder: Path) -> list[str]:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return [str(name) for name in parse_json((folder / _MANIFEST).read_bytes())["files"]]
    return []


def _put(partial: Path, target: Path, run: str, to: str, rows: Mapping[str, int]) -> None:
    """Write what was exported into the folder, and replace the target with it."""
    manifest = {"run": run, "to": to, "rows": dict(rows), "files": sorted(os.listdir(partial))}
    (partial / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    old = partial.with_name(f"{partial.name}.old")
    if target.exists():
        target.rename(old)
    try:
        partial.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


@dataclass(frozen=True)
class OrderedRows:
    """The rows of one stream; ``ordered`` where stored by step, which late ranks prevent."""

    rows: StreamRows
    stream: str
    count: int
    ordered: bool

    @property
    def schema(self) -> pa.Schema:
        return self.rows.streams.named(self.stream).schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield them by step, those of one step in the order in which they came."""
        if self.ordered:
            yield from self.rows.batches(self.stream)
            return
        for first, last in self._pieces():
            batches = self.rows.batches(self.stream, Query(first=first, last=last))
            table = pa.Table.from_batches(batches, self.schema)
            yield from table.take(np.argsort(table["step"].to_numpy(), kind="stable")).to_batches()

    def several(self, column: str) -> bool:
        found: set[object] = set()
        for batch in self.rows.batches(self.stream, None, [column]):
            found.update(batch[column].unique().to_pylist())
            if len(found) > 1:
                return True
        return False

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of steps whose rows fit into a piece, as far as complete steps do."""
        sizes: Counter[int] = Counter()
        for batch in self.rows.batches(self.stream):
            steps, counts = np.unique(batch["step"].to_numpy(), return_counts=True)
            for step, count in zip(steps.tolist(), counts.tolist(), strict=True):
                sizes[step] += count * batch.nbytes // batch.num_rows
        first, size = None, 0
        last = 0
        for step in sorted(sizes):
            if first is not None and size + sizes[step] > _PIECE_BYTES:
                yield first, last
                first, size = None, 0
            first, last = step if first is None else first, step
            size += sizes[step]
        if first is not None:
            yield first, last


def _ordered_rows(rows: StreamRows, stream: str) -> OrderedRows:
    """Count the rows of a stream, and find whether they are stored by step."""
    count, newest, ordered = 0, -1, True
    for batch in rows.batches(stream, None, ["step"]):
        steps = batch["step"].to_numpy()
        count += len(steps)
        ordered = ordered and bool(steps[0] >= newest and (steps[1:] >= steps[:-1]).all())
        newest = int(steps[-1])
    return OrderedRows(rows, stream, count, ordered)
