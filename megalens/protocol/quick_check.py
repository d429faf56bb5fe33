"""A check of JSON values against a schema that takes microseconds where they fit, which nearly all do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["quick_check"]

_Check = Callable[[Any], bool]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = frozenset(
    [
        "$ref",
        "type",
        "enum",
        "const",
        "anyOf",
        "properties",
        "required",
        "additionalProperties",
        "minProperties",
        "maxProperties",
        "items",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
    ]
)
_REMARKS = frozenset(("title", "description", "default", "examples"))


def quick_check(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Check:
    """Return a function that tells whether a JSON value certainly fits ``schema``.

    It answers True only for a value that fits. False means that a full validator has to look: the value is wrong, or the schema says
    something that is not understood here.

    Parameters
    ----------
    schema : mapping
        A JSON Schema.
    definitions : mapping
        What ``#/$defs/…`` refers to.
    """
    return _Compiler(definitions).compile(schema)


class _Compiler:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._named: dict[str, _Check] = {}

    def compile(self, schema: Any) -> _Check:
        if schema is True:
            return lambda value: True
        if not isinstance(schema, Mapping):
            return lambda value: False
        # Words of our own (x-view) say nothing of which values fit.
        if any(not word.startswith("x-") for word in set(schema) - _WORDS - _REMARKS):
            return lambda value: False
        checks = list(self._checks(schema))
        if len(checks) == 1:
            return checks[0]
        if len(checks) == 2:
            first, second = checks
            return lambda value: first(value) and second(value)

        def check(value: Any) -> bool:
            for each in checks:  # noqa: SIM110 - a generator takes twice as long
                if not each(value):
                    return False
            return True

        return check

    def _checks(self, schema: Mapping[str, Any]) -> list[_Check]:
        checks: list[_Check] = []
        if "$ref" in schema:
            checks.append(self._reference(schema["$ref"]))
        if "type" in schema:
            names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            kinds = frozenset(kind for name in names for kind in _TYPES[name])
            only = next(iter(kinds)) if len(kinds) == 1 else None
            checks.append(
                (lambda value: type(value) in kinds) if only is None else (lambda value: type(value) is only)
            )
        if "enum" in schema or "const" in schema:
            # Numbers and booleans that equal each other are left to the full validator.
            known = [value for value in schema.get("enum", [schema.get("const")]) if isinstance(value, str)]
            checks.append(lambda value: isinstance(value, str) and value in known)
        if "anyOf" in schema:
            branches = [self.compile(branch) for branch in schema["anyOf"]]
            checks.append(lambda value: any(branch(value) for branch in branches))
        checks += self._of_objects(schema)
        checks += _of_lists(schema, self.compile(schema.get("items", True)))
        checks += _of_texts(schema)
        checks += _of_numbers(schema)
        return checks

    def _reference(self, reference: str) -> _Check:
        name = reference.removeprefix("#/$defs/")
        if name not in self._named:
            # Set before it is compiled: a definition may refer to itself.
            self._named[name] = lambda value: False
            self._named[name] = self.compile(self._definitions.get(name))
        return self._named[name]

    def _of_objects(self, schema: Mapping[str, Any]) -> list[_Check]:
        if not {"properties", "required", "additionalProperties", "minProperties", "maxProperties"} & set(
            schema
        ):
            return []
        known = {name: self.compile(inner) for name, inner in schema.get("properties", {}).items()}
        required = frozenset(schema.get("required", ()))
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", float("inf"))
        others = schema.get("additionalProperties", True)
        other = (lambda value: False) if others is False else self.compile(others)

        def check(value: Any) -> bool:
            if not isinstance(value, dict):
                return True
            if not least <= len(value) <= most or not required <= value.keys():
                return False
            for name, inner in value.items():  # noqa: SIM110 - as above
                if not known.get(name, other)(inner):
                    return False
            return True

        return [check]


def _of_lists(schema: Mapping[str, Any], item: _Check) -> list[_Check]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", float("inf"))
    if not {"items", "minItems", "maxItems", "uniqueItems"} & set(schema):
        return []
    unique = bool(schema.get("uniqueItems"))

    def check(value: Any) -> bool:
        if not isinstance(value, list):
            return True
        if unique and not (all(type(inner) is str for inner in value) and len(set(value)) == len(value)):
            return False
        return least <= len(value) <= most and all(map(item, value))

    return [check]


def _of_texts(schema: Mapping[str, Any]) -> list[_Check]:
    if not {"minLength", "maxLength", "pattern"} & set(schema):
        return []
    least, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
    pattern = re.compile(schema.get("pattern", ""))
    return [
        lambda value: (
            not isinstance(value, str) or (least <= len(value) <= most and pattern.search(value) is not None)
        )
    ]


def _of_numbers(schema: Mapping[str, Any]) -> list[_Check]:
    if not {"minimum", "maximum", "exclusiveMinimum"} & set(schema):
        return []
    least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    above = schema.get("exclusiveMinimum", float("-inf"))
    return [lambda value: not isinstance(value, (int, float)) or (least <= value <= most and value > above)]
