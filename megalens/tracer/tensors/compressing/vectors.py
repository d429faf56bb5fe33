"""Loading projection vectors from files in allowed folders, without running anything that a file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....protocol import ProtocolError

__all__ = ["load_vectors"]

_SUFFIXES = (".safetensors", ".npy", ".pt")
_MAX_BYTES = 1 << 30
_GOES_ON = "Tracing goes on with the previous setting."


def load_vectors(
    name: str,
    folders: Sequence[Path],
    *,
    layers: int,
    features: Sequence[int | None] = (),
    field: str = "vectors",
) -> Tensor:
    """Return unit vectors from a file.

    Parameters
    ----------
    name : str
        The file: relative to one of ``folders``, or absolute inside of one.
    folders : sequence of Path
        Where files may lie. Links that lead out of them are refused.
    layers : int
        Number of layers of the model; the first axis of the file.
    features : sequence of int or None
        Feature sizes that the vectors will meet, where known.
    field : str
        Dotted path that an error names.

    Returns
    -------
    torch.Tensor
        ``[layers, vectors, features]``, float32, each vector of length one (or zero where the file's is zero).

    Raises
    ------
    ProtocolError
        ``bad-vectors`` when the file is missing, outside, unreadable or of another shape.
    """
    path = _allowed_path(name, folders, field)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise _bad(f"Could not read {path.name}: it is larger than 1 GiB.", field)
        array = _read(path, field)
    except ProtocolError:
        raise
    except Exception as error:  # Three libraries' readers, each with errors of its own.
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise _bad(
            f"Could not read {path.name}: it is not a readable {path.suffix} file of numbers ({_hide(reason, path)}).",
            field,
        ) from error
    return _unit_vectors(array, path.name, layers, features, field)


def _allowed_path(name: str, folders: Sequence[Path], field: str) -> Path:
    if not folders:
        raise _bad(
            "No folder is allowed for vectors. Pass vectors_folders=[…] to megalens.trace in the training script.",
            field,
        )
    if "\0" in name:
        raise _bad("A file name cannot hold a NUL character.", field)
    roots = [Path(folder).resolve() for folder in folders]
    inside = []
    for root in roots:
        try:
            path = (root / name).resolve()
        except (OSError, RuntimeError):
            continue
        if path.is_relative_to(root):
            inside.append(path)
    if not inside:
        raise _bad(
            f"{name!r:.200} lies outside of the folders that are allowed for vectors. "
            "Name a file inside of one of them, or add its folder to vectors_folders=[…] in the training script.",
            field,
        )
    for path in inside:
        if path.is_file():
            if path.suffix not in _SUFFIXES:
                raise _bad(
                    f"Could not read {path.name}: expected a file ending in {', '.join(_SUFFIXES)}.", field
                )
            return path
    raise _bad(f"There is no file {name!r:.200} in the folders that are allowed for vectors.", field)


def _read(path: Path, field: str) -> Tensor:
    if path.suffix == ".npy":
        array = np.load(path, allow_pickle=False)
        if array.dtype.kind not in "fiu":
            raise _bad(f"Could not read {path.name}: expected numbers, found {array.dtype}.", field)
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return _only_tensor(load_file(path), path, field)
    return _only_tensor(torch.load(path, map_location="cpu", weights_only=True), path, field)


def _only_tensor(loaded: Any, path: Path, field: str) -> Tensor:
    if isinstance(loaded, Mapping):
        tensors = {str(k): v for k, v in loaded.items() if isinstance(v, Tensor)}
        loaded = (
            tensors.get("vectors")
            if "vectors" in tensors or len(tensors) != 1
            else next(iter(tensors.values()))
        )
        if loaded is None:
            names = ", ".join(sorted(tensors)[:8]) or "none"
            raise _bad(
                f"Could not read {path.name}: expected one tensor, or one named 'vectors'; found {names}.",
                field,
            )
    if not isinstance(loaded, Tensor) or loaded.is_complex() or loaded.is_sparse:
        raise _bad(
            f"Could not read {path.name}: expected a tensor of numbers, found {type(loaded).__name__}.", field
        )
    return loaded.detach().to("cpu", torch.float32)


def _unit_vectors(
    array: Tensor, name: str, layers: int, features: Sequence[int | None], field: str
) -> Tensor:
    known = sorted({size for size in features if size is not None})
    wanted = str(known[0]) if len(known) == 1 else "features"
    expected = f"[{layers}, {wanted}] or [{layers}, vectors, {wanted}]"
    found = str(list(array.shape))
    if len(known) > 1:
        raise _bad(
            f"Could not use {name}: the parts of this flag have different sizes ({', '.join(map(str, known))}), "
            "so no one vector fits them all.",
            field,
        )
    fits = array.ndim in (2, 3) and array.shape[0] == layers and array.numel() > 0
    if not fits or (known and array.shape[-1] != known[0]):
        raise _bad(
            f"Could not use {name}: expected {expected}, found {found}. Choose vectors saved for this model.",
            field,
            expected=expected,
            got=found,
        )
    if not bool(torch.isfinite(array).all()):
        raise _bad(f"Could not use {name}: it holds values that are not finite.", field)
    return torch.nn.functional.normalize(array if array.ndim == 3 else array.unsqueeze(1), dim=-1)


def _hide(text: str, path: Path) -> str:
    """Errors go to viewers: they name the file, never its folder."""
    return text.replace(str(path), path.name).replace(str(path.parent), "…")


def _bad(message: str, field: str, *, expected: str | None = None, got: str | None = None) -> ProtocolError:
    return ProtocolError("bad-vectors", f"{message} {_GOES_ON}", field=field, expected=expected, got=got)
