"""Options of views (of a widget, a tab, a report's recipe), checked against ``views.schema.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from keyword import iskeyword
from typing import Any

from .contract import SchemaCheck, contract_json, schema_check
from .errors import ProtocolError, must_be, no_such

__all__ = [
    "VIEW_NAMES",
    "check_view_options",
    "option_name",
    "option_schema",
    "python_name",
    "view_about",
    "view_defaults",
    "view_fields",
    "view_named",
]

_SCHEMA: dict[str, Any] = contract_json("views.schema.json")
_DEFINITIONS: dict[str, str] = {
    _SCHEMA["$defs"][name]["properties"]["view"]["const"]: name
    for name in (entry["$ref"].rsplit("/", 1)[1] for entry in _SCHEMA["oneOf"])
}
VIEW_NAMES: tuple[str, ...] = tuple(_DEFINITIONS)


def view_about(view: str) -> dict[str, Any]:
    """Return what the contract says of a view: method, title, needs, report, …. Not to be changed."""
    about: dict[str, Any] = _SCHEMA["$defs"][_DEFINITIONS[view]]["x-view"]
    return about


def view_named(name: str) -> str:
    """Return the view that has, or had, this name, or whose method or title it is; else the name."""
    about = {view: view_about(view) for view in VIEW_NAMES}
    methods = {each["method"]: view for view, each in about.items()}
    titles = {each["title"].lower(): view for view, each in about.items()}
    before = {old: view for view, each in about.items() for old in each.get("was", ())}
    if name in _DEFINITIONS:
        return name
    return methods.get(name) or titles.get(name.lower()) or before.get(name, name)


def option_schema(view: str, option: str) -> dict[str, Any]:
    """Return the schema of one option with its definition resolved; empty where the view lacks the option."""
    return _resolved(_properties(view).get(option, {}))


def view_fields(view: str) -> tuple[str, ...]:
    """Return the option names of one view, without ``view`` itself, in the order of the schema."""
    return tuple(name for name in _properties(view) if name != "view")


def python_name(option: str) -> str:
    """Return an option's name as a Python argument and attribute: ``pass_`` for the keyword ``pass``."""
    return f"{option}_" if iskeyword(option) else option


def option_name(argument: str) -> str:
    """Return the option that a Python argument or attribute means."""
    return argument.removesuffix("_") if iskeyword(argument.removesuffix("_")) else argument


def view_defaults(view: str) -> dict[str, Any]:
    """Return the default of every option of one view that has one."""
    return {name: spec["default"] for name, spec in _properties(view).items() if "default" in spec}


def check_view_options(options: Mapping[str, Any], field: str = "") -> dict[str, Any]:
    """Return the options (``view`` among them) with every default filled in.

    Parameters
    ----------
    field : str
        Dotted path of the options, put before the option's name in an error.

    Raises
    ------
    ProtocolError
        ``bad-parameter`` with the dotted field of the first option at fault.
    """
    prefix = f"{field}." if field else ""
    view = options.get("view") if isinstance(options, Mapping) else None
    if isinstance(view, str):
        options = {**options, "view": (view := view_named(view))}
    if not isinstance(view, str) or view not in _DEFINITIONS:
        raise no_such("view", view, VIEW_NAMES, f"{prefix}view")
    filled = {"view": view, **view_defaults(view), **options}
    if filled.get("statistic") == "abs_mean":
        # What compressors kept was saved by its plain name before whole tensors had statistics.
        filled["statistic"] = "kept_abs_mean"
    misfit = _check_of(view)(dict(sorted(filled.items())))
    if misfit is not None:
        raise _explain([str(part) for part in misfit.path], view, filled, prefix)
    _check_whole(filled, view, prefix)
    return filled


