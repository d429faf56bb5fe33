"""Every text that comes from outside is read, or refused, in time linear in its length."""

import time
from contextlib import suppress

import pytest

from megalens.protocol import ProtocolError, parse_budget, read_ranges
from megalens.protocol.contract import contract_json, schema_check
from megalens.protocol.tensor_name import natural_key, parse_name
from megalens.tracer.tensors.reductions import parse_reduction

PIECES = [
    "(",
    "Tile((((",
    "((((",
    ")",
    "[",
    "-",
    "--",
    "**",
    "2**",
    "data.",
    "data.abs().",
    "abs(",
    "max(data,",
    "1,",
    "1-",
    "1 ",
    " ",
    "\t",
    "\n",
]
PIECES += ["0", "9", ".", "1.", "e9", "a", "a.1.", "experts.", "weight1", "%", " %", ",", "1-2,", "all", "é", "\ud800", "\0", "٣", "= ", "<", "1<"]  # fmt: skip


def patterns(schema: object) -> list[str]:
    """The regular expressions anywhere in a schema."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    own = [schema["pattern"]] if isinstance(schema, dict) and isinstance(schema.get("pattern"), str) else []
    return own + [pattern for each in inner for pattern in patterns(each)]


PATTERNS = {*patterns(contract_json("messages.schema.json")), *patterns(contract_json("views.schema.json"))}
CHECKS = [schema_check({"type": "string", "pattern": pattern}, {}) for pattern in PATTERNS]


def schema_patterns(text: str) -> None:
    assert len(CHECKS) > 2
    for check in CHECKS:
        check(text)


@pytest.mark.parametrize(
    ("read", "length"),
    [
        (parse_reduction, 30_000),
        (parse_reduction, 499),
        (parse_budget, 100_000),
        (lambda text: read_ranges(text, "layers"), 9_999),
        (lambda text: read_ranges(text, "layers"), 100_000),
        (parse_name, 20_000),
        (natural_key, 20_000),
        (schema_patterns, 100_000),
    ],
    ids=[
        "reduction",
        "short reduction",
        "budget",
        "short ranges",
        "ranges",
        "name",
        "order of names",
        "patterns",
    ],
)
def test_a_text_of_any_kind_is_read_in_milliseconds(read, length: int) -> None:
    for piece in PIECES:
        long = (piece * length)[:length]
        for text in (long, long[:-1] + "x", "1" + long[1:-1] + "!", "data" + long[4:]):
            # The least of three: the collector may go through all that other tests left.
            assert any(seconds(read, text) < 0.5 for _ in range(3)), (piece, text[:20])


def seconds(read, text: str) -> float:
    began = time.process_time()
    with suppress(ProtocolError):
        read(text)
    return time.process_time() - began


def test_long_numbers_in_names_are_ordered_and_no_layers() -> None:
    names = ["h.10", "h.9", "h." + "1" * 5000, "h." + "1" * 4999 + "0", "h.009", "h.a"]
    assert sorted(names, key=natural_key) == [names[1], names[4], names[0], names[3], names[2], names[5]]
    assert parse_name("mlp.experts.weight" + "7" * 5000).expert is None
    assert parse_name("mlp.experts.weight7").expert == 7
