"""Kernel-side widgets: a run's name and a view's options each, from which the browser draws."""

from . import generated
from .base import VIEW_MIME, OtherView, View, WidgetError
from .generated import *  # noqa: F403

__all__ = ["VIEW_MIME", "OtherView", "View", "WidgetError"]
__all__ += generated.__all__
