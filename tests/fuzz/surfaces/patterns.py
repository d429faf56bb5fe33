"""Regular expressions that a request names, over names of tensors."""

from random import Random
from typing import Any

from megalens.runs import ClientError
from megalens.runs.moments.grouping.name_filter import Pattern
from tests.fuzz.mutate import HOSTILE, mutated_text
from tests.fuzz.surface import Surface

_NAMES = [
    "decoder.layers.0.mlp.linear_fc1.weight",
    "embedding.weight",
    "",
    "a" * 300,
    "a." * 150 + "#",
    "\x00é\U0001f600",
]
_PIECES = (
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "*",
        "+",
        "?",
        "|",
        "\\",
        "^",
        "$",
        ".",
        "(?:",
        "(?P<a>",
        "(?<b>",
        "\\d",
        "\\w+",
        "{2,}",
    ),
    *("{1000}", "\\1", "[a-", "(?i)", "(?#", "\\b", "\\x00", "\\Q", "[[:alpha:]]", "\n", "(?P=a)", "\\pN"),
)


def _mutate(chance: Random, seed: Any) -> str:
    return mutated_text(chance, seed, _PIECES)


def _run(text: str) -> None:
    pattern = Pattern(text, "pattern")
    assert len(pattern.matches(_NAMES)) == len(_NAMES)
    for found in pattern.captures(_NAMES):
        assert found is None or len(found) == max(1, pattern.groups)


SURFACE = Surface(
    lambda: [r"layers\.(?P<layer>\d+)", "mlp|attn", "(weight)$", *HOSTILE["patterns"]],
    _mutate,
    _run,
    (ClientError,),
)
