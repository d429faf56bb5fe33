"""Columns of rows that have lists in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol.arrow_columns import arrow_column

__all__ = ["lists_column"]


def lists_column(values: Any, lengths: Sequence[int]) -> pa.Array:
    """Return a column of lists out of what is in all of them, one after another."""
    texts = isinstance(values, list)
    flat = (
        arrow_column(values, pa.utf8()) if texts else arrow_column(np.ascontiguousarray(values).reshape(-1))
    )
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(arrow_column(offsets), flat)
