"""The way from all other tokens to a group of them, among the features of a traced tensor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ....runs.arguments import bad_argument, whole
from ....runs.errors import ClientError

if TYPE_CHECKING:
    from ....runs.run import Run

__all__ = ["group_direction"]

_Vector = npt.NDArray[np.float32]
_TILES = re.compile(r"Tile\(tiles=(\d+), reduction='mean'\)")


def group_direction(
    run: Run,
    flag: str,
    layer: int,
    generation: int | Sequence[int],
    tokens: Sequence[Sequence[int]],
    part: str | None,
) -> _Vector:
    """Return the mean of a group's vectors less that of all others; see ``Run.direction``."""
    numbers = [generation] if isinstance(generation, int) else list(generation)
    group = {_place(token, numbers) for token in tokens}
    chosen: list[_Vector] = []
    others: list[_Vector] = []
    missing = set(group)
    for number in numbers:
        text = run.generation(number)
        for sequence in range(len(text.prompts)):
            vectors = text.array(flag, layer, sequence, part=part)
            if vectors.ndim != 2:
                raise bad_argument(
                    "flag", "a trace point with a vector for each position, such as 'HiddenStates'", flag
                )
            for position in range(len(vectors)):
                place = (number, sequence, position)
                missing.discard(place)
                if np.isfinite(vectors[position]).all():
                    (chosen if place in group else others).append(vectors[position])
    if missing:
        number, sequence, position = min(missing)
        raise ClientError(
            f"Generation {number} has no position {position} in sequence {sequence}.",
            code="not-found",
            field="tokens",
        )
    if not chosen or not others:
        which = "tokens of the group" if not chosen else "tokens beside the group"
        raise ClientError(
            f"There are no {which} with finite vectors of {flag} of layer {layer}, and the direction goes from those beside the group to it.",
            code="not-found",
            field="tokens",
        )
    apart = np.mean(chosen, axis=0, dtype=np.float64) - np.mean(others, axis=0, dtype=np.float64)
    return _widened(np.asarray(apart, np.float32), *_traced(run, flag, layer, numbers[0], part), flag)


def _traced(run: Run, flag: str, layer: int, number: int, part: str | None) -> tuple[str, int]:
    """Return the compressor of a generation's rows, and the features of the tensor before it."""
    steps = run.generation(number).tokens()["tensor_step"]
    rows = run.tensors(flag, layers=layer, part=part, steps=int(steps.max()), phase="generate")
    [row] = rows.slice(0, 1).select(["compressor", "source_shape"]).to_pylist()
    return str(row["compressor"]), int(row["source_shape"][-1])


def _widened(direction: _Vector, compressor: str, features: int, flag: str) -> _Vector:
    """Return a direction among all features; each feature of a tile has the tile's mean."""
    if len(direction) == features:
        return direction
    tiles = _TILES.search(compressor)
    if tiles is None:
        raise ClientError(
            f"{flag} was traced with {compressor}, which keeps no features of it. Trace it with NoOp, or with the mean of tiles.",
            code="bad-parameter",
            field="flag",
        )
    return np.repeat(direction, -(-features // int(tiles[1])))[:features]


def _place(token: Sequence[int], numbers: Sequence[int]) -> tuple[int, int, int]:
    try:
        parts = [int(whole(each, "tokens")) for each in token]
    except TypeError as error:
        raise bad_argument("tokens", "pairs (sequence, position)", token) from error
    if len(parts) == 2 and len(numbers) == 1:
        return numbers[0], parts[0], parts[1]
    if len(parts) == 3 and parts[0] in numbers:
        return parts[0], parts[1], parts[2]
    expected = (
        "pairs (sequence, position)"
        if len(numbers) == 1
        else "triples (generation, sequence, position) of these generations"
    )
    raise bad_argument("tokens", expected, tuple(token))
