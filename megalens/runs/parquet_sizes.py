"""Sizes of what a Parquet file holds, found in the headers of its pages before Arrow reads any of it: Arrow believes what they say and takes the memory first."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from .compact_thrift import I32, CutShort, ThriftReader
from .parquet_footer import ParquetChunk
from .unfolding import check_unfolded

__all__ = ["check_chunk"]

_HEAD = 512
_MOST_HEAD = 1024 * 1024
_MOST_PAGES = 100_000
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Texts that share their beginnings with the one before: a page of these unfolds by itself.
_SHARED_BEGINNINGS = 7
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
# As in Parquet's own `parquet.thrift`: kind, bytes unfolded and stored, and of pages of values how many and their encoding.
_PAGE = {1: I32, 2: I32, 3: I32, 5: {1: I32, 2: I32}, 8: {1: I32, 4: I32}}


def check_chunk(file: BinaryIO, name: str, column: ParquetChunk, kind: str, repeated: bool) -> None:
    """Refuse a column of a row group that unfolds to too much, by the headers of its pages.

    Parameters
    ----------
    file : file
        The Parquet file.
    name : str
        Its name, for the error.
    column : ParquetChunk
        The column, with the place of its pages. What else it says is not believed.
    kind : str
        Its physical type.
    repeated : bool
        Whether it holds lists: a row may then have any number of values, and all of them are in memory at once.

    Raises
    ------
    ClientError
        ``unreadable`` when it unfolds to too much.
    ValueError
        When its pages are not as Parquet has them.
    """
    at, stored = column.begin, column.stored
    end = at + stored
    if at < 4 or stored < 0 or end > os.fstat(file.fileno()).st_size:
        raise ValueError("its columns must lie within it")
    text = kind not in _WIDTHS
    width = _WIDTHS.get(kind, 4)
    unfolded = values = pages = 0
    while at < end:
        pages += 1
        if pages > _MOST_PAGES:
            raise ValueError(f"its columns must have at most {_MOST_PAGES:,} pages")
        head, length = _page_head(file, at, end)
        size, packed = head.get(2, -1), head.get(3, -1)
        if size < 0 or packed < 0:
            raise ValueError("its pages must have a size")
        # One page is in memory at a time, of texts all that a batch needs.
        unfolded = unfolded + size if text else max(unfolded, size)
        if head.get(1) in (_DATA, _DATA_2):
            place, encoding = (5, 2) if head[1] == _DATA else (8, 4)
            page = head.get(place, {})
            values += max(0, page.get(1, 0))
            if text and page.get(encoding) == _SHARED_BEGINNINGS:
                raise ValueError("its texts must be stored one by one, not by what they share")
        at += length + packed
    # Beside a value stand the two levels that say where lists begin.
    check_unfolded(name, unfolded + (values * (width + 4) if repeated else 0), stored)


def _page_head(file: BinaryIO, at: int, end: int) -> tuple[dict[int, Any], int]:
    most = _HEAD
    while True:
        file.seek(at)
        data = file.read(min(most, end - at))
        try:
            reader = ThriftReader(data)
            return reader.struct(_PAGE), reader.at
        except CutShort:
            if len(data) < most or most >= _MOST_HEAD:
                raise ValueError("its pages must have whole headers") from None
            most *= 16
