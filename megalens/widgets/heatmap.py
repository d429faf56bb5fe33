"""Heatmap of one flag."""

from __future__ import annotations

from typing import ClassVar

from ipywidgets import register
from traitlets import observe

from .base import View
from .option import Option

__all__ = ["Heatmap"]


@register
class Heatmap(View):
    """One flag as position × tile, one layer or small multiples, with a step slider."""

    view_name: ClassVar[str] = "heatmap"

    flag = Option(help="Trace point by name.")
    part = Option(help="Named part (q, k, v …); None takes the first.")
    layers = Option(help="Layers to draw, such as '1-4,7' or 'all'.")
    step = Option(help="Step to draw; None follows the newest.")
    sample = Option(help="Sample of the batch, counted from 0.")
    head = Option(help="Head, for tensors with a head axis, counted from 0.")
    scale = Option(help="'shared' or 'own' colour scale.")
    transform = Option(help="'linear' or 'log'.")
    phase = Option(help="'train', 'eval' or 'generate'.")
    rank = Option(help="Global rank; None takes of each layer the lowest that has it.")
    pass_ = Option(help="'forward', or 'backward' for gradients.")

    _sync = observe(
        "flag",
        "part",
        "layers",
        "step",
        "sample",
        "head",
        "scale",
        "transform",
        "phase",
        "rank",
        "pass_",
    )(View._option_changed)
