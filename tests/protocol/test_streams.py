"""What a stream's declaration may say, and how a wrong one is refused."""

import copy

import pytest

from megalens.protocol import STREAMS, ProtocolError, Streams, parse_stream, policy
from megalens.protocol.contract import contract_json

DECLARED = contract_json("streams.json")["streams"]
NORMS = {
    "title": "Weight norms",
    "instrument": "weight_norms",
    "policy": {
        "keep": "newest",
        "drop": {"order": 3},
        "identity": ["name"],
        "ask": {"name": "equal"},
        "nonfinite": {"values": ["value"], "first": ["step", "name"]},
    },
    "fields": [
        {"name": "step", "type": "int64"},
        {"name": "name", "type": "utf8"},
        {"name": "value", "type": "float64"},
    ],
}


def changed(path, value, declaration=NORMS):
    """Return the declaration with one member set, or taken out where the value is None."""
    result = copy.deepcopy(declaration)
    inner = result
    *way, last = path.split(".")
    for part in way:
        inner = inner[int(part)] if part.isdigit() else inner.setdefault(part, {})
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return result


@pytest.mark.parametrize("name", DECLARED)
def test_every_stream_of_the_protocol_says_all_and_nothing_unknown(name):
    stream = parse_stream(name, DECLARED[name], strict=True)
    assert stream.declaration["instrument"]
    assert stream.policy == policy(name)
    assert stream.policy.identity
    assert STREAMS[name].schema.equals(stream.schema)


def test_replay_and_drop_orders_are_told_apart():
    orders = [stream.policy.replay_order for stream in STREAMS.values()]
    drops = [s.policy.drop_order for s in STREAMS.values() if s.policy.drop_order is not None]
    assert len(set(orders)) == len(orders)
    assert len(set(drops)) == len(drops)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("policy.keep", "some"),
        ("policy.keep", None),
        ("policy.keep", 3),
        ("policy.drop", {"order": 1, "covered_first": True, "later": 2}),
        ("policy.drop.order", -1),
        ("policy.drop.order", "first"),
        ("policy.identity", ["nothing"]),
        ("policy.identity", ["value"]),
        ("policy.newer", "name"),
        ("policy.page_bytes", 0),
        ("policy.row_bytes", 1.5),
        ("policy.shape", "value"),
        ("policy.ask", {"value": "equal"}),
        ("policy.ask", {"name": "ranges"}),
        ("policy.ask", {"nobody": "equal"}),
        ("policy.nonfinite.values", ["name"]),
        ("policy.nonfinite.counts", ["name"]),
        ("policy.nonfinite.first", ["value"]),
        ("policy.packing", {"fast": ["other"]}),
        ("policy.packing", {"codec": "fastest"}),
        ("policy.forget", "soon"),
        ("fields.0.name", "time"),
        ("fields.0.type", "int32"),
        ("fields.2.type", "complex64"),
        ("fields.2.name", "name"),
        ("fields.1.absent", "nan"),
        ("fields.2.absent", "zero"),
        ("fields.1.name", "../name"),
        ("title", ""),
        ("fields", []),
    ],
)
def test_a_wrong_declaration_is_refused_by_the_name_of_what_is_wrong(path, value):
    with pytest.raises(ProtocolError) as caught:
        parse_stream("weight_norms", changed(path, value), strict=True)
    assert caught.value.code == "bad-parameter"
    field = caught.value.field
    assert field.startswith("weight_norms.")
    # Where a member lacks or is unknown, what holds it, or it, is named.
    assert path.split(".")[0] in field


@pytest.mark.parametrize("name", ["", "Norms", "../x", "1st", "a" * 25, "norms.arrows", "nörms"])
def test_a_name_that_is_no_name_is_refused(name):
    with pytest.raises(ProtocolError, match="must be a name"):
        parse_stream(name, NORMS)


def test_what_a_later_version_adds_is_read_over():
    stream = parse_stream("weight_norms", changed("policy.forget", "soon"))
    assert stream.policy.drop_order == 3


def test_streams_take_what_is_announced_and_refuse_what_contradicts():
    streams = Streams(STREAMS.values())
    assert streams.announce({"weight_norms": NORMS})
    assert not streams.announce({"weight_norms": NORMS, "tensors": DECLARED["tensors"]})
    assert list(streams.announced()) == ["weight_norms"]
    other = changed("fields.2.type", "int64")
    other["policy"].pop("nonfinite")
    with pytest.raises(ProtocolError) as caught:
        streams.announce({"weight_norms": other})
    assert caught.value.field == "streams.weight_norms.fields"
    with pytest.raises(ProtocolError) as caught:
        streams.announce({"whole": changed("policy.keep", "all")})
    assert caught.value.field == "streams.whole.policy.keep"
    with pytest.raises(ProtocolError, match="at most 32 streams"):
        streams.announce({f"s{number}": NORMS for number in range(32)})
    assert len(streams) == len(STREAMS) + 1


def test_what_cannot_be_read_is_named_and_the_rest_is_learnt():
    streams = Streams(STREAMS.values())
    declared = {"later": changed("fields.2.type", "complex64"), "weight_norms": NORMS, "garbage": 3}
    assert streams.learn(declared) == ["later", "garbage"]
    assert "weight_norms" in streams
