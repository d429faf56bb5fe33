"""Loading vectors from files in allowed folders, without running anything that a file holds."""

from __future__ import annotations

import os
import pickletools
import stat
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

from ...protocol import ProtocolError, parse_json
from ..errors import plain_text
from .stored import LimitedFile, Stored, row_major, whole_numbers

__all__ = ["load_vectors"]

_MAX_BYTES = 1 << 30
_MAX_VALUES = 1 << 28
_FLAGS = os.O_RDONLY

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

_MOST_HEADER = 1 << 20
_TYPES_VECTOR_FILES = {
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
        dtype = _TYPES_VECTOR_FILES.get(entry["dtype"])
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


for _name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
    # Not every system has each of them.
    _FLAGS |= getattr(os, _name, 0)
_STAYS = "What was set before stays in force."


def load_vectors(
    name: str,
    folders: Sequence[Path],
    *,
    layers: int,
    features: Sequence[int | None] = (),
    field: str = "vectors",
    several: bool = True,
    unit: bool = True,
) -> Tensor:
    """Return the vectors of a file.

    Parameters
    ----------
    name : str
        The file: relative to one of ``folders``, or absolute inside of one.
    folders : sequence of Path
        Where files may lie. Links that lead out of them are refused.
    layers : int
        Number of layers of the model; the first axis of the file, unless it holds one vector for all of them.
    features : sequence of int or None
        Feature sizes that the vectors will meet, where known.
    field : str
        Dotted path that an error names.
    several : bool
        Whether a layer may have several vectors.
    unit : bool
        Whether each vector is scaled to length one.

    Returns
    -------
    torch.Tensor
        ``[layers, vectors, features]``, float32, each vector of length one (or zero where the file's is zero), or as it is in the file.

    Raises
    ------
    ProtocolError
        ``bad-vectors`` when the file is missing, outside, unreadable or of another shape.
    """
    path = _allowed_path(name, folders, field)
    try:
        # Nobody may put another file there, or a pipe that never ends, between two looks at it.
        opened = os.open(path, _FLAGS)
        with open(opened, "rb") as file:
            about = os.fstat(opened)
            if not stat.S_ISREG(about.st_mode):
                raise _bad(
                    f"There is no file {_shown(path)} in the folders that are allowed for vectors.", field
                )
            if about.st_size > _MAX_BYTES:
                raise _bad(f"Could not read {_shown(path)}: it is larger than 1 GiB.", field)
            found = READERS[path.suffix](file, about.st_size)
            array = _checked(found, _shown(path), layers, features, field, several).read(file)
    except ProtocolError:
        raise
    except Exception as error:  # Readers of several formats, each with errors of its own.
        reason = plain_text(str(error).partition("\n")[0] or type(error).__name__)[:200]
        if isinstance(error, OSError):
            # Its text would name the folder.
            reason = error.strerror or type(error).__name__
        raise _bad(
            f"Could not read {_shown(path)}: it is not a readable {path.suffix} file of numbers ({reason}).",
            field,
        ) from error
    if not bool(torch.isfinite(array).all()):
        raise _bad(f"Could not use {_shown(path)}: it holds values that are not finite.", field)
    if array.ndim == 1:
        array = array.expand(layers, -1)
    array = array if array.ndim == 3 else array.unsqueeze(1)
    return torch.nn.functional.normalize(array, dim=-1) if unit else array.contiguous()


def _allowed_path(name: str, folders: Sequence[Path], field: str) -> Path:
    if not folders:
        raise _bad(
            "No folder is allowed for vectors. Pass vectors_folders=[…] to megalens.trace in the training script, or to megalens.serve.",
            field,
        )
    if "\0" in name:
        raise _bad("A file name cannot hold a NUL character.", field)
    roots = [Path(folder).resolve() for folder in folders]
    inside = []
    for root in roots:
        try:
            path = (root / name).resolve()
        except (OSError, RuntimeError, ValueError):
            continue
        if path.is_relative_to(root):
            inside.append(path)
    if not inside:
        raise _bad(
            f"{name!r:.200} lies outside of the folders that are allowed for vectors. "
            "Name a file inside of one of them, or add its folder to vectors_folders=[…] in the training script, or in megalens.serve.",
            field,
        )
    for path in inside:
        if not _is_file(path):
            continue
        if path.suffix not in READERS:
            raise _bad(
                f"Could not read {_shown(path)}: expected a file ending in {', '.join(READERS)}.", field
            )
        return path
    raise _bad(f"There is no file {name!r:.200} in the folders that are allowed for vectors.", field)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # A name that is too long, or that the system cannot have, is that of no file.
        return False


def _checked(
    found: Stored, name: str, layers: int, features: Sequence[int | None], field: str, several: bool
) -> Stored:
    """Return what was found, if it is of the model's sizes: before anything is read, so that no memory is taken for anything else."""
    known = sorted({size for size in features if size is not None})
    wanted = str(known[0]) if len(known) == 1 else "features"
    shapes = [
        f"[{wanted}]",
        f"[{layers}, {wanted}]",
        *([f"[{layers}, vectors, {wanted}]"] if several else []),
    ]
    expected = f"{', '.join(shapes[:-1])} or {shapes[-1]}"
    shape = str(list(found.shape))
    if len(known) > 1:
        raise _bad(
            f"Could not use {name}: the parts of this flag have different sizes ({', '.join(map(str, known))}), "
            "so no one vector fits them all.",
            field,
        )
    axes = len(found.shape)
    fits = (axes == 1 or (2 <= axes <= 2 + several and found.shape[0] == layers)) and found.values > 0
    if not fits or (known and found.shape[-1] != known[0]):
        raise _bad(
            f"Could not use {name}: expected {expected}, found {shape}. Choose vectors saved for this model.",
            field,
            expected=expected,
            got=shape,
        )
    if found.values > _MAX_VALUES or found.span > _MAX_BYTES:
        raise _bad(
            f"Could not use {name}: it holds more than {_MAX_VALUES} values.",
            field,
            expected=f"at most {_MAX_VALUES} values",
            got=str(found.values),
        )
    return found


def _shown(path: Path) -> str:
    """Errors go to viewers: they name the file, never its folder, and as text that can be shown."""
    return path.name[:100] if path.name.isprintable() else f"{path.name!r:.100}"


def _bad(message: str, field: str, *, expected: str | None = None, got: str | None = None) -> ProtocolError:
    return ProtocolError("bad-vectors", f"{message} {_STAYS}", field=field, expected=expected, got=got)
