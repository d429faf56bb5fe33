"""View options as attributes of a widget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from traitlets import TraitType

from ..protocol import join_numbers, option_name, ranges_text

if TYPE_CHECKING:
    from .base import View

__all__ = ["Option", "plain_option"]


class Option(TraitType[Any, Any]):
    """One view option as a trait: setting it checks it against the view's schema and changes the view's ``options``."""

    default_value: Any = None
    allow_none = True

    def validate(self, obj: View, value: Any) -> Any:
        """Return the value as it will stand in ``options``, or raise :class:`WidgetError`."""
        assert self.name is not None
        return obj.checked({self.name: value})[option_name(self.name)]


def plain_option(schema: Mapping[str, Any], value: Any) -> Any:
    """Return what a person may write for an option in the form that the schema has for it.

    What is taken besides is the schema's ``x-input``: ``ranges`` a number or numbers (``3``, ``range(4)``), ``words`` one text, ``runs`` runs; the
    members of a filter each in their own way. Whatever is none of these is returned as it is, for the schema to refuse.
    """
    form = schema.get("x-input")
    if form == "ranges":
        return _plain_range(value)
    if isinstance(value, str):
        return [value] if form in ("words", "runs") else value
    if isinstance(value, Mapping):
        members = schema.get("properties", {})
        return {name: plain_option(members.get(name, {}), each) for name, each in value.items()}
    if form == "runs" and value is not None:
        several = value if isinstance(value, list | tuple | set) else [value]
        return [getattr(each, "id", each) for each in several]
    return value if isinstance(value, bytes) or not isinstance(value, Iterable) else list(value)


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
