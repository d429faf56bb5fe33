"""Names and numbers of Transformer Engine's debug features, as rows of what casts lose.

A name is ``<layer>_<tensor>_<statistic>``, and a layer may have any of these words in it: it is split from
the right, on the tensors and statistics that there are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from .moments import MOMENT_COLUMNS

__all__ = ["cast_of", "cast_rows_of", "counts_from_one"]

_TENSORS = {
    "activation": "{}/input0/activation",
    "output": "{}/output0/activation",
    "gradient": "{}/output0/dgrad",
    "dgrad": "{}/input0/dgrad",
    "weight": "{}.weight/param",
    "wgrad": "{}.weight/grad",
}
_STATS = {
    "underflows%": "underflow",
    "overflows%": "overflow",
    "mse": "cast_error",
    "scale_inv_min": "cast_scale",
    "scale_inv_max": "cast_scale",
    "cur_amax": "cast_amax",
}
_RECIPES = ("fp8_delayed_scaling", "fp8_current_scaling", "fp8_block_scaling", "mxfp8", "nvfp4")
_NAME = re.compile(
    rf"(?P<layer>.+)_(?P<tensor>{'|'.join(_TENSORS)})_(?:(?P<recipe>{'|'.join(_RECIPES)})_)?"
    rf"(?P<stat>{'|'.join(_STATS)})(?P<side>_columnwise)?"
)
_LAYER = re.compile(r"(?<=\blayers\.)(\d{1,9})(?=\.)")


@lru_cache(maxsize=1 << 16)
def cast_of(name: str) -> tuple[str, str, str] | None:
    """Return stat, tensor and what was said of it (``mse``, …); None for what is of no cast."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    layer = found["layer"].removeprefix("model.")
    tensor = _TENSORS[found["tensor"]].format(layer)
    return _STATS[found["stat"]], f"{tensor}:{found['recipe'] or 'fp8'}{found['side'] or ''}", found["stat"]


def counts_from_one(tensors: Iterable[str]) -> bool:
    """Return whether layers are counted from 1, as Megatron-Core's are: some have a number, and none is 0."""
    numbers = {int(found[0]) for name in tensors if (found := _LAYER.search(name)) is not None}
    return bool(numbers) and 0 not in numbers


def cast_rows_of(given: Mapping[str, float], from_one: bool) -> dict[tuple[str, str], dict[str, float]]:
    """Return the rows that numbers by name make, by stat and tensor: :data:`MOMENT_COLUMNS`, NaN: not known.

    Of how many values a share or an error is, nobody says: they count as one.
    """
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for name, value in given.items():
        found = cast_of(name)
        if found is None:
            continue
        stat, tensor, said = found
        if from_one:
            tensor = _LAYER.sub(lambda number: str(int(number[0]) - 1), tensor, count=1)
        row = rows.setdefault((stat, tensor), {**dict.fromkeys(MOMENT_COLUMNS, math.nan), "count": 1.0})
        if said == "mse":
            # Where the mean is not known, moments are about zero.
            row["m2"] = value
        elif said.startswith("scale_inv"):
            row[said[-3:]] = value
        else:
            share = value / 100 if said.endswith("%") else value
            row |= {"mean": share, "m2": 0.0, "m3": 0.0, "m4": 0.0}
            if said == "cur_amax":
                row |= {"min": value, "max": value}
    return rows
