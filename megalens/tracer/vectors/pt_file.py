"""Tensors of a ``.pt`` file, described without unpickling it.

``torch.load(weights_only=True)`` runs nothing of a file, but follows what it says: sizes and strides of any magnitude, tuples that hold themselves twice, 60 deep, as keys of a
dictionary (of which one hash takes years, and no other thread runs meanwhile), records that unpack to a thousand times their size. Here the pickle's operations are read
as data, and those that a tensor or a dictionary of tensors is made of are understood. Everything else is refused by its name.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import torch

from .stored import LimitedFile, Stored, whole_numbers

__all__ = ["pt_tensors"]

_MOST_PICKLED = 1 << 20
_LOCAL_HEADER = 30
_MARK = object()
_TYPES = {
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


@dataclass(frozen=True)
class _Named:
    """Something of a module: a function, a type."""

    name: str


@dataclass(frozen=True)
class _Storage:
    dtype: torch.dtype
    offset: int
    nbytes: int


def pt_tensors(file: BinaryIO, size: int) -> Mapping[str, Stored]:
    """Return the tensors of a file by name; a tensor that is all of the file has the name ``""``.

    Parameters
    ----------
    file : binary file
        What ``torch.save`` wrote: a tensor, or a dictionary of which other entries are passed over.
    size : int
        Bytes of the file.

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

    def place(record: str) -> tuple[int, int]:
        """Return where the bytes of a record lie, which are never compressed, and how many there are."""
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
        start, length = place(record)
        if length > _MOST_PICKLED:
            raise ValueError(f"its record {record!r} is larger than 1 MiB")
        file.seek(start)
        return file.read(length)

    if folder + "byteorder" in records and bytes_of("byteorder") != b"little":
        raise ValueError("its bytes are in the other order")

    def storage(kept: Any) -> _Storage:
        """Return the memory that a persistent id names: ``('storage', type, key, location, count)``."""
        word, kind, key, _, count = kept
        dtype = _TYPES.get(kind.name) if isinstance(kind, _Named) else None
        if word != "storage" or dtype is None or not isinstance(key, str):
            raise ValueError("a storage in it is none")
        start, length = place(f"data/{key}")
        (count,) = whole_numbers((count,))
        if count * dtype.itemsize > length:
            raise ValueError("a storage in it is larger than its record")
        return _Storage(dtype, start, count * dtype.itemsize)

    whole = _Pickled(storage).read(bytes_of("data.pkl"))
    found = whole if isinstance(whole, dict) else {"": whole}
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
    """Follows the operations of a pickle. What is made is tuples, lists, dictionaries with texts as keys, plain values and :class:`Stored`.

    Parameters
    ----------
    storage : callable
        Gives what a persistent id stands for.
    """

    def __init__(self, storage: Callable[[Any], _Storage]) -> None:
        self._storage = storage
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, pickled: bytes) -> Any:
        """Return what the pickle says; raises ``ValueError``, or what Python raises where a pickle makes no sense."""
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
