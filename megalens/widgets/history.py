"""History of one flag."""

from __future__ import annotations

from typing import ClassVar

from ipywidgets import register
from traitlets import observe

from .base import View
from .option import Option

__all__ = ["History"]


@register
class History(View):
    """A statistic of one flag as layer × step, and below it the tensor of the chosen layer and step."""

    view_name: ClassVar[str] = "history"

    flag = Option(help="Trace point by name.")
    part = Option(help="Named part (q, k, v …); None takes the first.")
    layers = Option(help="Layers of the map, such as '1-4,7' or 'all'.")
    layer = Option(help="Layer whose tensor is drawn; None takes the first.")
    step = Option(help="Step whose tensor is drawn; None follows the newest.")
    statistic = Option(help="mean, std, min, max, rms, abs_mean or nonfinite.")
    steps = Option(help="Inclusive first and last step of the map, or None for all.")
    sample = Option(help="Sample of the batch, counted from 0.")
    head = Option(help="Head, for tensors with a head axis, counted from 0.")
    transform = Option(help="'linear' or 'log'.")
    phase = Option(help="'train', 'eval' or 'generate'.")
    rank = Option(help="Global rank; None takes of each layer the lowest that has it.")
    pass_ = Option(help="'forward', or 'backward' for gradients.")

    _sync = observe(
        "flag",
        "part",
        "layers",
        "layer",
        "step",
        "statistic",
        "steps",
        "sample",
        "head",
        "transform",
        "phase",
        "rank",
        "pass_",
    )(View._option_changed)
