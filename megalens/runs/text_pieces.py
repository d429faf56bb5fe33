"""Cutting rows whose texts are places in a dictionary into pieces that hold the texts themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .unfolding import check_unfolded

__all__ = ["TextPieces"]

_PIECE_BYTES = 16 * 1024 * 1024


class TextPieces:
    """Counts the texts of one reading of a file.

    Parameters
    ----------
    name : str
        Of the file, for the error.
    stored : int
        Its size.
    """

    def __init__(self, name: str, stored: int) -> None:
        self._name = name
        self._stored = stored
        self._unfolded = 0

    def cut(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield a batch with the types of ``schema``, in pieces with few MiB of text each.

        Raises
        ------
        ClientError
            ``unreadable`` when all texts so far are too many for the file.
        """
        if not batch.num_rows:
            return
        sizes = sum((_text_bytes(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))
        ends = np.cumsum(sizes)
        self._unfolded += int(ends[-1])
        check_unfolded(self._name, self._unfolded, self._stored)
        begin = 0
        while begin < batch.num_rows:
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + _PIECE_BYTES, side="right")))
            yield batch.slice(begin, end - begin).cast(schema)
            begin = end


def _text_bytes(column: pa.Array) -> NDArray[np.int64]:
    """Return how long the texts of each row are together; 0 for what is no text."""
    kind: Any = column.type
    if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
        inner = _text_bytes(column.flatten())
        ends: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
        offsets: NDArray[np.int64] = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(pc.fill_null(column.value_lengths(), 0).to_numpy())]
        )
        return ends[offsets[1:]] - ends[offsets[:-1]]
    if not pa.types.is_dictionary(kind):
        return np.zeros(len(column), np.int64)
    lengths = pc.fill_null(pc.binary_length(column.dictionary), 0).cast(pa.int64()).to_numpy()
    places = pc.fill_null(column.indices, 0).to_numpy()
    sizes: NDArray[np.int64] = lengths[places] if len(lengths) else np.zeros(len(column), np.int64)
    return sizes
