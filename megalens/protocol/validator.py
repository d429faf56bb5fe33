"""The full check of JSON values against a schema, for what the quick check does not take."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

__all__ = ["full_validator", "load_lightly"]


def load_lightly() -> None:
    """Load jsonschema now, without the grammar of addresses: for a process of our own that answers others and must not stop for it."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    import jsonschema  # noqa: F401


def full_validator(definition: str, schema: Mapping[str, Any]) -> Draft202012Validator:
    """Return the validator of one definition of a schema, which says in words what is wrong with a value.

    Parameters
    ----------
    definition : str
        Name under ``$defs``.
    schema : mapping
        The whole schema.
    """
    # jsonschema takes more than a second to load, most of it for a grammar of addresses that no schema here needs; most
    # processes never see a value that is wrong.
    from jsonschema import Draft202012Validator

    return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]})
