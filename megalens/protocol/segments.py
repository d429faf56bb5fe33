"""Which files hold the rows of a recorded stream: sealed Parquet segments, and newer Arrow tails."""

from __future__ import annotations

import os
import re
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from .streams import STREAMS

__all__ = [
    "BLOCKS",
    "PARTIAL",
    "SEALED",
    "TAIL",
    "Segment",
    "file_name",
    "is_stream_file",
    "layers_path",
    "layers_schemas",
    "segment_name",
    "segment_stamp",
    "stream_segments",
]

SEALED, TAIL, PARTIAL = ".parquet", ".arrows", ".partial"
BLOCKS = tuple(4**power for power in range(3, 20))
"""Steps of the blocks of which summaries have the extremes."""
_LAYERS, _STAMP_BYTES = ".layers", 1 << 13
_SELDOM = ("m3", "m4", "min", "max")
_NAME = re.compile(r"(?P<number>[0-9]{6,9})-step-(?P<first>[0-9]{1,16})(?P<suffix>\.parquet|\.arrows)")


class Segment(NamedTuple):
    """One file of a stream.

    Attributes
    ----------
    number : int
        From 0: rows of a later segment were recorded later. -1 for the one file of streams without segments.
    first_step : int
        The step of the first row that was recorded in it. Rows of other ranks may be of an earlier one.
    """

    number: int
    first_step: int
    path: Path

    @property
    def sealed(self) -> bool:
        """Whether it is a Parquet file, which never changes again; else an Arrow stream, which may grow."""
        return self.path.suffix == SEALED


def segment_name(number: int, first_step: int, suffix: str) -> str:
    """Return the name of a segment: ``000003-step-1200.parquet``. ``suffix``: ``.parquet`` or ``.arrows``."""
    return f"{number:06d}-step-{max(0, first_step)}{suffix}"


def layers_path(segment: Path) -> Path:
    """Return where the summary of a segment of ``moments`` is, which other readers of Parquet pass over."""
    return segment.with_name(f"_{segment.stem}{_LAYERS}")


@cache
def layers_schemas() -> tuple[pa.Schema, pa.Schema]:
    """Return the columns of such a summary: those that nearly every question reads, and the others."""
    fields = [
        field.with_type(pa.int32()) if pa.types.is_string(field.type) else field
        for field in STREAMS["moments"].schema
        if field.name not in ("stat", "rank")
    ]
    seldom = [field for field in fields if field.name in _SELDOM]
    return pa.schema([field for field in fields if field not in seldom]), pa.schema(seldom)


def segment_stamp(file: BinaryIO) -> list[int]:
    """Return by what a summary knows its segment: bytes, and the checksum of the last 8 KiB."""
    size = os.fstat(file.fileno()).st_size
    begin = max(0, size - _STAMP_BYTES)
    return [size, zlib.crc32(os.pread(file.fileno(), _STAMP_BYTES, begin))]


def is_stream_file(name: str) -> bool:
    """Return whether a name is that of a segment, its summary, a tail, or half a segment."""
    if name.startswith("_") and name.endswith(_LAYERS):
        name = name[1:].removesuffix(_LAYERS) + SEALED
    return _NAME.fullmatch(name.removesuffix(PARTIAL)) is not None


def file_name(path: Path) -> str:
    """Return what a person calls a file: ``moments/000003-step-1200.parquet``, or ``moments.parquet``."""
    return f"{path.parent.name}/{path.name}" if is_stream_file(path.name) else path.name


def stream_segments(folder: Path, stream: str) -> list[Segment]:
    """Return the files of a stream in a run folder, in the order in which they were recorded.

    A tail counts only while no sealed segment has its number: sealing writes a Parquet file under another
    name, renames it, and then removes the tail, so that every row is in one of both at every moment. Links
    are not followed, since they could lead out of the run folders.

    Raises
    ------
    OSError
        When the folder cannot be listed.
    """
    found, before = _listed(folder, stream), None
    # A folder is listed in parts: a tail that is sealed meanwhile may be in none of them under either name.
    # Once it is sealed it is found.
    while found != before:
        found, before = _listed(folder, stream), found
    return [found[number] for number in sorted(found)]


def _listed(folder: Path, stream: str) -> dict[int, Segment]:
    found: dict[int, Segment] = {}
    # Recordings from before there were segments have one file for each stream.
    for suffix in (TAIL, SEALED):
        path = folder / f"{stream}{suffix}"
        if path.is_file() and not path.is_symlink():
            found[-1] = Segment(-1, 0, path)
    home = folder / stream
    if home.is_symlink():
        return found
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(home) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            match = _NAME.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            number = int(match["number"])
            if number not in found or match["suffix"] == SEALED:
                found[number] = Segment(number, int(match["first"]), Path(entry.path))
    return found
