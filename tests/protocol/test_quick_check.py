"""The quick check of messages takes nothing that the schema refuses, and all that programs really send."""

import json
import time
import tracemalloc

import pytest
from fuzzing import golden_messages, mutated_message
from jsonschema import Draft202012Validator

from megalens.protocol import VIEW_NAMES, ProtocolError, check_message, view_defaults
from megalens.protocol.contract import contract_json
from megalens.protocol.quick_check import quick_check

SCHEMA = contract_json("messages.schema.json")
ANY = {"anyOf": SCHEMA["oneOf"]}


def test_every_golden_message_passes():
    check = quick_check(ANY, SCHEMA["$defs"])
    assert all(check(json.loads(text)) for text in golden_messages())


@pytest.mark.slow
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
        ({"x-view": {}, "type": "integer"}, "1"),
    ],
)
def test_what_is_wrong_or_not_understood_is_left_to_the_full_validator(schema, value):
    assert not quick_check(schema, {})(value)


def test_options_of_views_pass_or_the_full_validator_says_what_is_wrong():
    views = contract_json("views.schema.json")
    for view in VIEW_NAMES:
        schema = {"$ref": f"#/$defs/{view.title()}"}
        check = quick_check(schema, views["$defs"])
        full = Draft202012Validator({**schema, "$defs": views["$defs"]})
        options = {"view": view, **view_defaults(view), "flag": "MLP1_mat_mul"}
        if view in ("scalars", "moments"):
            del options["flag"]
        assert check(options)
        for name in options:
            for wrong in (True, -1, 1.5, "what", [None], {"which": 1}):
                other = {**options, name: wrong}
                assert not check(other) or full.is_valid(other), other


@pytest.mark.parametrize(
    "phases", [[0] * 30_000, ["train"] * 30_000, [{}, 0] * 15_000, [["train"]] * 30_000, "x" * 500_000]
)
def test_what_is_wrong_with_a_large_message_is_found_in_linear_time(phases):
    setting = {"compressor": {"name": "Tile"}, "phases": phases}
    patch = {"flags": {**{f"f{at}": {"compressor": {"name": "Tile"}} for at in range(500)}, "last": setting}}
    check_message({"type": "configure", "id": "a", "patch": {"flags": {}}})
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(ProtocolError) as caught:
        check_message({"type": "configure", "id": "a", "patch": patch})
    assert time.process_time() - began < 2
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert caught.value.field.startswith("patch.flags.last.phases")
