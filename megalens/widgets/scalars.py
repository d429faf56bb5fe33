"""Scalars: loss and its friends."""

from __future__ import annotations

from typing import ClassVar

from ipywidgets import register
from traitlets import observe

from .base import View
from .option import Option

__all__ = ["Scalars"]


@register
class Scalars(View):
    """Named scalars over steps or time."""

    view_name: ClassVar[str] = "scalars"

    names = Option(help="Names to draw; None takes every name that has 'loss' in it, else all.")
    steps = Option(help="Inclusive first and last step, or None for all.")
    x = Option(help="'step' or 'time'.")
    transform = Option(help="'linear' or 'log'.")
    smoothing = Option(help="Trailing mean over this many points; 0 draws the numbers as they are.")

    _sync = observe("names", "steps", "x", "transform", "smoothing")(View._option_changed)
