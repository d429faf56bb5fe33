"""A traced tensor over all positions of a text, put together from the passes that computed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....runs.errors import ClientError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame

    from ....runs.run import Run

__all__ = ["generation_array"]

_NONE = np.empty((0, 0), np.float32)


def generation_array(
    run: Run, tokens: DataFrame, flag: str, layer: int, sequence: int, part: str | None
) -> NDArray[np.float32]:
    """Return a traced tensor of every position of a sequence; see ``Generation.array``."""
    read = tokens[tokens["tensor_step"] >= 0]
    if read.empty:
        raise ClientError(f"There is no sequence {sequence} of which tensors were read.", code="not-found")
    first, last = int(read["tensor_step"].min()), int(read["tensor_step"].max())
    rows = run.tensors(
        flag,
        layers=layer,
        part=part,
        steps=range(first, last + 1),
        phase="generate",
        pass_="forward",  # noqa: S106
    ).to_pylist()
    passes: dict[tuple[int, int], NDArray[np.float32]] = {}
    for row in rows:
        shape = [int(size) for size in row["shape"]]
        values = np.asarray(row["values"], np.float32)
        if values.size == np.prod(shape) and sequence < shape[0]:
            passes.setdefault((row["step"], row["micro_batch"]), values.reshape(shape)[sequence])
    if not passes:
        raise ClientError(
            f"Generation {tokens['generation'].iloc[0]} has no rows of {flag} of layer {layer}. Switch it on before: run.configure({flag}=True).",
            code="not-found",
            field="flag",
        )
    count = int(tokens["position"].max()) + 1
    some = next(iter(passes.values()))
    heads = some.ndim == 3
    joined = np.full((some.shape[0], count, count) if heads else (count, *some.shape[1:]), np.nan, np.float32)
    for position, step, number, offset in read[
        ["position", "tensor_step", "tensor_pass", "tensor_offset"]
    ].itertuples(index=False):
        values = passes.get((int(step), int(number)), _NONE)
        if not values.size or offset >= values.shape[-2]:
            continue
        if heads:
            # The keys of a query end with itself; what is before the first token of the prompt is padding.
            keys = values[:, offset, : values.shape[-1] - (values.shape[-2] - 1 - offset)]
            joined[:, position, : position + 1] = keys[:, -(position + 1) :]
        else:
            joined[position] = values[offset]
    return joined
