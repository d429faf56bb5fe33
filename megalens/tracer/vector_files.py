"""Describes an array in a file of vectors (three formats) from headers, and reads it only after a check."""

from __future__ import annotations

import math
import pickletools
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

from ..protocol import parse_json

_MOST_AT_ONCE = 4 << 20
_BLOCK_VALUES = 1 << 20
_MOST_PICKLED = 1 << 20
_LOCAL_HEADER = 30
_MARK = object()
_STORAGE_TYPES = {
    f"torch.{name}Storage": dtype
    for name, dtype in {
        "Double": torch.float64,
        "Float": torch.float32,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Long": torch.int64,
        "Int": torch.int32,
        "Short": torch.int16,
        "Char": torch.int8,
        "Byte": torch.uint8,
        "Bool": torch.bool,
        "Untyped": torch.uint8,
    }.items()
} | {"torch.storage.UntypedStorage": torch.uint8}

_MOST_HEADER = 1 << 20
_SAFETENSORS_TYPES = {
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


@dataclass(frozen=True)
class Stored:
    """An array that has not been read.

    Attributes
    ----------
    shape, strides : tuple of int
        Both in values, none below 0.
    dtype : numpy.dtype or torch.dtype
        Of the values in the file.
    offset : int
        Bytes before the first value.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any] | torch.dtype
    offset: int

    @property
    def values(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Bytes from its first value to the end of its last; less than its values for an expanded array."""
        if not self.values:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * int(self.dtype.itemsize)

    @property
    def packed(self) -> bool:
        """Whether its values lie in order and without gaps, as almost every file has them."""
        axes = zip(self.shape, self.strides, row_major(self.shape), strict=True)
        return all(size == 1 or stride == usual for size, stride, usual in axes)

    @property
    def held(self) -> int:
        """Bytes that :meth:`read` holds at most, beside a block."""
        return 4 * self.values if self.packed else 8 * self.values + self.span

    def read(self, file: BinaryIO) -> Tensor:
        """Return the values as contiguous float32; raises ``ValueError`` where the file ends before them."""
        file.seek(self.offset)
        found = torch.empty(self.shape, dtype=torch.float32)
        if not self.packed:
            found.copy_(self._numbers(file, self.span).as_strided(self.shape, self.strides))
            return found
        for block in torch.split(found.view(-1), _BLOCK_VALUES):
            block.copy_(self._numbers(file, block.numel() * int(self.dtype.itemsize)))
        return found

    def _numbers(self, file: BinaryIO, size: int) -> Tensor:
        """Return the numbers of so many bytes, in the order of the file."""
        data = bytearray(size)
        if file.readinto(data) != size:  # type: ignore[attr-defined]
            raise ValueError("it ends before its numbers do")
        if isinstance(self.dtype, torch.dtype):
            return torch.frombuffer(data, dtype=self.dtype)
        return torch.from_numpy(np.frombuffer(data, self.dtype).astype(np.float32))


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
    """Return sizes or strides: at most eight whole numbers from 0; ``ValueError`` for anything else."""
    fits = isinstance(given, (tuple, list)) and len(given) <= 8
    if not fits or not all(type(each) is int and 0 <= each < 1 << 48 for each in given):
        raise ValueError("its sizes are none")
    return tuple(given)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of an array without gaps whose last axis changes fastest."""
    return tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))


# What lies in a file of vectors, in three formats. Each reader takes an open file and its size, and reads
# headers only.
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
        dtype = _SAFETENSORS_TYPES.get(entry["dtype"])
        if dtype is None:
            # It may be another tensor that is meant.
            continue
        stored = Stored(shape, row_major(shape), dtype, 8 + length + begin)
        if end - begin != stored.span or stored.offset + stored.span > size:
            raise ValueError("a tensor in it has other sizes than its bytes")
        found[name] = stored
    return _the_only(found)


def _pt(file: BinaryIO, size: int) -> Stored:
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


# Tensors of a ``.pt`` file, described without unpickling it.
#
# ``torch.load(weights_only=True)`` runs nothing of a file, but follows what it says: sizes and strides of any
# magnitude, tuples that hold themselves twice, 60 deep, as keys of a dictionary (of which one hash takes
# years, and no other thread runs meanwhile), records that unpack to a thousand times their size. Here the
# pickle's operations are read as data, and those that a tensor or a dictionary of tensors is made of are
# understood. Everything else is refused by its name.
@dataclass(frozen=True)
class _Named:
    name: str


@dataclass(frozen=True)
class _Storage:
    dtype: torch.dtype
    offset: int
    nbytes: int


def pt_tensors(file: BinaryIO, size: int) -> Mapping[str, Stored]:
    """Return the tensors by name of a file of ``torch.save``; a bare tensor has the name ``""``.

    Entries of a dictionary that are no tensors are passed over.

    Raises
    ------
    ValueError
        When it holds anything else, is damaged, or is of the format before torch 1.6.
    """
    if file.read(4) != b"PK\x03\x04":
        raise ValueError(
            "it is of the format before torch 1.6: load it and save it again, best as .safetensors"
        )
    with zipfile.ZipFile(cast("BinaryIO", LimitedFile(file))) as archive:
        records = {info.filename: info for info in archive.infolist()}
    name = next((name for name in records if name.endswith("/data.pkl")), None)
    if name is None:
        raise ValueError("it holds no data.pkl")
    folder = name.removesuffix("data.pkl")

    def locate(record: str) -> tuple[int, int]:
        """Return where the bytes of a record begin, which are never compressed, and how many there are."""
        info = records.get(folder + record)
        if info is None or info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"its record {record[:40]!r} is missing or compressed")
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
        # The local header's own name and extra field are of any length.
        lengths = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        start = info.header_offset + _LOCAL_HEADER + sum(lengths)
        if header[:4] != b"PK\x03\x04" or start + info.file_size > size:
            raise ValueError(f"its record {record[:40]!r} is damaged")
        return start, info.file_size

    def bytes_of(record: str) -> bytes:
        start, length = locate(record)
        if length > _MOST_PICKLED:
            raise ValueError(f"its record {record!r} is larger than 1 MiB")
        file.seek(start)
        return file.read(length)

    if folder + "byteorder" in records and bytes_of("byteorder") != b"little":
        raise ValueError("its bytes are in the other order")

    def storage(persistent_id: Any) -> _Storage:
        """Return the memory of a persistent id: ``('storage', type, key, location, count)``."""
        word, kind, key, _, count = persistent_id
        dtype = _STORAGE_TYPES.get(kind.name) if isinstance(kind, _Named) else None
        if word != "storage" or dtype is None or not isinstance(key, str):
            raise ValueError("a storage in it is none")
        start, length = locate(f"data/{key}")
        (count,) = whole_numbers((count,))
        if count * dtype.itemsize > length:
            raise ValueError("a storage in it is larger than its record")
        return _Storage(dtype, start, count * dtype.itemsize)

    content = _Pickled(storage).read(bytes_of("data.pkl"))
    found = content if isinstance(content, dict) else {"": content}
    return {name: each for name, each in found.items() if isinstance(each, Stored)}


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, dtype: torch.dtype | None = None) -> Stored:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor in it has no storage")
    dtype = dtype or storage.dtype
    (first,) = whole_numbers((offset,))
    found = Stored(
        whole_numbers(shape), whole_numbers(strides), dtype, storage.offset + first * dtype.itemsize
    )
    if len(found.shape) != len(found.strides):
        raise ValueError("a tensor in it has sizes that are none")
    if found.offset + found.span > storage.offset + storage.nbytes:
        raise ValueError("a tensor in it reaches beyond its storage")
    return found


class _Pickled:
    """Follows the operations of a pickle.

    Makes tuples, lists, dictionaries with texts as keys, plain values and :class:`Stored`. ``storage`` gives
    what a persistent id stands for.
    """

    def __init__(self, storage: Callable[[Any], _Storage]) -> None:
        self._storage = storage
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, pickled: bytes) -> Any:
        """Return what the pickle says; raises whatever a pickle that makes no sense leads to."""
        for operation, argument, _ in pickletools.genops(pickled):
            self._follow(operation.name, argument)
        return self._stack[-1]

    def _follow(self, name: str, argument: Any) -> None:
        stack, memo = self._stack, self._memo
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                stack.append(_MARK)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
                stack.append(argument)
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BINUNICODE8":
                stack.append(argument)
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                stack.append({"EMPTY_TUPLE": (), "EMPTY_LIST": [], "EMPTY_DICT": {}}[name])
            case "GLOBAL":
                stack.append(_Named(argument.replace(" ", ".")))
            case "STACK_GLOBAL":
                last = stack.pop()
                stack.append(_Named(f"{stack.pop()!s:.100}.{last!s:.100}"))
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                memo[len(memo) if argument is None else argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "TUPLE":
                stack.append(tuple(self._since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "APPEND":
                self._since(1)
            case "APPENDS":
                self._since_mark()
            case "SETITEM":
                self._set(self._since(2))
            case "SETITEMS":
                self._set(self._since_mark())
            case "BINPERSID":
                stack.append(self._storage(stack.pop()))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(self._made(stack.pop(), arguments))
            case "BUILD":
                # Attributes of a dictionary, such as the versions of a model's parts.
                stack.pop()
            case _:
                raise ValueError(f"it holds more than tensors ({name})")

    def _since(self, count: int) -> list[Any]:
        taken = self._stack[-count:]
        del self._stack[-count:]
        return taken

    def _since_mark(self) -> list[Any]:
        stack = self._stack
        at = next(at for at in range(len(stack) - 1, -1, -1) if stack[at] is _MARK)
        taken = stack[at + 1 :]
        del stack[at:]
        return taken

    def _set(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            # Nothing else is hashed.
            if isinstance(target, dict) and isinstance(key, str):
                target[key] = value

    def _made(self, function: Any, arguments: Any) -> Any:
        match function.name, arguments:
            case "collections.OrderedDict", ():
                return {}
            case "torch._utils._rebuild_tensor_v2", (storage, offset, shape, strides, _, _):
                return _tensor(storage, offset, shape, strides)
            case "torch._utils._rebuild_tensor_v3", (storage, offset, shape, strides, _, _, _Named(name), *_):
                dtype = getattr(torch, name.removeprefix("torch."), None)
                if isinstance(dtype, torch.dtype):
                    return _tensor(storage, offset, shape, strides, dtype)
            case "torch._utils._rebuild_parameter", (tensor, *_):
                return tensor
            case "torch._tensor._rebuild_from_type_v2", (inner, _, given, _):
                return self._made(inner, given)
        raise ValueError(f"it holds more than tensors of numbers ({function.name[:100]})")
