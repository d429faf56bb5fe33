"""View options as attributes of a widget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from traitlets import TraitType

from ...protocol import (
    LAST_STEP,
    is_whole,
    join_numbers,
    must_be,
    option_name,
    option_schema,
    ranges_text,
    read_steps,
)

if TYPE_CHECKING:
    from .base import View

__all__ = ["Option", "plain_option", "python_value"]


class Option(TraitType[Any, Any]):
    """One view option as a trait: setting it checks it against the view's schema and changes the view's ``options``."""

    default_value: Any = None
    allow_none = True

    def validate(self, obj: View, value: Any) -> Any:
        """Return the value as it will stand in ``options``, or raise :class:`WidgetError`."""
        assert self.name is not None
        name = option_name(self.name)
        plain = value if obj._spreading else obj.checked({self.name: value})[name]
        return python_value(option_schema(obj.view_name, name), plain)


def plain_option(schema: Mapping[str, Any], value: Any) -> Any:
    """Return what a person may write for an option in the form that the schema has for it.

    What is taken besides is the schema's ``x-input``: ``ranges`` a number or numbers (``3``, ``range(4)``), ``steps`` a step, range or slice, ``words`` one text, ``runs`` runs;
    numpy's numbers wherever numbers are; the members of a filter each in their own way. Whatever is none of these is returned as it is, for the schema to refuse.
    """
    form = schema.get("x-input")
    if form == "steps":
        return _plain_steps(value)
    if not isinstance(value, type) and hasattr(value, "tolist"):
        value = value.tolist()
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
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        return value
    return [each.tolist() if hasattr(each, "tolist") else each for each in value]


def python_value(schema: Mapping[str, Any], value: Any) -> Any:
    """Return an option's value as Python has it: of steps a range, or a slice that is open, so that it can be given to a call again."""
    if schema.get("x-input") != "steps" or not isinstance(value, list):
        return value
    # JSON Schema takes 6.0 for an integer.
    first, last = map(int, value)
    return range(first, last + 1) if last < LAST_STEP else slice(first, None)


def _plain_steps(value: Any) -> list[int] | None:
    # Code that views wrote had both ends in a list, so that a list of two is still read so.
    ranges = read_steps(value, pairs=(tuple, list))
    if ranges is None:
        return None
    if len(ranges) != 1:
        expected = "steps without a gap, such as range(10, 20)"
        raise must_be("steps=…", expected, value, "steps")
    return list(ranges[0])


def _plain_range(value: Any) -> Any:
    if is_whole(value):
        return str(int(value))
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return value
    try:
        # Nothing stays nothing, which the schema refuses.
        return ranges_text(join_numbers(value)) or []
    except (TypeError, ValueError, AttributeError):
        return list(value)
