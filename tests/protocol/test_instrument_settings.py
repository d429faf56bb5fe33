"""Settings of instruments on the wire: what a patch makes of them, and how large they may be."""

from __future__ import annotations

import pytest

from megalens.protocol import ProtocolError, check_settings_size, merge_settings


@pytest.mark.parametrize(
    ("now", "patch", "after"),
    [
        # Appendix A of RFC 7396.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_patch_does_what_the_standard_says(now, patch, after) -> None:
    kept = repr(now)
    assert merge_settings(now, patch) == after
    assert repr(now) == kept


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        ([], "instruments", "an object"),
        ({"monitor": 3}, "instruments.monitor", "an object"),
        ({"monitor": {"a": {"b": {"c": {"d": {"e": {}}}}}}}, "instruments", "6 levels deep"),
        ({"monitor": {"muted": ["x" * 70_000]}}, "instruments", "65,536 bytes"),
        ({"monitor": {"a": float("nan")}}, "instruments", "JSON"),
    ],
)
def test_what_is_no_settings_or_too_much_is_named(settings, field, words) -> None:
    with pytest.raises(ProtocolError, match=words) as error:
        check_settings_size(settings)
    assert error.value.field == field


def test_settings_of_rules_fit() -> None:
    check_settings_size({"monitor": {"rules": {"jump": {"on": True}}, "muted": [{"rule": "dead"}] * 500}})
