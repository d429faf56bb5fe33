"""Kernel-side widgets: each is a run's name and a view's options; the browser draws it from those alone."""

from . import generated
from .base import VIEW_MIME, View
from .errors import WidgetError
from .generated import *  # noqa: F403
from .other import OtherView

__all__ = ["VIEW_MIME", "OtherView", "View", "WidgetError"]
__all__ += generated.__all__
