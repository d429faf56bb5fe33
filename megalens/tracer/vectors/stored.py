"""Numbers of an array that lie in a file: described first, and read only once the description is known to be right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

__all__ = ["LimitedFile", "Stored", "row_major", "whole_numbers"]

_MOST_AT_ONCE = 4 << 20


@dataclass(frozen=True)
class Stored:
    """An array that has not been read.

    Attributes
    ----------
    shape, strides : tuple of int
        Both in values, none below 0.
    dtype : numpy.dtype or torch.dtype
        Of the values as they lie there.
    offset : int
        Bytes before the first value.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any] | torch.dtype
    offset: int

    @property
    def values(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Bytes from its first value to the end of its last one; an expanded array has fewer than its values say, and one with gaps more."""
        if not self.values:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * int(self.dtype.itemsize)

    def read(self, file: BinaryIO) -> Tensor:
        """Return the values as float32, contiguous; raises ``ValueError`` where the file ends before them."""
        file.seek(self.offset)
        data = bytearray(self.span)
        if file.readinto(data) != len(data):  # type: ignore[attr-defined]
            raise ValueError("it ends before its numbers do")
        if isinstance(self.dtype, torch.dtype):
            flat = torch.frombuffer(data, dtype=self.dtype)
        else:
            flat = torch.from_numpy(np.frombuffer(data, self.dtype).astype(np.float32))
        return flat.as_strided(self.shape, self.strides).to(torch.float32).contiguous()


class LimitedFile:
    """A file of which a library reads no large part at once, whatever sizes stand in it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; raises ``ValueError`` for more than 4 MiB."""
        data = self._file.read(min(size, _MOST_AT_ONCE + 1) if size >= 0 else _MOST_AT_ONCE + 1)
        if len(data) > _MOST_AT_ONCE:
            raise ValueError("a header in it is larger than 4 MiB")
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def whole_numbers(given: Any) -> tuple[int, ...]:
    """Return sizes or strides; raises ``ValueError`` for anything but a few whole numbers that are not below 0."""
    fits = isinstance(given, (tuple, list)) and len(given) <= 8
    if not fits or not all(type(each) is int and 0 <= each < 1 << 48 for each in given):
        raise ValueError("its sizes are none")
    return tuple(given)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of an array without gaps whose last axis changes fastest."""
    return tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))
