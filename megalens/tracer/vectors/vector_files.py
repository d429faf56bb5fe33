"""What lies in a file of vectors, in three formats. Each reader takes an open file and its size, and reads headers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np
import torch

from ...protocol import parse_json
from .stored import LimitedFile, Stored, row_major, whole_numbers

__all__ = ["READERS"]

_MOST_HEADER = 1 << 20
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "BOOL": torch.bool,
}


def _npy(file: BinaryIO, size: int) -> Stored:
    headers: dict[Any, Callable[..., Any]] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(file)
    if version not in headers:
        raise ValueError(f"its version {version} is not that of an array of numbers")
    shape, columns_first, dtype = headers[version](LimitedFile(file))
    if dtype.kind not in "fiu":
        raise ValueError(f"expected numbers, found {dtype!s:.50}")
    shape = whole_numbers(shape)
    strides = row_major(shape[::-1])[::-1] if columns_first else row_major(shape)
    return Stored(shape, strides, dtype, file.tell())


def _safetensors(file: BinaryIO, size: int) -> Stored:
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(size - 8, _MOST_HEADER):
        raise ValueError("its header is larger than 1 MiB, or than the file")
    header = parse_json(file.read(length))
    found: dict[str, Stored] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = whole_numbers(entry["shape"])
        begin, end = whole_numbers(entry["data_offsets"])
        dtype = _TYPES.get(entry["dtype"])
        if dtype is None:
            # It may be another tensor that is meant.
            continue
        stored = Stored(shape, row_major(shape), dtype, 8 + length + begin)
        if end - begin != stored.span or stored.offset + stored.span > size:
            raise ValueError("a tensor in it has other sizes than its bytes")
        found[name] = stored
    return _the_only(found)


def _pt(file: BinaryIO, size: int) -> Stored:
    from .pt_file import pt_tensors

    return _the_only(pt_tensors(file, size))


def _the_only(found: Mapping[str, Stored]) -> Stored:
    meant = found.get("vectors") if "vectors" in found or len(found) != 1 else next(iter(found.values()))
    if meant is None:
        names = ", ".join(f"{name!r:.50}" for name in sorted(found)[:8]) or "none"
        raise ValueError(f"expected one tensor, or one named 'vectors'; found {names}")
    return meant


READERS: Mapping[str, Callable[[BinaryIO, int], Stored]] = {
    ".safetensors": _safetensors,
    ".npy": _npy,
    ".pt": _pt,
}
"""By suffix: gives the array that is meant; raises whatever a damaged file leads to."""
