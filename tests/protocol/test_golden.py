"""The golden messages and frames, written by the protocol's page alone, are read as what is written beside them, and written alike."""

import json
import re
from pathlib import Path

import pytest

from megalens.protocol import (
    BIT_CAUGHT_UP,
    BIT_MERGED,
    check_message,
    decode_frame,
    decode_message,
    encode_frame,
    encode_message,
)
from scripts.golden_files import arrow_table, frame_parts, rows_as_json

FIXTURES = Path(__file__).parents[2] / "protocol" / "fixtures"
FRAMES = sorted((FIXTURES / "frames").glob("*.frame"))
MESSAGES = sorted((FIXTURES / "messages").glob("*.json"))


def number(value: object) -> object:
    """Read words that JSON has instead of numbers as numbers."""
    if isinstance(value, list):
        return [number(item) for item in value]
    return float(str(value)) if value in ("NaN", "Infinity", "-Infinity", "-0") else value


@pytest.mark.parametrize("path", FRAMES, ids=lambda p: p.stem)
def test_a_golden_frame_is_read_as_what_is_written_beside_it(path: Path) -> None:
    written = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    frame = decode_frame(path.read_bytes())
    header = {name: getattr(frame, name) for name in ("stream", "seq", "step", "time_us", "bits")}
    assert {**header, "rows": rows_as_json(frame.table())} == written
    assert frame.rows == len(written["rows"])


@pytest.mark.parametrize("path", FRAMES, ids=lambda p: p.stem)
def test_what_is_written_of_the_same_rows_is_the_golden_frame(path: Path) -> None:
    written = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    rows = [{name: number(value) for name, value in row.items()} for row in written.pop("rows")]
    stream = written.pop("stream")
    header, table = frame_parts(encode_frame(stream, arrow_table(stream, rows), **written))
    golden_header, golden = frame_parts(path.read_bytes())
    assert (header, table.schema) == (golden_header, golden.schema)
    assert rows_as_json(table) == rows_as_json(golden)


def test_the_golden_frame_that_is_caught_up_and_merged_says_so() -> None:
    frame = decode_frame((FIXTURES / "frames/scalars-caught-up.frame").read_bytes())
    assert frame.bits == BIT_CAUGHT_UP | BIT_MERGED == 3
    assert BIT_CAUGHT_UP == 1


@pytest.mark.parametrize("path", MESSAGES, ids=lambda p: p.stem)
def test_a_golden_message_decodes_and_re_encodes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    message = decode_message(text)
    check_message(message)
    assert json.loads(encode_message(message)) == json.loads(text)


def test_what_is_written_twice_is_listed_with_files_and_cases_that_are_there() -> None:
    page = (FIXTURES.parent / "README.md").read_text(encoding="utf-8")
    table = page.partition("## Written twice")[2].partition("\n## ")[0]
    lines = [line.split("|")[2:5] for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 5
    for python, other, cases in lines:
        for place in re.findall("`([^`]+)`", python + other):
            assert (FIXTURES.parents[1] / place).is_file(), place
        named = re.findall("`([^`]+)`", cases)
        assert named
        assert all((FIXTURES.parent / place).exists() for place in named), named


def test_there_are_golden_files() -> None:
    assert len(FRAMES) >= 8
    assert len(MESSAGES) >= 14
