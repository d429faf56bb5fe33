"""The compressor that suits a tensor, where nobody chose one."""

from __future__ import annotations

import math

from ....protocol import Compressor, NoOp, Peaks, Tile
from ...flags import FLAGS
from ...points import FlagPoints

__all__ = ["suited_compressor"]

_MOST_TILES = 96
_FEWEST_TILES = 24


def suited_compressor(flag: str, here: FlagPoints | None) -> Compressor:
    """Return what a flag is traced with where nobody chose a compressor.

    Attention probabilities keep their peaks: what one looks for in them is where something attends, and a mean over keys hides it.
    Tiles are as many as divide the width of every part, so that all are of one size: 64 of 128, 512 or 4096 features, 96 of 768. Where no number from 24 to 96
    does, or the width is not known, they are at most 96. Of values of both signs each tile gives the root mean square: their mean is near 0 whatever they are.

    Parameters
    ----------
    flag : str
        Its name; one that there is not is a tensor like most.
    here : FlagPoints or None
        Where it is in this process.
    """
    kind = FLAGS.get(flag)
    if kind is not None and kind.exact:
        return NoOp()
    if kind is not None and kind.attends:
        return Peaks()
    widths = here.widths if here is not None else None
    common = math.gcd(*widths) if widths else 0
    dividing = [tiles for tiles in range(_FEWEST_TILES, _MOST_TILES + 1) if common and common % tiles == 0]
    tiles = max(dividing, default=_MOST_TILES)
    return Tile(tiles, "rms" if kind is None or kind.signed else "mean")
