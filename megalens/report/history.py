"""The history of one flag: the map of a statistic over layers and steps, and the tensor of one of its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..client import Run
from ..protocol import check_view_options
from .heatmap import heatmap_picture
from .picture import Picture
from .source import traced
from .trend import trend_picture

__all__ = ["history_pictures"]

_SHARED = ("flag", "part", "transform", "phase", "rank", "pass")


def history_pictures(
    run: Run,
    options: Mapping[str, Any],
    *,
    room: int = 0,
    progress: Callable[[float], object] | None = None,
) -> list[Picture]:
    """Read and shape what a history shows: the map, and the tensor with as many steps as fit into ``room`` bytes of page.

    Where there is nothing to draw, one picture says why.
    """
    shared = {name: options[name] for name in _SHARED}
    own = {name: options[name] for name in ("layers", "statistic", "steps")}
    over = check_view_options({"view": "trend", "kind": "heatmap", **shared, **own})
    above = replace(trend_picture(run, over, progress=progress), options=options)
    if above.empty:
        return [above]
    where = traced(run, options["flag"], options["phase"], pass_=options["pass"], rank=options["rank"])
    layer = where.layers_of(options["layers"])[0] if options["layer"] is None else options["layer"]
    cell = {name: options[name] for name in ("step", "sample", "head")}
    tensor = check_view_options({"view": "heatmap", "scale": "own", "layers": str(layer), **shared, **cell})
    return [above, replace(heatmap_picture(run, tensor, room=room), options=options)]
