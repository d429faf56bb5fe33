"""The full check of JSON values against a schema, for what the quick check does not take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from .quick_check import quick_check

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

__all__ = ["full_validator", "load_lightly"]

_MOST_ERRORS = 8
"""So many errors of each branch are looked at for the one that says most."""


def load_lightly() -> None:
    """Load jsonschema now, without the grammar of addresses: for a process of our own that answers others and must not stop for it."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    import jsonschema  # noqa: F401


def full_validator(definition: str, schema: Mapping[str, Any]) -> Draft202012Validator:
    """Return the validator of one definition of a schema, which says in words what is wrong with a value.

    Its first error takes time and memory linear in the value. As it is, jsonschema spends a tenth of a millisecond on each value that is right, and makes an
    error of each that is wrong in a branch of ``anyOf``: a minute and a gigabyte for a list of 300,000 in one message.

    Parameters
    ----------
    definition : str
        Name under ``$defs``.
    schema : mapping
        The whole schema.
    """
    return _kind_for(schema["$defs"])({"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]})


_KINDS: dict[int, tuple[Mapping[str, Any], type[Draft202012Validator]]] = {}
"""By identity, the definitions of a schema of this package with their validator."""


def _kind_for(definitions: Mapping[str, Any]) -> type[Draft202012Validator]:
    if id(definitions) not in _KINDS:
        _KINDS[id(definitions)] = definitions, _make_kind(definitions)
    return _KINDS[id(definitions)][1]


def _make_kind(definitions: Mapping[str, Any]) -> type[Draft202012Validator]:
    # jsonschema takes more than a second to load, most of it for a grammar of addresses that no schema here needs; most
    # processes never see a value that is wrong.
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    checks: dict[int, tuple[Any, Callable[[Any], bool]]] = {}

    def any_of(validator: Any, branches: Any, instance: Any, schema: Any) -> Iterator[Any]:
        errors: list[Any] = []
        for place, branch in enumerate(branches):
            found = list(islice(validator.descend(instance, branch, schema_path=place), _MOST_ERRORS))
            if not found:
                return
            errors += found
        yield ValidationError(f"{instance!r} is not valid under any of the given schemas", context=errors)

    def descend(validator: Any, instance: Any, schema: Any, *where: Any, **named: Any) -> Iterator[Any]:
        # With the schema itself, whose identity is free for another once it is gone.
        if id(schema) not in checks:
            checks[id(schema)] = schema, quick_check(schema, definitions)
        if not checks[id(schema)][1](instance):
            yield from Draft202012Validator.descend(validator, instance, schema, *where, **named)

    kind: Any = extend(Draft202012Validator, {"anyOf": any_of})  # type: ignore[no-untyped-call]
    kind.descend = descend
    return kind  # type: ignore[no-any-return]
