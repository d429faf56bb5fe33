"""Kernel-side widgets: each is a run's name and a view's options; the browser draws it from those alone."""

from .base import VIEW_MIME, View
from .errors import WidgetError
from .heatmap import Heatmap
from .history import History
from .moments import Moments
from .scalars import Scalars
from .trend import Trend

__all__ = ["VIEW_MIME", "Heatmap", "History", "Moments", "Scalars", "Trend", "View", "WidgetError"]
