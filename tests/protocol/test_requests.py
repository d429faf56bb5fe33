"""Requests for rows, checked where they come in: the golden cases that the page's types are held to as well."""

import json
from pathlib import Path

import pytest

from megalens import protocol
from megalens.protocol import (
    MomentGroupsRequest,
    ProtocolError,
    StreamRequest,
    check_request,
    contract_json,
)

CASES = json.loads((Path(__file__).parents[2] / "protocol" / "fixtures" / "requests.json").read_text("utf-8"))
TAKEN = [case for case in CASES if "refused" not in case]
REFUSED = [case for case in CASES if "refused" in case]
GROUPS = {"stat": "grad", "statistic": "l2", "by": []}


@pytest.mark.parametrize("case", TAKEN, ids=str)
def test_a_request_is_taken_as_it_is(case):
    assert check_request(getattr(protocol, case["request"]), case["value"]) is case["value"]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_is_wrong_with_a_request_is_named(case):
    with pytest.raises(ProtocolError) as caught:
        check_request(getattr(protocol, case["request"]), case["value"])
    assert (caught.value.code, caught.value.field) == ("bad-parameter", case["refused"])
    assert caught.value.message.startswith(f"{case['refused']} ")


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (MomentGroupsRequest, {**GROUPS, "points": 0}, "points must be at least 1, got 0."),
        (MomentGroupsRequest, {**GROUPS, "points": 5.0}, "points must be of type integer, got 5.0."),
        (MomentGroupsRequest, {**GROUPS, "by": ["layer"] * 13}, "by must have 0 to 12 entries, got 13."),
        (StreamRequest, {"steps": [1]}, "steps must have 2 entries, got 1."),
        (
            StreamRequest,
            {"rank": "high"},
            "rank must be of type integer or must be one of lowest, got 'high'.",
        ),
        (StreamRequest, [], "The request must be of type object, got an object or a list."),
        (StreamRequest, None, "The request must be of type object, got None."),
        (
            StreamRequest,
            {"peak": 4},
            "peak is not known here. A request may have flag, part, phase, pass, rank, layers, steps, measured, "
            "peaks, where, columns, limit_bytes.",
        ),
        (StreamRequest, {"peaks": 4, "x" * 500: 1}, "x" * 90),
    ],
)
def test_a_refusal_says_what_was_expected_and_what_came(kind, value, words):
    with pytest.raises(ProtocolError) as caught:
        check_request(kind, value)
    assert words in caught.value.message
    assert len(caught.value.message) < 500


def test_every_text_and_list_of_a_request_has_a_bound():
    """A request is small: who asks cannot make the server look at much before it says no."""
    for name, definition in contract_json("requests.schema.json")["$defs"].items():
        for member, spec in definition.get("properties", {}).items():
            if spec.get("type") == "array":
                assert "maxItems" in spec, f"{name}.{member}"
            if spec.get("type") == "string":
                assert "maxLength" in spec, f"{name}.{member}"
