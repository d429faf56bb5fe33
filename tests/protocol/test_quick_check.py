"""The quick check of messages takes nothing that the schema refuses, and all that programs really send."""

import json

import pytest
from fuzzing import golden_messages, mutated_message
from jsonschema import Draft202012Validator

from megalens.protocol.contract import contract_json
from megalens.protocol.quick_check import quick_check

SCHEMA = contract_json("messages.schema.json")
ANY = {"anyOf": SCHEMA["oneOf"]}


def test_every_golden_message_passes():
    check = quick_check(ANY, SCHEMA["$defs"])
    assert all(check(json.loads(text)) for text in golden_messages())


def test_what_it_takes_the_full_validator_takes():
    check = quick_check(ANY, SCHEMA["$defs"])
    full = Draft202012Validator({**ANY, "$defs": SCHEMA["$defs"]})
    seeds = golden_messages()
    taken = 0
    for number in range(3000):
        try:
            message = json.loads(mutated_message(seeds, number))
        except (ValueError, RecursionError):
            continue
        if check(message):
            taken += 1
            assert full.is_valid(message), message
    assert taken > 300


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, True),
        ({"type": "integer", "minimum": 1}, 0),
        ({"type": "number", "exclusiveMinimum": 0}, 0),
        ({"type": "string", "maxLength": 2}, "abc"),
        ({"type": "string", "pattern": "^a"}, "ba"),
        ({"type": "array", "uniqueItems": True}, ["a", "a"]),
        ({"type": "array", "minItems": 1}, []),
        ({"type": "object", "minProperties": 1}, {}),
        ({"type": "object", "additionalProperties": False}, {"a": 1}),
        ({"enum": ["a"]}, "b"),
        ({"oneOf": [{}]}, 1),
    ],
)
def test_what_is_wrong_or_not_understood_is_left_to_the_full_validator(schema, value):
    assert not quick_check(schema, {})(value)
