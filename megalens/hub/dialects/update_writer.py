"""Rows of ours as updates of the 3606 dialect."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .browser_json import numbers_json
from .dialect import DIALECTS
from .peer_message import is_shape

__all__ = ["Update", "updates"]

_DIALECT = DIALECTS["3606"]
_NUMBERS = {name: number for number, name in _DIALECT.numbers.items()}
_SENT = ("forward", "train")
_KEY = ("step", "micro_batch", "phase", "rank", "layer", "flag")


@dataclass(frozen=True)
class Update:
    """One update on its way.

    Attributes
    ----------
    flag : str
        Its flag.
    source_shape : list of int
        ``[B, S, …]`` of the traced tensor.
    text : str
        The message.
    """

    flag: str
    source_shape: list[int]
    text: str


def updates(table: pa.Table) -> Iterator[Update]:
    """Yield an update for each tensor of a frame: parts joined again, forward passes of training alone, flags that the dialect has."""
    for rows in _tensors(table):
        first = rows[0]
        values = _joined(rows)
        head = (
            f'{{"type":"update","update_type":{_NUMBERS[first["flag"]]},"layer_id":{first["layer"] + 1},'
            f'"args":[{",".join(map(str, values.shape))}],"result":'
        )
        yield Update(first["flag"], list(first["source_shape"]), f"{head}{numbers_json(values)}}}")


def _tensors(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """Group the parts of one tensor, which follow each other."""
    group: list[dict[str, Any]] = []
    columns = {
        name: table.column(name).to_pylist() for name in (*_KEY, "part", "pass", "shape", "source_shape")
    }
    lists = table.column("values").combine_chunks()
    for at in range(table.num_rows):
        row: dict[str, Any] = {name: column[at] for name, column in columns.items()}
        if row["flag"] not in _NUMBERS or (row["pass"], row["phase"]) != _SENT:
            continue
        row["values"] = lists[at].values.to_numpy(zero_copy_only=False)
        shape = row["shape"]
        if not shape or not is_shape(shape) or math.prod(shape) != row["values"].size:
            # A producer that contradicts itself ends nothing here.
            continue
        known = {other["part"]: other["shape"][:-1] for other in group}
        apart = row["part"] in known or any(shape != row["shape"][:-1] for shape in known.values())
        if group and (apart or any(row[name] != group[0][name] for name in _KEY)):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _joined(rows: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    parts = [row["values"].reshape(row["shape"]) for row in rows]
    if rows[0]["flag"] == "InputTokens":
        # The dialect has ids and positions in one tensor.
        by_part = {row["part"]: part for row, part in zip(rows, parts, strict=True)}
        ids = by_part.get("ids", parts[0])
        positions = by_part.get("positions")
        if positions is None or positions.shape != ids.shape:
            positions = np.broadcast_to(np.arange(ids.shape[-1], dtype=ids.dtype), ids.shape)
        return np.stack([ids, positions])
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
