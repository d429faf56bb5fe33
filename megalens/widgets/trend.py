"""Layer trend of one flag."""

from __future__ import annotations

from typing import ClassVar

from ipywidgets import register
from traitlets import observe

from .base import View
from .option import Option

__all__ = ["Trend"]


@register
class Trend(View):
    """A statistic of one flag per layer over steps, as lines or as a layer × step heatmap."""

    view_name: ClassVar[str] = "trend"

    flag = Option(help="Trace point by name.")
    part = Option(help="Named part (q, k, v …); None takes the first.")
    layers = Option(help="Layers to draw, such as '1-4,7' or 'all'.")
    statistic = Option(help="mean, std, min, max, rms, abs_mean or nonfinite.")
    kind = Option(help="'lines' or 'heatmap'.")
    steps = Option(help="Inclusive first and last step, or None for all.")
    transform = Option(help="'linear' or 'log'.")
    phase = Option(help="'train', 'eval' or 'generate'.")
    rank = Option(help="Global rank; None takes of each layer the lowest that has it.")
    pass_ = Option(help="'forward', or 'backward' for gradients.")
    positions = Option(help="Positions that enter, counted from 0, such as '0-15,31' or 'all'.")
    vector = Option(help="Vector of a projection, counted from 0.")
    interval = Option(help="'none', 'std' or 'ci95': band about the mean over positions and samples.")

    _sync = observe(
        "flag",
        "part",
        "layers",
        "statistic",
        "kind",
        "steps",
        "transform",
        "phase",
        "rank",
        "pass_",
        "positions",
        "vector",
        "interval",
    )(View._option_changed)
