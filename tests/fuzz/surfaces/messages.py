"""Control messages as they come from a hub, a producer or a viewer."""

import json
from random import Random
from typing import Any

from megalens.protocol import ProtocolError, decode_message, encode_message
from megalens.protocol.contract import contract_json
from tests.fuzz.mutate import FIXTURES, instance, json_text, mutated_tree, schema_words
from tests.fuzz.surface import Surface

_SCHEMA = contract_json("messages.schema.json")
_WORDS = schema_words(_SCHEMA)


def message_seeds() -> list[Any]:
    """Return the golden messages and, in the other half of the cases, None for one made by the schema."""
    golden = [json.loads(path.read_text("utf-8")) for path in sorted((FIXTURES / "messages").glob("*.json"))]
    return [*golden, *[None] * len(golden)]


def made_message(chance: Random) -> Any:
    """Return a message that the schema takes, as a rule."""
    return instance(chance, chance.choice(_SCHEMA["oneOf"]), _SCHEMA["$defs"])


def mutated_message(chance: Random, seed: Any) -> str:
    """Return the text of a message, mostly a wrong one."""
    tree = made_message(chance) if seed is None else seed
    return json_text(chance, mutated_tree(chance, tree, _WORDS) if chance.random() < 0.9 else tree)


def _run(text: str) -> None:
    try:
        message = decode_message(text)
    except ProtocolError as error:
        # The refusal goes out again.
        encode_message(error.to_message()).encode("utf-8")
        raise
    json.dumps(message, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert encode_message(message)


SURFACE = Surface(message_seeds, mutated_message, _run, (ProtocolError,))
