"""The golden messages and frames decode to what is written beside them and re-encode to themselves."""

import json
import math
from pathlib import Path

import pytest

from megalens.protocol import check_message, decode_frame, decode_message, encode_frame, encode_message

FIXTURES = Path(__file__).parents[2] / "protocol" / "fixtures"
FRAMES = sorted((FIXTURES / "frames").glob("*.frame"))
MESSAGES = sorted((FIXTURES / "messages").glob("*.json"))


def same(value: object, written: object) -> bool:
    """Compare with JSON in which non-finite numbers and negative zero are words."""
    if isinstance(written, list):
        return isinstance(value, list) and len(value) == len(written) and all(map(same, value, written))
    if written == "NaN":
        return isinstance(value, float) and math.isnan(value)
    if written in ("Infinity", "-Infinity", "-0") and not isinstance(value, str):
        return value == float(str(written)) and math.copysign(1, value) == math.copysign(
            1, float(str(written))
        )
    return value == written


@pytest.mark.parametrize("path", FRAMES, ids=lambda p: p.stem)
def test_a_golden_frame_decodes_and_re_encodes(path: Path) -> None:
    data = path.read_bytes()
    written = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    frame = decode_frame(data)
    for name in ("stream", "seq", "step", "time_us", "bits"):
        assert getattr(frame, name) == written[name], name
    table = frame.table()
    rows = table.to_pylist()
    assert len(rows) == len(written["rows"]) == frame.rows
    for row, expected in zip(rows, written["rows"], strict=True):
        assert list(row) == list(expected)
        assert [name for name in row if not same(row[name], expected[name])] == []
    again = encode_frame(
        frame.stream, table, step=frame.step, seq=frame.seq, time_us=frame.time_us, bits=frame.bits
    )
    assert again == data


@pytest.mark.parametrize("path", MESSAGES, ids=lambda p: p.stem)
def test_a_golden_message_decodes_and_re_encodes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    message = decode_message(text)
    check_message(message)
    assert json.loads(encode_message(message)) == json.loads(text)


def test_there_are_golden_files() -> None:
    assert len(FRAMES) >= 8
    assert len(MESSAGES) >= 14
