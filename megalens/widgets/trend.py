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

    _sync = observe("flag", "part", "layers", "statistic", "kind", "steps", "transform", "phase")(
        View._option_changed
    )
