"""Loads the kernel for CPUs and calls it."""

from __future__ import annotations

import ctypes
import math
import os
import stat
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from itertools import chain
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..part import COLUMNS, NEAR_ZERO, TYPES, layout_of, rows_of
from .build import FOLDER, LIBRARY, source_hash

_LEVELS = ("portable", "AVX2", "AVX-512")
_TYPE_NUMBERS = {dtype: number for number, dtype in enumerate(TYPES)}
_PLAIN = (Tensor, nn.Parameter)
_STRIDED = torch.strided

Item = tuple[int, int, int, int, int]
"""Integers that describe a tensor: struct Item of moments.cpp."""
_FIELDS = 5
Numbers = tuple[float, float, float, float, int, bool]
"""What values are cast to: struct Numbers of moments.cpp."""
Plane = tuple[int, ...]
"""Integers that describe a part of a tensor of which tiles are made: struct Plane of moments.cpp."""
MOST_PARTS = 16
"""Parts of a tensor that is read in one go: as in moments.cpp."""
MOST_IN_GROUPS = 16384
"""Features of a row that lie in groups: as in moments.cpp."""


_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "moments": (_I, (_P, _L, _P, _I, _I, ctypes.c_double, _P)),
    "read": (_I, (ctypes.c_char_p, _P, _P, _P, _I)),
    "merge": (None, (_P, _L, _L, _P)),
    "count": (None, (_P, *[_L] * 8, _I, _I, ctypes.c_float, _P, _I, _I, _P)),
    "largest": (None, (_P, *[_L] * 4, _P, _I)),
    "cast": (None, (_P, _L, _L, _I, _L, ctypes.c_char_p, *[_P] * 4, _I)),
}
"""By name in moments.cpp what a function returns and what it takes."""


