"""View options as attributes of a widget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from traitlets import TraitType

from ..protocol import join_numbers, option_name, ranges_text

if TYPE_CHECKING:
    from .base import View

__all__ = ["Option", "plain_option"]

_RANGED = ("layers", "positions")
_LISTED = ("names", "by", "runs")
# Members of a filter that hold range texts; the others but `name` hold lists of words.
_RANGED_COLUMNS = ("layer", "expert", "rank", "stage")


class Option(TraitType[Any, Any]):
    """One view option as a trait: setting it checks it against the view's schema and changes the view's ``options``."""

    default_value: Any = None
    allow_none = True

    def validate(self, obj: View, value: Any) -> Any:
        """Return the value as it will stand in ``options``, or raise :class:`WidgetError`."""
        assert self.name is not None
        return obj.checked({self.name: value})[option_name(self.name)]


def plain_option(name: str, value: Any) -> Any:
    """Return what a person may write for an option in the form that the schema has for it.

    ``layers`` and ``positions`` may be a number or numbers (``3``, ``range(1, 5)``), ``steps`` a tuple, ``names``, ``by`` and ``runs`` one text, ``runs`` runs. In
    ``where``, columns of numbers may be given as ``layers`` are, and one word for a list of words. Whatever is none of these is returned as it is, for the
    schema to refuse.
    """
    if name in _RANGED:
        return _plain_range(value)
    if name == "where" and isinstance(value, Mapping):
        return {column: _plain_filter(column, wanted) for column, wanted in value.items()}
    if name == "runs" and value is not None and not isinstance(value, str | bytes):
        several = value if isinstance(value, list | tuple | set) else [value]
        return [getattr(each, "id", each) for each in several]
    if name in _LISTED and isinstance(value, str):
        return [value]
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return value
    return list(value)


def _plain_filter(column: str, wanted: Any) -> Any:
    if column in _RANGED_COLUMNS:
        return _plain_range(wanted)
    if column == "name" or isinstance(wanted, Mapping) or not isinstance(wanted, Iterable):
        return wanted
    return [wanted] if isinstance(wanted, str) else list(wanted)


def _plain_range(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return value
    try:
        # Nothing stays nothing, which the schema refuses.
        return ranges_text(join_numbers(value)) or []
    except (TypeError, ValueError, AttributeError):
        return list(value)
