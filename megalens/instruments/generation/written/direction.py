"""A direction of hidden states as a file, written where there is no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....protocol import replace_file
from ....runs.errors import bad_argument

__all__ = ["save_direction"]


def save_direction(
    path: str | Path, vectors: npt.ArrayLike, metadata: Mapping[str, Any] | None = None
) -> Path:
    """Write a direction to a ``.safetensors`` file that ``Projection`` and ``AddVector`` read.

    Parameters
    ----------
    path : str or Path
        The file. To be read its folder must be among the run's ``vectors_folders``.
    vectors : array
        ``[hidden]`` for all layers alike, or ``[layers, hidden]``; of numpy, of torch or lists. Written as float32 and not scaled.
    metadata : mapping, optional
        What it is of, kept in the file as text.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ClientError
        ``bad-parameter``, for another ending, another shape, or values that are not finite.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise bad_argument("path", "a file name that ends in .safetensors", path.name)
    given: Any = vectors
    if hasattr(given, "detach"):
        given = given.detach().float().cpu().numpy()
    try:
        with np.errstate(over="ignore"):
            array = np.array(given, dtype="<f4", order="C")
    except (TypeError, ValueError) as error:
        raise bad_argument("vectors", "numbers, [hidden] or [layers, hidden]", vectors) from error
    if array.ndim not in (1, 2) or array.size == 0:
        raise bad_argument("vectors", "[hidden] or [layers, hidden]", list(array.shape))
    if not np.isfinite(array).all():
        raise bad_argument("vectors", "finite float32 numbers", "some that are not")
    said = {str(name): str(value) for name, value in (metadata or {}).items()}
    header = json.dumps(
        {
            "__metadata__": {"made_by": "megalens", **said},
            "vectors": {"dtype": "F32", "shape": list(array.shape), "data_offsets": [0, array.nbytes]},
        }
    ).encode()
    # The format has its numbers begin at a multiple of 8 bytes.
    header += b" " * (-len(header) % 8)
    replace_file(path, len(header).to_bytes(8, "little") + header + array.tobytes())
    return path