class NativeKernel:
    """The loaded library, with a set of instructions ``level`` (0 is portable; the best when absent).

    Raises
    ------
    OSError
        When it cannot be loaded, was compiled from another source, or another user could have put it there.
    """

    def __init__(self, path: Path, level: int | None = None) -> None:
        _check_owner(path)
        # Not loaded by name: nothing on a search path or in the working directory can stand in for it.
        library = ctypes.CDLL(str(path.resolve(strict=True)))
        library.megalens_moments_source.restype = ctypes.c_char_p
        if library.megalens_moments_source() != source_hash().encode():
            raise OSError(f"{path} was compiled from another version of its source")
        self.path = path
        functions = []
        for name, (returned, taken) in _FUNCTIONS.items():
            function = library[f"megalens_{name}"]
            function.restype, function.argtypes = returned, taken
            functions.append(function)
        self._measure, self._read, self._merge, self._count, self._largest, self._cast = functions
        self._parallel = _openmp_of_torch()
        self.level = library.megalens_moments_level() if level is None else level

    @property
    def name(self) -> str:
        """Such as ``native (AVX-512)``."""
        return f"native ({_LEVELS[self.level]})"

    def describe(self, tensor: Tensor) -> Item | None:
        """Return the memory of a tensor's values, or None where the library cannot read them.

        It cannot on other devices, types and layouts, and of subclasses, which have theirs elsewhere.
        """
        begin = self._begin(tensor)
        if begin is None:
            return None
        address, number = begin
        if tensor.is_contiguous():
            return address, 1, tensor.numel(), 0, number
        layout = layout_of(tensor)
        return None if layout is None else (address, *layout, number)

    @staticmethod
    def _begin(tensor: Tensor) -> tuple[int, int] | None:
        """Return where a tensor begins and the number of its type; None where it cannot be read."""
        number = _TYPE_NUMBERS.get(tensor.dtype)
        if (
            number is None
            or type(tensor) not in _PLAIN
            or not tensor.is_cpu
            or tensor.layout is not _STRIDED
            or tensor.is_neg()
        ):
            return None
        address = tensor.data_ptr()
        return None if not address and tensor.numel() else (address, number)

    def measure(
        self,
        items: Sequence[Item],
        out: Tensor | None = None,
        threads: int | None = None,
        eps: float = NEAR_ZERO,
    ) -> Tensor:
        """Return a row for each item, float64 ``[n, 11]``; their tensors must live until then.

        It takes as many threads as torch by default.
        """
        if out is None:
            # Rows outlive the pass that they were measured in, so they are no inference tensors. Entering
            # that mode costs as much as a small tensor.
            with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
                out = torch.empty((len(items), COLUMNS), dtype=torch.float64)
        numbers = pack(f"{_FIELDS * len(items)}q", *chain.from_iterable(items))
        if self._measure(
            numbers,
            len(items),
            out.data_ptr(),
            threads or torch.get_num_threads(),
            self.level,
            eps,
            self._parallel,
        ):
            raise MemoryError(
                f"Expected memory for the pieces of {len(items)} tensors; the system has none left."
            )
        return out

    def merge(self, rows: np.ndarray) -> np.ndarray:
        """Return float64 ``[n, 11]`` of the rows of pieces, contiguous float64 ``[pieces, n, 11]``."""
        out = np.empty(rows.shape[1:])
        self._merge(rows.ctypes.data, *rows.shape[:2], out.ctypes.data)
        return out

    def plane(self, tensor: Tensor, width: int, out: int = 0, *, in_groups: bool = False) -> Plane | None:
        """Return how tiles of ``[..., features]`` are made, for :meth:`reading`; None where unreadable.

        Parameters
        ----------
        width : int
            Features of a tile; the last one of a row has what is left.
        out : int
            Number of tiles of other parts before those of this one.
        in_groups : bool
            Whether its last two axes together are the features of a row, at most :data:`MOST_IN_GROUPS`.
        """
        begin = self._begin(tensor)
        groups = (tensor.shape[-2], tensor.stride(-2)) if in_groups else (1, 0)
        rows = rows_of(tensor.select(-2, 0) if in_groups else tensor)
        if begin is None or rows is None or (in_groups and math.prod(tensor.shape[-2:]) > MOST_IN_GROUPS):
            return None
        return begin[0], *rows, *groups, tensor.shape[-1], width, out

    def reading(
        self,
        origin: int,
        dtype: torch.dtype,
        planes: Sequence[Plane],
        squares: bool,
        items: Sequence[Item] = (),
    ) -> bytes:
        """Return struct Reading of moments.cpp: how :meth:`read` reads tensors of this layout.

        Parameters
        ----------
        origin : int
            Address of the tensor.
        planes : sequence of tuple
            Its parts of which tiles are made, as :meth:`plane` gave them; at most :data:`MOST_PARTS`.
        squares : bool
            Whether a tile is the root of its mean square instead of its mean.
        items : sequence of tuple
            Its parts that are measured, as :meth:`describe` gave them; as many at most.
        """
        how = pack(
            "qqqdqqq",
            _TYPE_NUMBERS[dtype],
            squares,
            self.level,
            NEAR_ZERO,
            self._parallel or 0,
            len(planes),
            len(items),
        )
        apart = chain.from_iterable((each[0] - origin, *each[1:]) for each in (*planes, *items))
        numbers = list(apart)
        return how + pack(f"{len(numbers)}q", *numbers)

    def read(self, reading: bytes, origin: int, tiles: int, moments: int) -> None:
        """Make the tiles of a tensor's parts and measure them, with as many threads as torch.

        ``origin``, ``tiles`` (float32) and ``moments`` (float64 ``[items, 11]``; 0 without items) are
        addresses.
        """
        if self._read(reading, origin, tiles, moments, torch.get_num_threads()):
            raise MemoryError("Expected memory for the pieces of a tensor; the system has none left.")

    def count(self, tensor: Tensor, width: int, bins: int, scale: float | None) -> np.ndarray | None:
        """Return how many values of ``[samples, ..., features]`` lie in each bin, of each tile.

        Parameters
        ----------
        width : int
            Features of a tile; the last one has what is left.
        bins : int
            Of each sign: int64 ``[samples, tiles, 2 bins + 1]`` are returned.
        scale : float or None
            Bins between 0 and 1, where they are of one width; logarithmic when absent.

        None where the library cannot read the tensor.
        """
        begin, rows = self._begin(tensor), rows_of(tensor)
        if begin is None or rows is None or not tensor.numel():
            return None
        features, samples = tensor.shape[-1], tensor.shape[0]
        out = np.zeros((samples, -(-features // width), 2 * bins + 1), np.int64)
        self._count(
            begin[0],
            *rows,
            features,
            width,
            samples,
            begin[1],
            bins,
            scale is None,
            scale or 0.0,
            out.ctypes.data,
            torch.get_num_threads(),
            self.level,
            self._parallel,
        )
        return out

    def largest(self, values: Tensor, block: int) -> Tensor | None:
        """Return the largest finite size of each block of ``[rows, columns]``, float32 ``[blocks, 1]``.

        Of a row the last block has what is left. None where the library cannot read the tensor.
        """
        begin = self._begin(values)
        if begin is None or not values.is_contiguous():
            return None
        rows, columns = values.shape
        out = torch.empty((rows * -(-columns // block), 1))
        self._largest(begin[0], rows, columns, block, begin[1], out.data_ptr(), self.level)
        return out

    def cast(
        self, values: Tensor, block: int, numbers: Numbers, encode: Tensor, decode: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Cast ``[rows, columns]`` that :meth:`largest` could read, and return what that loses.

        Parameters
        ----------
        block : int
            Values of a row with a scale of their own; 0: all have one.
        numbers : tuple
            The largest, the smallest normal one, the least size beyond, what becomes of that, bits of the
            fraction, and whether values are clamped before.
        encode, decode : Tensor
            By what each block is multiplied, float32, and what undoes that, float64.

        Returns how many values are finite and of each share, int64 ``[5]``, and the row of errors.
        """
        address, number = self._begin(values) or (0, 0)
        counts, error = torch.zeros(5, dtype=torch.int64), torch.empty((1, COLUMNS), dtype=torch.float64)
        encode, decode = encode.contiguous(), decode.contiguous()
        self._cast(
            address,
            *values.shape,
            block,
            number,
            pack("4f2i", *numbers),
            encode.data_ptr(),
            decode.data_ptr(),
            counts.data_ptr(),
            error.data_ptr(),
            self.level,
        )
        return counts, error


@cache
def load(path: Path = FOLDER / LIBRARY) -> NativeKernel | str:
    """Return the kernel, or why there is none."""
    if os.environ.get("MEGALENS_KERNEL") == "plain":
        return "MEGALENS_KERNEL=plain"
    try:
        return NativeKernel(path)
    except (OSError, AttributeError) as error:
        return str(error)


def _check_owner(path: Path) -> None:
    if os.name != "posix":
        return
    for each in (path, path.parent):
        info = each.stat()
        if info.st_mode & stat.S_IWOTH:
            raise OSError(f"every user may write {each}, so it is not loaded")


def _openmp_of_torch() -> int | None:
    """Address of the entrance to torch's OpenMP runtime, so that both share one pool of threads."""
    try:
        entrance = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (OSError, AttributeError, TypeError):
        return None
    return ctypes.cast(entrance, ctypes.c_void_p).value
