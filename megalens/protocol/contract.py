"""The contract's JSON files, and checks by their schemas (twin: ``src/protocol/schema-check.ts``)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["contract_file", "contract_json", "SchemaCheck", "schema_check"]

_PACKAGED = Path(__file__).parent / "contract"
_CHECKOUT = Path(__file__).parents[2] / "protocol"

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = frozenset((
    "$ref", "type", "enum", "const", "anyOf", "properties", "required", "additionalProperties",
    "minProperties", "maxProperties", "propertyNames", "items", "minItems", "maxItems", "uniqueItems",
    "minLength", "maxLength", "pattern", "minimum", "maximum", "exclusiveMinimum",
))  # fmt: skip
_REMARKS = frozenset(("title", "description", "default", "examples"))
_OBJECT_WORDS = frozenset(
    ("properties", "required", "additionalProperties", "minProperties", "maxProperties", "propertyNames")
)


class Misfit(NamedTuple):
    """Where a value does not fit its schema, and why.

    Attributes
    ----------
    path : tuple of str or int
        Names and indices from the value's root on.
    words : str
        What was expected, after "it": ``must be one of train, eval``.
    """

    path: tuple[str | int, ...]
    words: str
    got: object

    def within(self, name: str | int) -> Misfit:
        """Return the same, seen from the value that has it under a name or an index."""
        return self._replace(path=(name, *self.path))


SchemaCheck = Callable[[Any], Misfit | None]
"""Says where a value does not fit; None where it fits."""


def schema_check(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], *, whole: bool = False
) -> SchemaCheck:
    """Compile a JSON Schema (2020-12), in which ``#/$defs/…`` refers to ``definitions``, to a check.

    Time and memory are linear in the value, and the first misfit ends it. A library would take a hundred
    times as long for each value that fits, and more than a second to load. ``whole`` refuses 6.0 as an
    integer, which JSON Schema takes for one and Python cannot count with.

    Raises
    ------
    ValueError
        When it has a word that is not understood. Words of our own (``x-view``) do not restrict values.
    """
    return _Compiler(definitions, whole).compile(schema)


def _fits(value: Any) -> None:
    return None


class _Compiler:
    def __init__(self, definitions: Mapping[str, Any], whole: bool) -> None:
        self._definitions = definitions
        self._whole = whole
        self._named: dict[str, SchemaCheck] = {}

    def compile(self, schema: Any) -> SchemaCheck:
        if schema is True:
            return _fits
        strange = [word for word in set(schema) - _WORDS - _REMARKS if not word.startswith("x-")]
        if strange:
            raise ValueError(
                f"A schema must use only the words {', '.join(sorted(_WORDS))}, got {strange[0]}."
            )
        checks: list[SchemaCheck] = []
        if "$ref" in schema:
            checks.append(self._reference(schema["$ref"].removeprefix("#/$defs/")))
        if "type" in schema:
            checks.append(_of_type(schema["type"], self._whole))
        if "enum" in schema or "const" in schema:
            checks.append(_of_words(schema.get("enum", [schema.get("const")])))
        if "anyOf" in schema:
            checks.append(_any_of([self.compile(branch) for branch in schema["anyOf"]]))
        if {"minLength", "maxLength", "pattern"} & schema.keys():
            checks.append(_of_texts(schema))
        if {"minimum", "maximum", "exclusiveMinimum"} & schema.keys():
            checks.append(_of_numbers(schema))
        if {"items", "minItems", "maxItems", "uniqueItems"} & schema.keys():
            checks.append(_of_lists(schema, self.compile(schema.get("items", True))))
        if _OBJECT_WORDS & schema.keys():
            checks.append(self._of_objects(schema))
        if len(checks) == 1:
            return checks[0]

        def check(value: Any) -> Misfit | None:
            for each in checks:
                if (found := each(value)) is not None:
                    return found
            return None

        return check

    def _reference(self, name: str) -> SchemaCheck:
        if name not in self._named:
            # Set before it is compiled: a definition may refer to itself.
            self._named[name] = lambda value: self._named[name](value)
            self._named[name] = self.compile(self._definitions[name])
        return self._named[name]

    def _of_objects(self, schema: Mapping[str, Any]) -> SchemaCheck:
        known = {name: self.compile(inner) for name, inner in schema.get("properties", {}).items()}
        required: list[str] = schema.get("required", [])
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", inf)
        called = self.compile(schema.get("propertyNames", True))
        others = schema.get("additionalProperties", True)
        other = _fits if others is False else self.compile(others)

        def check(value: Any) -> Misfit | None:
            if not isinstance(value, dict):
                return None
            if not least <= len(value) <= most:
                return Misfit((), f"must have {_range(least, most)} members, got {len(value)}", value)
            for name in required:
                if name not in value:
                    return Misfit((), f"lacks the member {name}", value)
            for name in value.keys() - known.keys() if others is False else ():
                return Misfit((), f"has a member that is not known here, {name!r:.100}", value)
            for name, inner in value.items():
                if called is not _fits and (found := called(name)) is not None:
                    return found
                if (found := known.get(name, other)(inner)) is not None:
                    return found.within(name)
            return None

        return check


def _of_type(named: str | list[str], whole: bool) -> SchemaCheck:
    names = [named] if isinstance(named, str) else named
    kinds = frozenset(kind for name in names for kind in _TYPES[name])
    whole = whole or int not in kinds
    words = f"must be of type {' or '.join(names)}"

    def check(value: Any) -> Misfit | None:
        if type(value) in kinds or (not whole and type(value) is float and value.is_integer()):
            return None
        return Misfit((), f"{words}, got {_short(value)}", value)

    return check


def _of_words(known: list[Any]) -> SchemaCheck:
    # True equals 1, and is another value.
    pairs = {(each, isinstance(each, bool)) for each in known}
    words = f"must be one of {', '.join(map(str, known))}"[:300]

    def check(value: Any) -> Misfit | None:
        if not isinstance(value, (dict, list)) and (value, isinstance(value, bool)) in pairs:
            return None
        return Misfit((), f"{words}, got {_short(value)}", value)

    return check


def _any_of(branches: list[SchemaCheck]) -> SchemaCheck:
    def check(value: Any) -> Misfit | None:
        found = []
        for branch in branches:
            misfit = branch(value)
            if misfit is None:
                return None
            found.append(misfit)
        # The branch that got furthest into the value says most; of several each says what it takes.
        deepest = max(found, key=lambda misfit: len(misfit.path))
        equal = [one.words.partition(", got ") for one in found if one.path == deepest.path]
        words = " or ".join(dict.fromkeys(before for before, _, _ in equal))
        return deepest._replace(words=f"{words}{equal[-1][1]}{equal[-1][2]}")

    return check


def _of_lists(schema: Mapping[str, Any], item: SchemaCheck) -> SchemaCheck:
    least, most = schema.get("minItems", 0), schema.get("maxItems", inf)
    unique = bool(schema.get("uniqueItems"))

    def check(value: Any) -> Misfit | None:
        if not isinstance(value, list):
            return None
        if not least <= len(value) <= most:
            return Misfit((), f"must have {_range(least, most)} entries, got {len(value)}", value)
        for at, each in enumerate(value):
            if (found := item(each)) is not None:
                return found.within(at)
        if unique and len({json.dumps(each, sort_keys=True) for each in value}) < len(value):
            return Misfit((), "must not have an entry twice", value)
        return None

    return check


def _of_texts(schema: Mapping[str, Any]) -> SchemaCheck:
    least, most = schema.get("minLength", 0), schema.get("maxLength", inf)
    pattern = re.compile(schema.get("pattern", ""))

    def check(value: Any) -> Misfit | None:
        if not isinstance(value, str):
            return None
        if not least <= len(value) <= most:
            return Misfit((), f"must have {_range(least, most)} characters, got {len(value)}", value)
        if pattern.search(value) is None:
            return Misfit((), f"must match {pattern.pattern}, got {_short(value)}", value)
        return None

    return check


def _of_numbers(schema: Mapping[str, Any]) -> SchemaCheck:
    least, most = schema.get("minimum", -inf), schema.get("maximum", inf)
    above = schema.get("exclusiveMinimum", -inf)
    bounds = [f"above {above}"] if above > -inf else []
    bounds += [_range(least, most)] if (least, most) != (-inf, inf) else []

    def check(value: Any) -> Misfit | None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        if least <= value <= most and value > above:
            return None
        return Misfit((), f"must be {', '.join(bounds)}, got {_short(value)}", value)

    return check


def _range(least: float, most: float) -> str:
    if least == most:
        return str(least)
    if most == inf:
        return f"at least {least}"
    return f"at most {most}" if least < 0 else f"{least} to {most}"


def _short(value: object) -> str:
    return "an object or a list" if isinstance(value, (dict, list)) else f"{value!r:.100}"


def contract_file(name: str) -> Path:
    """Return the path of a file of ``protocol/``, such as ``streams.json``, in a wheel or in a checkout.

    Raises
    ------
    FileNotFoundError
        When this installation lacks the file.
    """
    for folder in (_PACKAGED, _CHECKOUT):
        path = folder / name
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"Megalens's contract file {name} is missing from this installation. Reinstall megalens."
    )


@cache
def contract_json(name: str) -> Any:
    """Return one parsed contract file. The result is shared: do not change it."""
    return json.loads(contract_file(name).read_text(encoding="utf-8"))
