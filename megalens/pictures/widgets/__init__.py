"""Kernel-side widgets: each is a run's name and a view's options; the browser draws it from those alone."""

from . import generated
from .base import VIEW_MIME, OtherView, View, WidgetError
from .generated import *  # noqa: F403

__all__ = ["VIEW_MIME", "OtherView", "View", "WidgetError"]
__all__ += generated.__all__
