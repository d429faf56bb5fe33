"""Where a recorded stream ends, found without reading its rows: by the heads of an Arrow file's messages, by the footer of a Parquet file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from .arrows_map import ArrowsMap, CompressedRows
from .recorded_parquet import opened_parquet

__all__ = ["StreamEnd", "arrows_end", "parquet_end"]


@dataclass(frozen=True)
class StreamEnd:
    """How far a stream goes.

    Attributes
    ----------
    cut : bool
        Whether the file ends within a message.
    last_step : int
        Newest step that is recorded; 0 where there is none.
    """

    cut: bool = False
    last_step: int = 0


def arrows_end(path: Path, messages: ArrowsMap | None = None) -> StreamEnd | None:
    """Find the end of an Arrow stream file, whose first column is ``step``; None where the rows have to be read, since they are compressed.

    Of each message its head is read, and of a record batch its steps. The last one is read whole, since it is what a crash of the
    machine may have left half written at its full length.

    Parameters
    ----------
    path : Path
        The file.
    messages : ArrowsMap, optional
        What is known of it.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    try:
        cut, found = (messages or ArrowsMap(path)).end()
    except CompressedRows:
        return None
    if len(found) and not cut and not _is_valid(path, int(found[-1, 0])):
        cut, found = True, found[:-1]
    return StreamEnd(cut, max(0, int(found[:, 3].max(initial=0))))


def parquet_end(path: Path) -> StreamEnd:
    """Look into the footer of a Parquet file; one that was cut short has none.

    Raises
    ------
    pyarrow.ArrowException, OSError, ValueError, ClientError
        When the file cannot be read.
    """
    newest = 0
    with opened_parquet(path) as file:
        for number, group in enumerate(file.groups):
            high = file.chunk("step", number).high
            if high is not None:
                newest = max(newest, high)
            elif group.rows:
                steps = [pc.max(steps).as_py() for steps in file.column("step", number)]
                newest = max([newest, *(step for step in steps if step is not None)])
    return StreamEnd(last_step=newest)


def _is_valid(path: Path, start: int) -> bool:
    """Return whether Arrow takes the record batch at a place, with all that is in it."""
    with pa.OSFile(str(path), "rb") as file:
        try:
            schema = pa.ipc.open_stream(file).schema
            file.seek(start)
            pa.ipc.read_record_batch(pa.ipc.read_message(file), schema).validate(full=True)
        except (pa.ArrowException, ValueError):
            return False
    return True
