"""Traced tensors as arrays in files of safetensors."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

from ..errors import ClientError
from .export import Export, Format

_FILE_BYTES, _FILE_TENSORS = 64 * 2**20, 100_000
_KEY = ("step", "flag", "part", "layer", "rank")
_ABOUT = (*_KEY, "compressor", "pass", "phase", "micro_batch", "call")


def _write(export: Export) -> None:
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ClientError(
            "Files of safetensors need safetensors: pip install 'megalens[tracer]'.", code="not-installed"
        ) from error
    arrays: dict[str, Any] = {}
    about: dict[str, str] = {}
    size = number = 0
    # A step is complete before the next one comes.
    seen: Counter[str] = Counter()
    step = None

    def save() -> None:
        nonlocal size, number
        number += 1
        save_file(arrays, export.folder / f"tensors-{number:05d}.safetensors", {"run": export.run, **about})
        arrays.clear()
        about.clear()
        size = 0

    for batch in export.batches("tensors"):
        values = batch["values"]
        rows = batch.select([*_ABOUT, "shape"]).to_pylist()
        for at, row in enumerate(rows):
            if row["step"] != step:
                step = row["step"]
                seen.clear()
            key = "/".join(str(row[name]) or "-" for name in _KEY)
            seen[key] += 1
            key += f"#{seen[key]}" if seen[key] > 1 else ""
            # A copy: a slice would retain the complete batch.
            arrays[key] = np.array(values[at].values.to_numpy(zero_copy_only=False)).reshape(row["shape"])
            about[key] = json.dumps({name: row[name] for name in _ABOUT})
            size += arrays[key].nbytes
            if size >= _FILE_BYTES or len(arrays) >= _FILE_TENSORS:
                save()
    if arrays:
        save()


SAFETENSORS = Format(_write, ("tensors",))
