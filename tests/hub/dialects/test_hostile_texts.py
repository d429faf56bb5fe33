"""What a foreign hub or client says costs itself a row or an answer: never the recording, the terminal, or what others see."""

import asyncio
import json

import pytest

from megalens.hub.dialects.dialect import DIALECTS, DialectError
from megalens.hub.dialects.peer_message import BadMessage, detect, read_message, read_update
from megalens.hub.dialects.peer_rows import LeftOut
from megalens.protocol import shown_text

T3606 = DIALECTS["3606"]


def update(**changes):
    return {
        "type": "update",
        "update_type": 7,
        "layer_id": 1,
        "args": [1, 2, 3],
        "result": [0.5] * 6,
        **changes,
    }


@pytest.mark.parametrize(
    ("args", "result"),
    [([1] * 70, [1.0]), ([0, 2**31 - 1, 2**31 - 1, 2**31 - 1], []), ([10**400, 0], []), ([1, -1, -1], [1.0])],
)
def test_a_shape_that_no_array_has_is_left_out(args, result):
    with pytest.raises(BadMessage, match="no list of at most 8 sizes"):
        read_update(T3606, update(args=args, result=result), {})


def test_an_empty_last_axis_is_a_shape():
    (row,) = read_update(T3606, update(args=[2, 3, 0], result=[]), {})
    assert row.values.shape == (2, 3, 0)


def test_half_a_surrogate_pair_becomes_a_text_that_can_be_sent():
    message = read_message('{"type": "x", "\\udc00": ["a\\ud800b", "\\ud83d\\ude00 \\u00e9", NaN]}')
    assert message["?"][:2] == ["a?b", "\U0001f600 é"]
    json.dumps(message, ensure_ascii=False).encode("utf-8")


def test_no_terminal_obeys_what_a_peer_says():
    left_out = LeftOut()
    left_out.note("The peer says: \x1b[2J\x9b1m\x07")
    left_out.leave_out("updates with update_type \x1b]0;x\x07")
    said = [*left_out.sentences(), DialectError("refused", "no \x1b[31m").message]
    assert all(text.isprintable() for text in said)
    assert "The peer says: \ufffd[2J\ufffd1m\ufffd" in said


def test_line_breaks_and_letters_of_any_script_are_kept():
    text = "Ein\n\tText: naïve 日本語 \U0001f468\u200d\U0001f469\u200d\U0001f467 שלום"
    assert shown_text(text) == text


def test_a_hub_that_floods_while_it_is_asked_what_it_speaks_is_not_kept(monkeypatch):
    monkeypatch.setattr("megalens.hub.dialects.peer_message.MOST_BYTES", 10_000)
    sent = []

    class Flooding:
        async def send(self, text):
            pass

        async def recv(self):
            sent.append(None)
            return "x" * 1000

    with pytest.raises(DialectError, match="--dialect"):
        asyncio.run(detect(Flooding()))
    assert len(sent) == 11
