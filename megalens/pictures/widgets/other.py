"""Views that other packages bring: known to the browser, and to Python by name only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ipywidgets import register
from traitlets import TraitError, validate

from .base import View
from .errors import WidgetError

__all__ = ["OtherView"]


@register
class OtherView(View):
    """A view that a JupyterLab extension registered.

    Its options are checked in the browser, by the schema that it was registered with; there is no static picture of it.

    Parameters
    ----------
    run : mapping
        As for :class:`View`.
    options : mapping
        ``view``, its name, and the options.

    Raises
    ------
    WidgetError
        When an option is not JSON; ``field`` names it.
    """

    def checked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with some changed. Only that they are JSON is known here."""
        return _plain({**self._current(), **changes})

    @validate("options")
    def _check_options(self, proposal: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return _plain(proposal["value"])
        except WidgetError as error:
            raise TraitError(error.message) from error

    def __getattr__(self, name: str) -> Any:
        options = self._trait_values.get("options") if not name.startswith("_") else None
        if options and name in options:
            return options[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _spread_options(self, change: Mapping[str, Any]) -> None:
        """Options of a view of others are no traits."""

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({self.run.get('name') or self.run.get('id')}: {given})"


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise WidgetError(f"{name} must be what JSON can hold, got {value!r:.100}.", name) from error
    return dict(options)
