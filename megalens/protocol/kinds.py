"""What can be chosen by name and parameters in a message: compressors, perturbations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from .errors import ProtocolError, must_be, no_such
from .messages_generated import CompressorSetting, ErrorCode, KindInfo
from .ranges import is_whole

__all__ = ["Kind", "chosen", "kind_from_setting", "kind_infos", "number", "switch", "text", "whole"]

_Kind = TypeVar("_Kind", bound="Kind")


@dataclass(frozen=True)
class Kind:
    """One of several kinds, with its parameters as fields. A form shows the docstring's first paragraph.

    Attributes
    ----------
    name, title : str
        In messages, and for people.
    properties : dict
        JSON Schema of each parameter: a number or a whole number with bounds, a text with bounds of its
        length, a truth value, or an enumeration. One without a default must be given. A class may give them
        as they are, or each with its field, by :func:`chosen` and its like.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    properties: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init_subclass__(cls) -> None:
        given = {name: each for name, each in vars(cls).items() if isinstance(each, Field)}
        if given:
            cls.properties = {name: each.metadata["schema"] for name, each in given.items()}

    def to_setting(self) -> CompressorSetting:
        """Return its name and all its parameters, as a message has them."""
        params = {name: int(value) if is_whole(value) else value for name, value in asdict(self).items()}
        return {"name": self.name, "params": params}


def number(title: str, description: str, low: float, high: float, default: float) -> dict[str, Any]:
    """Return the JSON Schema of a parameter that is a number with bounds."""
    return _schema("number", title, description, minimum=low, maximum=high, default=default)


def chosen(schema: dict[str, Any]) -> Any:
    """Return the field of a parameter with this JSON Schema, whose default it takes."""
    default = schema.get("default", "")
    return field(
        default=float(default) if schema.get("type") == "number" else default, metadata={"schema": schema}
    )


def whole(title: str, description: str, low: int, high: int, default: int) -> Any:
    """Return the field of a parameter that is a whole number with bounds."""
    return chosen(_schema("integer", title, description, minimum=low, maximum=high, default=default))


def text(title: str, description: str, most: int, **more: Any) -> Any:
    """Return the field of a parameter that is a text of 1 to so many characters."""
    return chosen(_schema("string", title, description, minLength=1, maxLength=most, **more))


def switch(title: str, description: str, default: bool) -> Any:
    """Return the field of a parameter that is a truth value."""
    return chosen(_schema("boolean", title, description, default=default))


def _schema(kind: str, title: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "title": title, "description": description, **more}


def kind_infos(kinds: Mapping[str, type[_Kind]]) -> list[KindInfo]:
    """Return the ``KindInfo`` of each kind, from which a form can be made."""
    return [
        {
            "name": name,
            "title": kind.title,
            "description": " ".join((kind.__doc__ or "").split("\n\n")[0].split()),
            "schema": {
                "type": "object",
                "additionalProperties": False,
                "required": [key for key, spec in kind.properties.items() if "default" not in spec],
                "properties": kind.properties,
            },
        }
        for name, kind in kinds.items()
    ]


def kind_from_setting(
    kinds: Mapping[str, type[_Kind]], setting: Mapping[str, Any], field: str, *, noun: str, unknown: ErrorCode
) -> _Kind:
    """Return what ``{"name": …, "params": …}`` means. Parameters that are left out take their defaults.

    ``field`` is the dotted name of the setting; ``noun`` what an error calls a kind.

    Raises
    ------
    ProtocolError
        ``unknown`` for a name that no kind has, or ``bad-parameter``, with the dotted field.
    """
    name = setting.get("name")
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise no_such(noun, name, kinds, f"{field}.name", unknown)
    values: dict[str, Any] = {}
    known = ", ".join(each.name for each in fields(kind)) or "none"
    for key, value in (setting.get("params") or {}).items():
        where = f"{field}.params.{key}"
        spec = kind.properties.get(key)
        if spec is None:
            raise ProtocolError(
                "bad-parameter",
                f"{name} has no parameter {key!r:.100}. It takes {known}.",
                field=where,
                expected=known,
                got=repr(key)[:200],
            )
        values[key] = _checked(f"{name}({key}=…)", value, spec, where)
    for key, spec in kind.properties.items():
        if key not in values and "default" not in spec:
            raise ProtocolError(
                "bad-parameter", f"{name} needs {key}: {spec['description']}", field=f"{field}.params.{key}"
            )
    return kind(**values)


def _checked(what: str, value: Any, spec: Mapping[str, Any], field: str) -> Any:
    fits, expected = _check(value, spec)
    if not fits:
        raise must_be(what, expected, value, field)
    return float(value) if spec.get("type") == "number" else value


def _check(value: Any, spec: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether a value fits, and what was expected. ``True`` equals 1, and is no number here."""
    if "enum" in spec:
        # 1.0 equals 1, too, and means no bit.
        fits = isinstance(value, (int, str)) and not isinstance(value, bool) and value in spec["enum"]
        return fits, f"'{spec['enum'][0]}' or a whole number from {spec['enum'][1]} to {spec['enum'][-1]}"
    if spec["type"] == "boolean":
        return isinstance(value, bool), "true or false"
    if spec["type"] == "string":
        low, high = spec["minLength"], spec["maxLength"]
        return isinstance(value, str) and low <= len(value) <= high, f"text of {low} to {high} characters"
    low, high = spec["minimum"], spec["maximum"]
    if spec["type"] == "integer":
        fits = is_whole(value, low) and value <= high
        return fits, f"a whole number from {low} to {high}"
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    # NaN compares as false; a whole number of 400 digits is no float, and compares all the same.
    return fits and low <= value <= high, f"a number from {low:g} to {high:g}"
