"""Sizes of what a Parquet file holds, found in its own headers before Arrow reads any of it.

Footer and page headers are Thrift structs in the compact protocol. Arrow believes what they say and takes the memory first.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from .unfolding import check_unfolded

__all__ = ["check_chunk", "check_footer"]

_MAGIC = b"PAR1"
_MOST_FOOTER = 64 * 1024 * 1024
# Arrow makes about 300 bytes of memory of each byte of a footer that is made for it, so that a small one needs no look.
_SMALL_FOOTER = 1024 * 1024
_MOST_LISTED = 500_000
# With the groups and lists that columns are in; a stream has at most 64.
_MOST_COLUMNS = 512
_HEAD = 512
_MOST_HEAD = 1024 * 1024
_MOST_DEPTH = 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Texts that share their beginnings with the one before: a page of these unfolds by itself.
_SHARED_BEGINNINGS = 7
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3


def check_footer(file: BinaryIO) -> None:
    """Refuse a footer that would take much more memory than it is long.

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
    columns = _Thrift(file.read(min(length, _HEAD))).second_list()
    if columns > _MOST_COLUMNS:
        raise ValueError(f"it must have at most {_MOST_COLUMNS} columns, got {columns:,}")
    if length > _SMALL_FOOTER:
        file.seek(size - 8 - length)
        _check_lists(file.read(length))


def check_chunk(file: BinaryIO, name: str, column: Any, repeated: bool) -> None:
    """Refuse a column of a row group that unfolds to too much, by the headers of its pages.

    Parameters
    ----------
    file : file
        The Parquet file.
    name : str
        Its name, for the error.
    column : pyarrow.parquet.ColumnChunkMetaData
        The column, with the place of its pages. What else it says is not believed.
    repeated : bool
        Whether it holds lists: a row may then have any number of values, and all of them are in memory at once.

    Raises
    ------
    ClientError
        ``unreadable`` when it unfolds to too much.
    ValueError
        When its pages are not as Parquet has them.
    """
    at, stored = column.data_page_offset, column.total_compressed_size
    if (
        column.has_dictionary_page
        and column.dictionary_page_offset
        and 0 < column.dictionary_page_offset < at
    ):
        at = column.dictionary_page_offset
    end = at + stored
    if at < 4 or stored < 0 or end > os.fstat(file.fileno()).st_size:
        raise ValueError("its columns must lie within it")
    text = column.physical_type not in _WIDTHS
    width = _WIDTHS.get(column.physical_type, 4)
    unfolded = values = 0
    while at < end:
        head, length = _page_head(file, at, end)
        size, packed = head.get(2, -1), head.get(3, -1)
        page = head.get(5) or head.get(8) or {}
        if size < 0 or packed < 0 or not isinstance(page, dict):
            raise ValueError("its pages must have a size")
        # One page is in memory at a time, of texts all that a batch needs.
        unfolded = unfolded + size if text else max(unfolded, size)
        if head.get(1) in (_DATA, _DATA_2):
            values += max(0, page.get(1, 0))
            if text and page.get(2 if head.get(1) == _DATA else 4) == _SHARED_BEGINNINGS:
                raise ValueError("its texts must be stored one by one, not by what they share")
        at += length + packed
    # Beside a value stand the two levels that say where lists begin.
    check_unfolded(name, unfolded + (values * (width + 4) if repeated else 0), stored)


class _Short(Exception):
    """The struct goes on behind what was read."""


def _page_head(file: BinaryIO, at: int, end: int) -> tuple[dict[int, Any], int]:
    most = _HEAD
    while True:
        file.seek(at)
        data = file.read(min(most, end - at))
        try:
            reader = _Thrift(data)
            return reader.struct(), reader.at
        except _Short:
            if len(data) < most or most >= _MOST_HEAD:
                raise ValueError("its pages must have whole headers") from None
            most *= 16


def _check_lists(footer: bytes) -> None:
    """Walk a footer and count what Arrow would make objects of."""
    try:
        _Thrift(footer, _MOST_LISTED).struct()
    except _Short:
        raise ValueError("its footer is cut short") from None


class _Thrift:
    """Reads structs in Thrift's compact protocol. Of lists only the length is kept.

    Parameters
    ----------
    data : bytes
        Where they are.
    most : int, optional
        Structs in lists, at most.
    """

    def __init__(self, data: bytes, most: int = 1000) -> None:
        self._data = data
        self._left = most
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return a struct as its fields by number: whole numbers, structs, lengths of lists; None for the rest."""
        if depth > _MOST_DEPTH:
            raise ValueError("its headers must nest less deeply")
        found: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._signed()
            found[number] = self._value(kind, depth)

    def second_list(self) -> int:
        """Return the length of the list that is the second field of a struct, whose first is a number: of a footer, its columns."""
        try:
            if self._byte() == 0x15 and self._signed() is not None and self._byte() == 0x19:
                head = self._byte()
                return head >> 4 if head >> 4 < 15 else self._unsigned()
        except _Short:
            pass
        raise ValueError("its footer must be Parquet's")

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (9, 10):
            return self._list(depth)
        if kind == 3:
            return self._skip(1)
        if kind == 7:
            return self._skip(8)
        if kind == 8:
            return self._skip(self._unsigned())
        raise ValueError("its headers must be Parquet's")

    def _list(self, depth: int) -> int:
        head = self._byte()
        kind, count = head & 15, head >> 4
        if count == 15:
            count = self._unsigned()
        if kind == 12:
            self._left -= count
            if self._left < 0:
                raise ValueError("its headers must list fewer things")
        elif count > len(self._data):
            raise _Short
        for _ in range(count):
            if kind in (1, 2):
                self._skip(1)
            else:
                self._value(kind, depth + 1)
        return count

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise _Short
        self.at += 1
        return self._data[self.at - 1]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise _Short

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

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
