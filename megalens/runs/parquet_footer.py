"""What the footer of a Parquet file says, read without Arrow: a bent one ends the process that asks Arrow for a column of a row group."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, NamedTuple

from .compact_thrift import BINARY, I32, I64, ThriftReader

__all__ = ["ParquetChunk", "ParquetFooter", "ParquetGroup", "read_footer"]

_MAGIC = b"PAR1"
_MOST_FOOTER = 64 * 1024 * 1024
_MOST_LISTED = 500_000
# With the groups and lists that columns are in; a stream has at most 64.
_MOST_COLUMNS = 512
_INT64 = 2


class ParquetChunk(NamedTuple):
    """A column of a row group.

    Attributes
    ----------
    begin : int
        Where its pages begin in the file.
    stored, unfolded : int
        Bytes of its pages, in the file and as its footer says in memory.
    low, high : int or None
        Least and largest value of whole numbers, where they are known.
    nulls : int or None
        How many values are missing, where it is known.
    """

    begin: int
    stored: int
    unfolded: int
    low: int | None
    high: int | None
    nulls: int | None


class ParquetGroup(NamedTuple):
    """A row group: its rows and its columns, in the order of the schema's leaves."""

    rows: int
    chunks: tuple[ParquetChunk, ...]


class ParquetFooter(NamedTuple):
    """A whole footer: the rows that it says the file has, and its row groups."""

    rows: int
    groups: tuple[ParquetGroup, ...]


def _group(said: dict[int, Any]) -> ParquetGroup:
    return ParquetGroup(said.get(3, -1), tuple(said.get(1, ())))


def _chunk(said: dict[int, Any]) -> ParquetChunk:
    column = said.get(3)
    if column is None or said.get(1) or not {7, 6, 9} <= column.keys():
        raise ValueError("its columns must lie within it")
    begin, dictionary = column[9], column.get(11, 0)
    figures = column.get(12, {})
    whole = column.get(1) == _INT64
    return ParquetChunk(
        dictionary if 0 < dictionary < begin else begin,
        column[7],
        column[6],
        _whole(figures.get(6)) if whole else None,
        _whole(figures.get(5)) if whole else None,
        figures.get(3),
    )


def _whole(value: bytes | None) -> int | None:
    return int.from_bytes(value, "little", signed=True) if value is not None and len(value) == 8 else None


# Numbers of fields as in Parquet's own `parquet.thrift`: those that are read, and all lists, whose elements readers take as what they should be.
_STATISTICS = {3: I64, 5: BINARY, 6: BINARY}
_SIZES = {2: [I64], 3: [I64]}
_COLUMN = {
    **{1: I32, 2: [I32], 3: [BINARY], 6: I64, 7: I64, 8: [{}], 9: I64, 11: I64},
    **{12: _STATISTICS, 13: [{}], 16: _SIZES, 17: {2: [I32]}},
}
_GROUP = {1: [{1: BINARY, 3: _COLUMN, 8: {2: {1: [BINARY]}}}, _chunk], 3: I64, 4: [{}]}
_SCHEMA_ELEMENT = {1: I32, 3: I32, 4: BINARY, 5: I32}
_FOOTER = {1: I32, 2: [_SCHEMA_ELEMENT], 3: I64, 4: [_GROUP, _group], 5: [{}], 7: [{}]}


def read_footer(file: BinaryIO) -> ParquetFooter:
    """Read the footer of a file and refuse one that would take much more memory than it is long.

    Raises
    ------
    ValueError
        When it is no footer, or one with too many columns.
    """
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or length + 12 > size:
        raise ValueError("it has no Parquet footer; it may have been cut short")
    if length > _MOST_FOOTER:
        raise ValueError(f"its footer must be at most {_MOST_FOOTER:,} bytes long, got {length:,}")
    file.seek(size - 8 - length)
    said = ThriftReader(file.read(length), _MOST_LISTED).struct(_FOOTER)
    elements = said.get(2, [])
    if len(elements) > _MOST_COLUMNS:
        raise ValueError(f"it must have at most {_MOST_COLUMNS} columns, got {len(elements):,}")
    groups = tuple(said.get(4, ()))
    leaves = sum(not element.get(5) for element in elements)
    if any(len(group.chunks) != leaves for group in groups):
        raise ValueError(f"its row groups must have {leaves} columns")
    return ParquetFooter(said.get(3, -1), groups)
