"""Every number, text, list and map of a message has a bound, so that no reader has to think of one."""

import json

import pytest

from megalens.protocol import ProtocolError, decode_message, encode_message
from megalens.protocol.contract import contract_json
from megalens.protocol.messages import MAX_TEXT_BYTES
from megalens.protocol.outside import parse_json

DEFINITIONS = contract_json("messages.schema.json")["$defs"]
# What a later version may add, and parameters that their own checks bound: only the bounds of every message hold for them.
FREE = {"schema", "params", "first"}


def unbounded(spec, where):
    """Yield the places of a schema at which a value may be as large as it likes."""
    if isinstance(spec, list):
        for number, each in enumerate(spec):
            yield from unbounded(each, f"{where}/{number}")
        return
    if not isinstance(spec, dict):
        return
    kinds = spec.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    wanted = {
        "integer": {"minimum", "maximum"},
        "array": {"maxItems"},
        "string": set() if {"enum", "const", "pattern"} & set(spec) else {"maxLength"},
        "object": {"maxProperties", "propertyNames"}
        if isinstance(spec.get("additionalProperties"), dict)
        else set(),
    }
    for kind in (kind for kind in kinds if isinstance(kind, str)):
        for word in wanted.get(kind, set()) - set(spec):
            yield f"{where} has no {word}"
    said = {"properties", "additionalProperties"} & set(spec)
    if kinds == ["object"] and not said and where.rsplit("/", 1)[1] not in FREE:
        yield f"{where} is free"
    if kinds == ["integer"] and spec.get("maximum", 0) > 2**53 - 1:
        yield f"{where} is larger than a browser's numbers"
    for name, inner in spec.items():
        yield from unbounded(inner, f"{where}/{name}")


def test_nothing_in_the_schema_is_unbounded():
    assert list(unbounded(DEFINITIONS, "")) == []


def configure(every="2", **more):
    text = json.dumps(
        {
            "type": "configure",
            "id": "c",
            "patch": {"flags": {"MLP": {"every": "EVERY", "compressor": {"name": "x", **more}}}},
        }
    )
    return text.replace('"EVERY"', every)


@pytest.mark.parametrize(
    "number", ["1" + "0" * 400, "1" + "0" * 5000, str(2**53), "0", "-1", "1e999", "1e308"]
)
def test_a_whole_number_out_of_range_is_refused(number):
    with pytest.raises(ProtocolError) as caught:
        decode_message(configure(number))
    assert caught.value.code == "bad-message"
    encode_message(caught.value.to_message())


def test_the_largest_whole_number_is_taken():
    message = decode_message(
        configure(str(2**53 - 1), params={"seed": -(2**53) + 1, "share": 0.1234567890123456789})
    )
    assert message["patch"]["flags"]["MLP"]["every"] == 2**53 - 1


def test_a_number_of_free_parameters_is_bounded_too():
    with pytest.raises(ProtocolError, match="must be at most 9007199254740991"):
        decode_message(configure(params={"n": 2**53}))


def test_a_name_may_be_long_but_not_longer():
    flags = {"f" * 200: None}
    assert decode_message(json.dumps({"type": "configure", "id": "c", "patch": {"flags": flags}}))
    with pytest.raises(ProtocolError):
        decode_message(json.dumps({"type": "configure", "id": "c", "patch": {"flags": {"f" * 201: None}}}))


def test_a_text_longer_than_any_message_is_refused_before_it_is_read():
    with pytest.raises(ProtocolError) as caught:
        decode_message(" " * (MAX_TEXT_BYTES + 1))
    assert caught.value.code == "too-large"


def test_a_message_of_many_small_values_is_refused_before_it_is_read():
    with pytest.raises(ProtocolError, match="values"):
        decode_message("[" + "[]," * 1_500_000 + "[]]")


def test_values_that_nest_deeper_than_any_of_ours_are_refused():
    assert parse_json("[" * 32 + "]" * 32)
    with pytest.raises(ValueError, match="at most 32 levels"):
        parse_json("[" * 34 + "]" * 34)


def test_the_hello_of_the_largest_job_is_far_inside_the_bounds():
    place = {"rank": 2**20, "tp": 2**20, "pp": 2**20, "dp": 2**20, "host": "n" * 100}
    places = [{**place, "rank": place["rank"] - at} for at in range(16384)]
    hello = {
        "type": "hello",
        "protocol": "megalens.v2",
        "run": {"id": "r", "name": "r", "started": 1.0},
        "seq": 1,
        "model": None,
        "layout": {"world_size": 16384, "tp": 8, "pp": 16, "dp": 128, "ranks": places},
        "flags": [],
        "compressors": [],
        "config": {"flags": {}},
        "limits": {"max_message_bytes": 1, "viewer_queue_bytes": 1, "backlog_bytes": 1},
        "versions": {},
    }
    text = encode_message(hello)
    assert len(text) * 3 < MAX_TEXT_BYTES
    assert decode_message(text) == hello