def _check_whole(options: Mapping[str, Any], view: str, prefix: str) -> None:
    """Refuse halves of surrogate pairs and infinite numbers, which no file and no viewer can take."""
    for name, value in options.items():
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except ValueError as error:
            half = isinstance(error, UnicodeEncodeError)
            expected = "whole text, without halves of surrogate pairs" if half else "finite numbers"
            what = f"{view_about(view)['method']}({python_name(name)}=…)"
            raise must_be(what, expected, value, f"{prefix}{name}") from None


def _properties(view: str) -> dict[str, dict[str, Any]]:
    properties: dict[str, dict[str, Any]] = _SCHEMA["$defs"][_DEFINITIONS[view]]["properties"]
    return properties


@cache
def _check_of(view: str) -> SchemaCheck:
    return schema_check({"$ref": f"#/$defs/{_DEFINITIONS[view]}"}, _SCHEMA["$defs"])


def _explain(path: list[str], view: str, options: Mapping[str, Any], prefix: str) -> ProtocolError:
    known = view_fields(view)
    if path:
        name, value, spec = python_name(path[0]), options[path[0]], option_schema(view, path[0])
        # A filter is an object of its own: the member at fault is what must be another.
        if isinstance(value, Mapping) and len(path) > 1 and path[1] in spec.get("properties", {}):
            name, value = f"{name}.{path[1]}", value[path[1]]
            spec = spec["properties"][path[1]]
        what = f"{view_about(view)['method']}({name}=…)"
        return must_be(what, _expected(spec), value, prefix + ".".join(path))
    unknown = [name for name in options if name not in known and name != "view"]
    if unknown:
        message = f"{view} has no option {_short(unknown[0])}. It takes {', '.join(known)}."
        return ProtocolError(
            "bad-parameter",
            message,
            field=f"{prefix}{unknown[0]}",
            expected=", ".join(known),
            got=_short(unknown[0]),
        )
    required: list[str] = _SCHEMA["$defs"][_DEFINITIONS[view]]["required"]
    missing = next(name for name in required if name not in options)
    return ProtocolError(
        "bad-parameter",
        f"{view} needs {missing}: {_properties(view)[missing].get('description', 'which one to draw')}",
        field=f"{prefix}{missing}",
    )


def _resolved(spec: dict[str, Any]) -> dict[str, Any]:
    definition: dict[str, Any] = _SCHEMA["$defs"][spec["$ref"].rsplit("/", 1)[1]] if "$ref" in spec else {}
    resolved = {**spec, **definition}
    if "properties" in resolved:
        resolved["properties"] = {name: _resolved(each) for name, each in resolved["properties"].items()}
    return resolved


def _expected(spec: Mapping[str, Any]) -> str:
    if "enum" in spec:
        return "one of " + ", ".join(map(str, spec["enum"]))
    kinds = spec["type"] if isinstance(spec["type"], list) else [spec["type"]]
    words = {
        "string": "text",
        "integer": f"a whole number{_bounds(spec)}",
        "number": f"a number{_bounds(spec)}",
        "boolean": "True or False",
        "array": _list_words(spec),
        "object": f"a dict with any of {', '.join(spec.get('properties', {}))}",
        "null": "None",
    }
    text = " or ".join(words[kind] for kind in kinds)
    return f"{text}, {spec['description'].rstrip('.')}" if "pattern" in spec else text


def _bounds(spec: Mapping[str, Any]) -> str:
    if "minimum" not in spec:
        return ""
    return f" from {spec['minimum']}" + (f" to {spec['maximum']}" if "maximum" in spec else "")


def _list_words(spec: Mapping[str, Any]) -> str:
    items = spec.get("items", {})
    bound = f"at most {spec['maxItems']}" if "maxItems" in spec else ""
    once = ", none twice" if spec.get("uniqueItems") else ""
    if "enum" in items:
        return f"a list of {f'{bound} of' if bound else 'any of'} {', '.join(items['enum'])}{once}"
    if items.get("type") == "string":
        return f"a list of {bound} texts" if bound else "a list of text"
    return "two whole numbers, first and last"


def _short(value: object) -> str:
    return f"{value!r:.100}"
