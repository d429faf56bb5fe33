"""The footer of a Parquet file, read without Arrow, which ends the process over a damaged one."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, NamedTuple

_MAGIC = b"PAR1"
_MOST_FOOTER = 64 * 1024 * 1024
_MOST_LISTED = 500_000
# With the groups and lists that columns are in; a stream has at most 64.
_MOST_COLUMNS = 512
_INT32, _INT64 = 1, 2

I32, I64, BINARY = 5, 6, 8
_BOOLS, _NUMBERS, _LISTS, _STRUCT = (1, 2), (4, 5, 6), (9, 10), 12
_BYTE, _DOUBLE = 3, 7
_BITS = {4: 16, I32: 32, I64: 64}
_MOST_DEPTH = 16


# Structs in Thrift's compact protocol, in which Parquet's headers are written.
class CutShort(ValueError):
    """The data ended within a struct."""


class ThriftReader:
    """Reads structs by their layout: ``{number of a field: its type}``.

    A type is ``I32``, ``I64`` or ``BINARY``, a struct (its layout), or a list of one of these (a list of the
    type, and optionally a function for each struct, where so much need not be stored). Other fields are
    passed over. Where readers differ, such as about a field that is there twice or is a list of something
    else, the struct is refused, so that what was checked here is what Arrow and DuckDB read. ``most`` bounds
    the structs in lists.
    """

    def __init__(self, data: bytes, most: int = 1000) -> None:
        self._data = data
        self._left = most
        self.at = 0

    def struct(self, layout: Any, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct that its layout names: numbers, bytes, structs, lists of structs;
        else list lengths.

        Raises ``CutShort`` when the data ends first, ``ValueError`` when it is no such struct.
        """
        if depth > _MOST_DEPTH:
            raise ValueError("its headers must nest less deeply")
        found: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._signed(16)
            wanted = layout.get(number)
            if wanted is None:
                self._value(kind, {}, depth)
                continue
            if number in found or kind != _kind_of(wanted):
                raise ValueError("its headers must be Parquet's")
            found[number] = self._value(kind, wanted, depth)

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._signed(_BITS[kind])
        if kind == BINARY:
            return self._skip(self._unsigned())
        if kind == _STRUCT:
            return self.struct(wanted, depth + 1)
        if kind in _LISTS:
            return self._list(wanted, depth)
        if kind in _BOOLS:
            return None
        if kind in (_BYTE, _DOUBLE):
            return self._skip(1 if kind == _BYTE else 8)
        raise ValueError("its headers must be Parquet's")

    def _list(self, wanted: Any, depth: int) -> Any:
        head = self._byte()
        kind, count = head & 15, head >> 4
        if count == 15:
            count = self._unsigned()
        inner = wanted[0] if wanted else {}
        if wanted and count and kind != _kind_of(inner):
            raise ValueError("its headers must be Parquet's")
        if kind == _STRUCT:
            self._left -= count
            if self._left < 0:
                raise ValueError("its headers must list fewer things")
            if inner:
                make = wanted[1] if len(wanted) > 1 else dict
                return [make(self.struct(inner, depth + 1)) for _ in range(count)]
        elif count > len(self._data):
            raise CutShort("its headers are cut short")
        if kind in (*_BOOLS, _BYTE):
            self._skip(count)
        else:
            for _ in range(count):
                self._value(kind, {}, depth + 1)
        return count

    def _byte(self) -> int:
        try:
            byte = self._data[self.at]
        except IndexError:
            raise CutShort("its headers are cut short") from None
        self.at += 1
        return byte

    def _skip(self, count: int) -> bytes:
        begin = self.at
        self.at += count
        if self.at > len(self._data):
            raise CutShort("its headers are cut short")
        return self._data[begin : self.at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("its headers must be Parquet's")

    def _signed(self, bits: int) -> int:
        value = self._unsigned()
        # Readers cut off what a number has beyond its width.
        if value >> bits:
            raise ValueError("its headers must be Parquet's")
        return (value >> 1) ^ -(value & 1)


def _kind_of(wanted: Any) -> int:
    if isinstance(wanted, int):
        return wanted
    return _STRUCT if isinstance(wanted, dict) else _LISTS[0]


class ParquetChunk(NamedTuple):
    """A column of a row group.

    Attributes
    ----------
    begin : int
        Where its pages begin in the file.
    stored, unfolded : int
        Bytes of its pages, in the file and, by its footer, in memory.
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
    """A complete footer: the number of rows it claims, and its row groups."""

    rows: int
    groups: tuple[ParquetGroup, ...]


def _group(fields: dict[int, Any]) -> ParquetGroup:
    return ParquetGroup(fields.get(3, -1), tuple(fields.get(1, ())))


def _chunk(fields: dict[int, Any]) -> ParquetChunk:
    column = fields.get(3)
    if column is None or fields.get(1) or not {7, 6, 9} <= column.keys():
        raise ValueError("its columns must lie within it")
    begin, dictionary = column[9], column.get(11, 0)
    figures = column.get(12, {})
    whole = column.get(1) in (_INT32, _INT64)
    return ParquetChunk(
        dictionary if 0 < dictionary < begin else begin,
        column[7],
        column[6],
        _integer(figures.get(6)) if whole else None,
        _integer(figures.get(5)) if whole else None,
        figures.get(3),
    )


def _integer(value: bytes | None) -> int | None:
    return (
        int.from_bytes(value, "little", signed=True) if value is not None and len(value) in (4, 8) else None
    )


# Field numbers of Parquet's `parquet.thrift`: those that are read, and all lists, which readers trust.
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
    """Read the footer of a file; raises ``ValueError`` for none, or one that needs far too much memory."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or length + 12 > size:
        raise ValueError("it has no Parquet footer; it may have been cut short")
    if length > _MOST_FOOTER:
        raise ValueError(f"its footer must be at most {_MOST_FOOTER:,} bytes long, got {length:,}")
    file.seek(size - 8 - length)
    fields = ThriftReader(file.read(length), _MOST_LISTED).struct(_FOOTER)
    elements = fields.get(2, [])
    if len(elements) > _MOST_COLUMNS:
        raise ValueError(f"it must have at most {_MOST_COLUMNS} columns, got {len(elements):,}")
    groups = tuple(fields.get(4, ()))
    leaves = sum(not element.get(5) for element in elements)
    if any(len(group.chunks) != leaves for group in groups):
        raise ValueError(f"its row groups must have {leaves} columns")
    return ParquetFooter(fields.get(3, -1), groups)
