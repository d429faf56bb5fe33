"""Loading vectors from files in allowed folders, without running anything that a file holds."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..protocol import ProtocolError
from .errors import plain_text
from .vector_files import READERS, Stored

_MAX_BYTES = 1 << 30
# What is held to read a file, and what comes of it: float32.
_MOST_HELD = 500_000_000
_BLOCK_VALUES = 1 << 20
_LEAST_NORM = 1e-12
_FLAGS = os.O_RDONLY
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
        ``[layers, vectors, features]``, float32; with ``unit`` a vector of zeros stays one.

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
    # In place and by blocks: nothing beside the values is of their size.
    if not all(bool(torch.isfinite(block).all()) for block in torch.split(array.view(-1), _BLOCK_VALUES)):
        raise _bad(f"Could not use {_shown(path)}: it holds values that are not finite.", field)
    if unit:
        array /= torch.linalg.vector_norm(array, dim=-1, keepdim=True).clamp_min_(_LEAST_NORM)
    if array.ndim == 1:
        array = array.expand(layers, -1)
    return (array if array.ndim == 3 else array.unsqueeze(1)).contiguous()


def _allowed_path(name: str, folders: Sequence[Path], field: str) -> Path:
    if not folders:
        raise _bad(
            "No folder is allowed for vectors. Pass vectors_folders=[…] to megalens.trace in the training "
            "script, or to megalens.serve.",
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
            "Name a file inside of one of them, or add its folder to vectors_folders=[…] in the training "
            "script, or in megalens.serve.",
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
    """Return ``found`` if it has the model's sizes; before its values are read into memory."""
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
            f"Could not use {name}: the parts of this flag have different sizes "
            f"({', '.join(map(str, known))}), "
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
    # One vector for all layers becomes one for each.
    held = found.held + (4 * found.values * layers if axes == 1 else 0)
    if held > _MOST_HELD:
        advice = "" if found.packed else " Its values are not in order: save it again as a contiguous array."
        raise _bad(
            f"Could not use {name}: it takes more than {_MOST_HELD >> 20} MiB to read.{advice}",
            field,
            expected=f"at most {_MOST_HELD:,} bytes",
            got=f"{held:,} bytes",
        )
    return found


def _shown(path: Path) -> str:
    """Return the file's name for viewers: never its folder, and printable."""
    return path.name[:100] if path.name.isprintable() else f"{path.name!r:.100}"


def _bad(message: str, field: str, *, expected: str | None = None, got: str | None = None) -> ProtocolError:
    return ProtocolError("bad-vectors", f"{message} {_STAYS}", field=field, expected=expected, got=got)
