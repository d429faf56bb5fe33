"""At which stage gradients were measured, as numbers that merge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["STAGE", "STAGES", "stage_codes"]

STAGE = "gradient_stage"
"""The column. In a chunk it has the place in :data:`STAGES`."""

STAGES = ("pre_clip", "backward", "pre_step", "backward_scaled", "")
"""From the strongest statement to none: what holds of all rows of a group is the last of theirs. A word that is none of these states nothing."""


def stage_codes(words: pa.DictionaryArray) -> NDArray[np.int8]:
    """Return the place in :data:`STAGES` of each row."""
    # Other programs may have packed what nobody said as null: the last.
    known: list[Any] = [*words.dictionary.to_pylist(), ""]
    places = [STAGES.index(word if word in STAGES else "") for word in known]
    codes: NDArray[np.int8] = np.array(places, np.int8)[words.indices.fill_null(-1).to_numpy()]
    return codes
