"""The stream ``moments`` of a run folder: packed to Parquet, or still growing as an Arrow stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....protocol import STREAMS, MomentIndex, StatIndex, stream_schema
from ...errors import ClientError
from ...recorded_parquet import DAMAGE, opened_parquet
from .duck import duck_cursor, duck_errors, quoted_path, sql_chunks, stats_of
from .growing_rows import GrowingRows
from .moment_rows import Chunk, Progress, Wanted
from .packed_chunks import PackedChunks

__all__ = ["RecordedRows"]

_STREAM = "moments"
# A recorder's own groups are smaller, and other programs' have rows that take their place on disk.
_GROUP_ROWS = 4_000_000
_LEAST_PACKED_BYTES = 8


class RecordedRows:
    """Rows of a run folder. Of a file that grows only what was appended is read again.

    Parameters
    ----------
    folder : Path
        The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._packed: tuple[int, int] | None = None
        self._stats: list[StatIndex] = []
        self._samples = False
        self._checked = False
        growing = folder / f"{_STREAM}.arrows"
        self._growing = GrowingRows(
            growing, lambda: _unreadable(growing, "Its columns are not those of the stream moments.")
        )

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        if self._packed is not None:
            return f"p{self._packed[0]:x}-{self._packed[1]:x}"
        return f"a{self._growing.version}"

    @property
    def samples(self) -> bool:
        """Whether steps are known as samples too."""
        return self._samples if self._packed is not None else self._growing.samples

    @property
    def warnings(self) -> list[str]:
        """What is cut short."""
        return (
            ["The moments stream ends within a message; it is read up to its last whole one."]
            if self._packed is None and self._growing.cut
            else []
        )

    def refresh(self, progress: Progress | None = None) -> bool:
        """Look for what is new, and say whether there was any."""
        packed = self._folder / f"{_STREAM}.parquet"
        if packed.is_file() and not packed.is_symlink():
            return self._refresh_packed(packed)
        return self._growing.refresh(progress)

    def stats(self) -> list[StatIndex]:
        """Return what there is."""
        return self._stats if self._packed is not None else self._growing.stats()

    def relation(self, connection: Any, first: int | None = None) -> str:
        """Return SQL for the rows; where a step is said, for those from it on and others."""
        return self._growing.relation(connection, first) if self._packed is None else self._packed_relation()

    def chunks(self, connect: Callable[[], Any], wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps."""
        if self._packed is None:
            return self._growing.chunks(wanted)
        packed = PackedChunks(self._folder / f"{_STREAM}.parquet")
        if packed.ordered:
            return packed.read(wanted)
        connection = connect()
        return sql_chunks(connection, self.relation(connection), self._stats, wanted)

    def select(self, *asked: Any) -> tuple[pa.Table, int] | None:
        """Return rows as :meth:`GrowingRows.select` does; None where the recording is packed, and is asked by SQL."""
        return self._growing.select(*asked) if self._packed is None else None

    def close(self) -> None:
        """Let go of the file. Safe twice."""
        self._growing.close()

    def _packed_relation(self) -> str:
        path = self._folder / f"{_STREAM}.parquet"
        if not self._checked:
            try:
                with opened_parquet(path) as file:
                    for at in range(len(file.groups)):
                        file.check_group(at, stream_schema(_STREAM).names)
            except DAMAGE as error:
                raise _unreadable(path, str(error)) from error
            self._checked = True
        # A stage is a word. One of a MiB in every row would be so many MiB as soon as rows are sorted.
        stage = "left(gradient_stage, 40) AS gradient_stage"
        return f"SELECT * REPLACE ({stage}) FROM read_parquet({quoted_path(path)})"

    def _refresh_packed(self, path: Path) -> bool:
        found = path.stat()
        identity = (found.st_mtime_ns, found.st_size)
        if identity == self._packed:
            return False
        self._checked = False
        try:
            with opened_parquet(path) as file:
                metadata = file.metadata
                _check_schema(path, file.schema)
                if any(
                    group.rows > max(_GROUP_ROWS, file.size // _LEAST_PACKED_BYTES) for group in file.groups
                ):
                    raise _unreadable(path, "It must have row groups of fewer rows.")
            known = MomentIndex.read(metadata.metadata)
            if known is None or sum(one.rows for one in known[0]) != metadata.num_rows:
                # Packed by another program, or the index is of other rows.
                with duck_cursor() as connection:
                    known = stats_of(connection, self._packed_relation())
        except (*DAMAGE, *duck_errors()) as error:
            raise _unreadable(path, str(error)) from error
        self._packed = identity
        self._stats, self._samples = known
        self._growing.close()
        return True


def _check_schema(path: Path, schema: pa.Schema) -> None:
    """Refuse columns that are missing, and ones of text where numbers are wanted."""
    missing = STREAMS[_STREAM].lacking(schema.names)
    if missing:
        raise _unreadable(path, f"It lacks the columns {', '.join(missing)}.")
    for field in stream_schema(_STREAM):
        found = schema.field(field.name).type
        found = found.value_type if pa.types.is_dictionary(found) else found
        fits = (
            _is_text(found)
            if _is_text(field.type)
            else pa.types.is_integer(found) or pa.types.is_floating(found)
        )
        if not fits:
            raise _unreadable(path, f"Its column {field.name} must be {field.type}, got {found!s:.100}.")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unreadable(path: Path, why: str) -> ClientError:
    said = why.replace(str(path.parent), "…")[:300]
    return ClientError(f"Could not read {path.name}. {said}", code="unreadable")
