"""Reduction expressions of a viewer, parsed and run on a tile."""

from random import Random
from typing import Any

import torch

from megalens.hub.dialects.peer_request import peer_reduction, reduction_of
from megalens.protocol import ProtocolError, encode_message
from megalens.tracer.tensors.reductions import parse_reduction
from tests.fuzz.mutate import HOSTILE, mutated_text
from tests.fuzz.surface import Surface

_DATA = torch.linspace(-2, 3, 24).reshape(2, 3, 4)
_PIECES = (
    *(
        "data",
        "(",
        ")",
        ".",
        ",",
        "+",
        "-",
        "*",
        "/",
        "**",
        "<",
        ">=",
        "==",
        "mean",
        "std",
        "norm",
        "quantile",
        "abs",
        "max",
        "dim=-1",
    ),
    *(
        "0.5",
        "1e308",
        "1e-320",
        "9" * 400,
        "(" * 30,
        "-" * 200,
        "p=2",
        "q=0.5",
        "sqrt",
        "log",
        "exp",
        "[0]",
        "'",
        "__class__",
        "²",
        "٣",
    ),
)


def _mutate(chance: Random, seed: Any) -> str:
    text = _expression(chance, 0) if chance.random() < 0.5 else seed
    return mutated_text(chance, text, _PIECES) if chance.random() < 0.8 else text


def _expression(chance: Random, depth: int) -> str:
    """Return an expression of the grammar, as a rule one number a tile."""
    kind = chance.randrange(2 if depth > 3 else 6)
    if kind <= 1:
        word = chance.choice(("mean", "sum", "max", "std", "norm", "median"))
        return chance.choice(("data.{}()", "{}(data)", "data.abs().{}(dim=-1)", "(data > 0).{}()")).format(
            word
        )
    if kind == 2:
        return f"({_expression(chance, depth + 1)})"
    if kind == 3:
        return f"-{_expression(chance, depth + 1)}"
    sign = chance.choice("+-*/") if kind == 4 else "**"
    return f"{_expression(chance, depth + 1)} {sign} {chance.choice(('2', '0.5', '1e300', _expression(chance, depth + 1)))}"


def _run(text: str) -> None:
    for peers in (peer_reduction, reduction_of):
        try:
            peers(text, "reduction")
        except ProtocolError as error:
            encode_message(error.to_message()).encode("utf-8")
    try:
        reduction = parse_reduction(text)
    except ProtocolError as error:
        encode_message(error.to_message()).encode("utf-8")
        raise
    assert reduction(_DATA).shape == (2, 3)


SURFACE = Surface(
    lambda: ["data.quantile(0.5)", "(data.max() - data.min()) / 2", "norm(data, 2)", *HOSTILE["expressions"]],
    _mutate,
    _run,
    (ProtocolError,),
)
