"""Options of a view: a widget's arguments, a saved tab, a report's recipe."""

import json
from random import Random
from typing import Any

from megalens.protocol import VIEW_NAMES, ProtocolError, check_view_options, encode_message
from megalens.protocol.contract import contract_json
from tests.fuzz.mutate import hostile_value, instance, mutated_tree, schema_words
from tests.fuzz.surface import Surface

_SCHEMA = contract_json("views.schema.json")
_WORDS = schema_words(_SCHEMA)


def made_options(chance: Random) -> Any:
    """Return options that the schema takes, as a rule."""
    return instance(chance, chance.choice(_SCHEMA["oneOf"]), _SCHEMA["$defs"])


def _mutate(chance: Random, _: Any) -> Any:
    kind = chance.random()
    tree = made_options(chance)
    return (
        tree if kind < 0.1 else hostile_value(chance) if kind < 0.15 else mutated_tree(chance, tree, _WORDS)
    )


def _run(options: Any) -> None:
    try:
        full = check_view_options(options)
    except ProtocolError as error:
        # Where a hub or a server says it on.
        encode_message(error.to_message()).encode("utf-8")
        raise
    assert full["view"] in VIEW_NAMES
    assert check_view_options(full) == full
    json.dumps(full, allow_nan=False, ensure_ascii=False).encode("utf-8")


SURFACE = Surface(lambda: [None], _mutate, _run, (ProtocolError,))
