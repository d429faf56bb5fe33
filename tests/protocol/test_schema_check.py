"""The check of messages and options says of every value what jsonschema says."""

import json
import time
import tracemalloc

import pytest
from fuzzing import golden_messages, mutated_message
from jsonschema import Draft202012Validator

from megalens.protocol import VIEW_NAMES, ProtocolError, check_message, view_defaults
from megalens.protocol.contract import contract_json, schema_check

SCHEMA = contract_json("messages.schema.json")
ANY = {"anyOf": SCHEMA["oneOf"]}


def test_every_golden_message_passes():
    check = schema_check(ANY, SCHEMA["$defs"])
    assert not any(check(json.loads(text)) for text in golden_messages())


@pytest.mark.slow
def test_it_takes_what_jsonschema_takes_and_nothing_else():
    check = schema_check(ANY, SCHEMA["$defs"])
    full = Draft202012Validator({**ANY, "$defs": SCHEMA["$defs"]})
    seeds = golden_messages()
    taken = 0
    for number in range(1000):
        try:
            message = json.loads(mutated_message(seeds, number))
        except (ValueError, RecursionError):
            continue
        assert (check(message) is None) == full.is_valid(message), message
        taken += check(message) is None
    assert taken > 100


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
        ({"x-view": {}, "type": "integer"}, "1"),
    ],
)
def test_what_is_wrong_is_named(schema, value):
    assert not Draft202012Validator(schema).is_valid(value)
    assert schema_check(schema, {})(value).words


def test_a_schema_with_a_word_that_is_not_understood_is_refused():
    with pytest.raises(ValueError, match="got oneOf"):
        schema_check({"oneOf": [{}]}, {})


def test_options_of_views_pass_where_jsonschema_passes_them():
    views = contract_json("views.schema.json")
    definitions = {
        spec["properties"]["view"]["const"]: name for name, spec in views["$defs"].items() if "x-view" in spec
    }
    for view in VIEW_NAMES:
        schema = {"$ref": f"#/$defs/{definitions[view]}"}
        check = schema_check(schema, views["$defs"])
        full = Draft202012Validator({**schema, "$defs": views["$defs"]})
        options = {"view": view, **view_defaults(view)}
        if "flag" in views["$defs"][definitions[view]]["properties"]:
            options["flag"] = "MLP1_mat_mul"
        assert check(options) is None
        for name in options:
            for wrong in (True, -1, 1.5, "what", [None], {"which": 1}):
                other = {**options, name: wrong}
                assert (check(other) is None) == full.is_valid(other), other


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
