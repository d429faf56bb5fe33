"""Texts of view options, and what an error may quote of them."""

import pytest

from megalens.protocol import ProtocolError, check_view_options, encode_message


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"flag": "\ud800"}, "flag"),
        ({"flag": "ok", "part": "a\udfff"}, "part"),
        ({"flag": "ok", "\ud800": 1}, "\\ud800"),
    ],
)
def test_half_a_surrogate_pair_is_refused_in_words_that_can_be_sent(options, field):
    with pytest.raises(ProtocolError) as caught:
        check_view_options({"view": "heatmap", **options})
    assert caught.value.field == field
    encode_message(caught.value.to_message()).encode("utf-8")


@pytest.mark.parametrize("text", ["é", "\U0001f600", "日本語", "constructor", "__proto__", "a\nb", "\u202e"])
def test_any_whole_text_is_taken(text):
    assert check_view_options({"view": "heatmap", "flag": text})["flag"] == text
