"""What a page refuses is refused before it comes there: entries of one name, and texts that nobody could draw."""

import copy
import json
from pathlib import Path

import pyarrow as pa
import pytest

from megalens.protocol import STREAMS, ProtocolError, decode_frame, decode_message, encode_frame

FIXTURES = Path(__file__).parents[2] / "protocol" / "fixtures" / "messages"
ANNOUNCE = json.loads((FIXTURES / "announce-stage.json").read_text())


def test_every_golden_message_is_taken():
    for path in FIXTURES.glob("*.json"):
        decode_message(path.read_text())


@pytest.mark.parametrize(
    ("places", "field"),
    [
        (["flags"], "flags.{}.name"),
        (["compressors"], "compressors.{}.name"),
        (["sites"], "sites.{}.name"),
        (["sites", 0, "kinds"], "sites.0.kinds.{}.name"),
        (["layout", "ranks"], "layout.ranks.{}.rank"),
    ],
)
def test_an_entry_that_comes_twice_is_refused_with_its_place(places, field):
    message = copy.deepcopy(ANNOUNCE)
    entries = message
    for place in places:
        entries = entries[place]
    entries.append(copy.deepcopy(entries[0]))
    with pytest.raises(ProtocolError) as refused:
        decode_message(json.dumps(message))
    assert (refused.value.code, refused.value.field) == ("bad-message", field.format(len(entries) - 1))


@pytest.mark.parametrize("length", [1 << 20, (1 << 20) + 1])
def test_a_cell_of_text_is_bounded_and_many_short_ones_are_not(length):
    schema = STREAMS.named("scalars").schema
    rows = [
        {"step": 1, "time": 1.0, "rank": 0, "name": name, "value": 1.0, "unit": ""}
        for name in ("x" * 1000, "é" * (length // 2) + "x" * (length % 2), "y" * (1 << 20))
    ]
    frame = decode_frame(encode_frame("scalars", pa.Table.from_pylist(rows, schema), step=1))
    if length <= 1 << 20:
        assert frame.table().num_rows == 3
        return
    with pytest.raises(ProtocolError, match="too long") as refused:
        frame.table()
    assert refused.value.code == "bad-frame"
