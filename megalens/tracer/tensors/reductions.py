"""The reduction language: one number per tile from a small expression over ``data``.

``mean``, ``data.abs().mean(dim=-1)``, ``max(abs(data))``, ``(data > 0).mean()`` and ``data.max() -
data.min()`` are expressions. ``data`` is one tile of features. A reducing function (mean, sum, min, max, std,
var, rms, norm, median, quantile) makes one number of it; abs, sqrt, log and exp work on each value; ``+ - * /
**`` and comparisons join them, a comparison being 1 where it holds and 0 elsewhere. A function that is not
given a value takes ``data``. An expression is parsed once, into closures; nothing of it is ever run as
Python.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ...protocol import ProtocolError

Reduction = Callable[[Tensor], Tensor]

TokenKind = Literal["number", "name", "operator", "end"]
_PATTERN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>\*\*|<=|>=|==|!=|[-+*/<>().,=])|(?P<end>$))",
    re.ASCII,
)
MAX_LENGTH = 500
# What \s is in an ASCII pattern; str.lstrip alone knows more.
_SPACE = " \t\n\r\f\v"


@dataclass(frozen=True, slots=True)
class Token:
    """One word of an expression; ``column`` counts from 1."""

    kind: TokenKind
    text: str
    column: int


def bad_reduction(message: str, column: int, field: str) -> ProtocolError:
    return ProtocolError("bad-reduction", f"{message} (column {column}).", field=field, column=column)


def tokenize(text: str, field: str) -> list[Token]:
    """Return the tokens of ``text``; the last one is of kind ``end``.

    Raises ``ProtocolError`` (``bad-reduction``) when the text is too long or holds a foreign character.
    """
    if len(text) > MAX_LENGTH:
        raise bad_reduction(
            f"An expression has at most {MAX_LENGTH} characters, and this one has {len(text)}",
            MAX_LENGTH + 1,
            field,
        )
    tokens: list[Token] = []
    at = 0
    while True:
        match = _PATTERN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip(_SPACE))
            raise bad_reduction(f"{text[at]!r} means nothing in a reduction", at + 1, field)
        kind = match.lastgroup
        assert kind is not None
        word = match.group(kind)
        tokens.append(Token(kind, word, match.start(kind) + 1))  # type: ignore[arg-type]
        if kind == "end":
            return tokens
        at = match.end()


@dataclass(frozen=True)
class Reducer:
    """A function that makes one number of each tile.

    Attributes
    ----------
    compute : callable
        Takes tiles ``[..., width]`` and the parameter, gives ``[...]``.
    parameter : str, optional
        Name of its one number, such as ``q`` of ``quantile``.
    default : float, optional
        That number when it is not given; it must be given where this is None.
    check : callable, optional
        Says in words which numbers are allowed when this one is not.
    """

    compute: Callable[[Tensor, float], Tensor]
    parameter: str | None = None
    default: float | None = None
    check: Callable[[float], str | None] = lambda value: None


def _variance(data: Tensor) -> Tensor:
    # One value has none; times 0 keeps NaN and turns infinity into it, and torch does not warn where there is
    # no tile at all.
    return (data * 0).sum(-1) if data.shape[-1] == 1 else data.var(-1, correction=0)


def _between_0_and_1(value: float) -> str | None:
    return None if 0 <= value <= 1 else "a number from 0 to 1"


def _positive(value: float) -> str | None:
    return None if value > 0 else "a number above 0"


# Of the population, as in the statistics of whole tensors; a median of an even number of values is the lower
# middle one, as torch's is.
REDUCERS: Mapping[str, Reducer] = {
    "mean": Reducer(lambda data, _: data.mean(-1)),
    "sum": Reducer(lambda data, _: data.sum(-1)),
    "min": Reducer(lambda data, _: data.amin(-1)),
    "max": Reducer(lambda data, _: data.amax(-1)),
    "std": Reducer(lambda data, _: _variance(data).sqrt()),
    "var": Reducer(lambda data, _: _variance(data)),
    "median": Reducer(lambda data, _: data.median(-1).values),
    "rms": Reducer(lambda data, _: torch.linalg.vector_norm(data, 2, -1) / math.sqrt(data.shape[-1])),
    "norm": Reducer(lambda data, p: torch.linalg.vector_norm(data, p, -1), "p", 2.0, _positive),
    "quantile": Reducer(lambda data, q: torch.quantile(data, q, -1), "q", None, _between_0_and_1),
}

ELEMENTWISE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "log": torch.log,
    "exp": torch.exp,
}
"""Takes float32 tiles ``[..., tiles, width]`` and gives ``[..., tiles]``."""

_Kind = Literal["tile", "value", "number"]
_MAX_DEPTH = 24
_MAX_NODES = 120
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


@dataclass(frozen=True, slots=True)
class _Node:
    """``kind`` tells the shape: all of a tile's features, one value per tile, or a plain number."""

    kind: _Kind
    run: Callable[[Tensor], Any]
    number: float = math.nan


_DATA = _Node("tile", lambda data: data)


def parse_reduction(text: str, field: str = "reduction") -> Reduction:
    """Return the reduction that ``text`` describes; ``field`` is the dotted path that an error names.

    Raises
    ------
    ProtocolError
        ``bad-reduction`` with the column, when it cannot be read or does not give one number per tile.
    """
    parser = _Parser(tokenize(text, field), field)
    node = parser.comparison()
    parser.expect_end()
    if node.kind == "tile":
        raise bad_reduction(
            "This gives a value for each feature, and one number per tile is expected: end it with "
            ".mean(), .max() or another reduction",
            1,
            field,
        )
    if node.kind == "number":
        raise bad_reduction("This is the same number for every tile: use data in it", 1, field)
    return node.run


class _Parser:
    def __init__(self, tokens: list[Token], field: str) -> None:
        self._tokens = tokens
        self._field = field
        self._at = 0
        self._depth = 0
        self._nodes = 0

    # Grammar: comparison > sum > product > unary > power > postfix > atom.

    def comparison(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"This is nested deeper than {_MAX_DEPTH} levels", self._token)
        left = self._sum()
        if self._token.text in _COMPARISONS:
            sign = self._next()
            left = self._join(sign, _COMPARISONS[sign.text], left, self._sum())
            if self._token.text in _COMPARISONS:
                raise self._error("Comparisons cannot be chained: put one in parentheses", self._token)
        self._depth -= 1
        return left

    def expect_end(self) -> None:
        if self._token.kind != "end":
            raise self._error(f"{self._token.text!r} was not expected here", self._token)

    def _sum(self) -> _Node:
        left = self._product()
        while self._token.text in ("+", "-"):
            sign = self._next()
            left = self._join(sign, _ARITHMETIC[sign.text], left, self._product())
        return left

    def _product(self) -> _Node:
        left = self._unary()
        while self._token.text in ("*", "/"):
            sign = self._next()
            left = self._join(sign, _ARITHMETIC[sign.text], left, self._unary())
        return left

    def _unary(self) -> _Node:
        signs = 0
        while self._token.text in ("-", "+"):
            self._count(self._token)
            signs += self._next().text == "-"
        node = self._power()
        return node if signs % 2 == 0 else self._negated(node)

    def _power(self) -> _Node:
        left = self._postfix()
        if self._token.text == "**":
            sign = self._next()
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise self._error(f"This is nested deeper than {_MAX_DEPTH} levels", sign)
            left = self._join(sign, operator.pow, left, self._unary())
            self._depth -= 1
        return left

    def _postfix(self) -> _Node:
        node = self._atom()
        while self._token.text == ".":
            self._next()
            name = self._next()
            if name.text not in REDUCERS and name.text not in ELEMENTWISE:
                raise self._unknown(name)
            self._expect("(")
            node = self._call(name, node)
        return node

    def _atom(self) -> _Node:
        token = self._next()
        if token.kind == "number":
            return self._constant(float(token.text), token)
        if token.text == "(":
            node = self.comparison()
            self._expect(")")
            return node
        if token.text == "data":
            return _DATA
        if token.text in REDUCERS or token.text in ELEMENTWISE:
            if self._token.text == "(":
                self._next()
                return self._call(token, None)
            return self._apply(token, _DATA, [], {})
        if token.kind == "name":
            raise self._unknown(token)
        if token.kind == "end":
            raise self._error("The expression ends too early", token)
        raise self._error(f"{token.text!r} was not expected here", token)

    def _call(self, name: Token, subject: _Node | None) -> _Node:
        """Read the arguments after the parenthesis and apply the function."""
        arguments: list[tuple[_Node, Token]] = []
        named: dict[str, tuple[float, Token]] = {}
        while self._token.text != ")":
            first = self._token
            if first.kind == "name" and self._tokens[self._at + 1].text == "=":
                self._at += 2
                named[first.text] = (self._named_value(), first)
            elif named:
                raise self._error("A plain argument cannot follow a named one", first)
            else:
                arguments.append((self.comparison(), first))
            if self._token.text != ")":
                self._expect(",")
        self._expect(")")
        if subject is None:
            takes_data = not arguments or arguments[0][0].kind == "number"
            subject = _DATA if takes_data else arguments.pop(0)[0]
        return self._apply(name, subject, arguments, named)

    def _named_value(self) -> float:
        if self._token.text in ("True", "False"):
            return float(self._next().text == "True")
        token = self._token
        node = self.comparison()
        if node.kind != "number":
            raise self._error("A number was expected here", token)
        return node.number

    def _apply(
        self,
        name: Token,
        subject: _Node,
        arguments: list[tuple[_Node, Token]],
        named: dict[str, tuple[float, Token]],
    ) -> _Node:
        self._count(name)
        run = subject.run
        if name.text in ELEMENTWISE:
            for _, token in [*arguments, *named.values()]:
                raise self._error(f"{name.text} takes no further argument", token)
            if subject.kind == "number":
                raise self._error(f"{name.text} of a plain number is not needed: write the result", name)
            each = ELEMENTWISE[name.text]
            return _Node(subject.kind, lambda data: each(run(data)))
        reducer = REDUCERS[name.text]
        if subject.kind != "tile":
            raise self._error(
                f"{name.text} reduces the features of a tile, and what it is given here is one number "
                "already",
                name,
            )
        value = reducer.default
        for node, token in arguments:
            if reducer.parameter is None or node.kind != "number":
                # data.mean(-1), as in torch.
                if node.kind == "number" and node.number == -1:
                    continue
                raise self._error(f"{name.text} takes dim=-1{self._parameter(name)}, nothing else", token)
            value = self._checked(name, node.number, token)
        for key, (number, token) in named.items():
            if key == "dim":
                if number != -1:
                    raise self._error("Only dim=-1 exists here: the features of one tile", token)
            elif key == reducer.parameter:
                value = self._checked(name, number, token)
            elif key != "keepdim":
                raise self._error(f"{name.text} takes dim=-1{self._parameter(name)}, and not {key}", token)
        if reducer.parameter is not None and value is None:
            raise self._error(f"{name.text} needs a number, such as {name.text}(0.9)", name)
        compute, given = reducer.compute, math.nan if value is None else value
        return _Node("value", lambda data: compute(run(data), given))

    @staticmethod
    def _parameter(name: Token) -> str:
        parameter = REDUCERS[name.text].parameter
        return f" and {parameter}" if parameter else ""

    def _checked(self, name: Token, number: float, token: Token) -> float:
        wanted = REDUCERS[name.text].check(number)
        if wanted is not None:
            raise self._error(f"{name.text} takes {wanted}, got {number:g}", token)
        return number

    def _join(self, sign: Token, operation: Callable[[Any, Any], Any], left: _Node, right: _Node) -> _Node:
        self._count(sign)
        a, b = left.run, right.run
        compared = sign.text in _COMPARISONS
        if left.kind == right.kind == "number":
            try:
                return self._constant(float(operation(left.number, right.number)), sign)
            except (ArithmeticError, TypeError, ValueError) as error:
                raise self._error("This arithmetic of plain numbers has no finite result", sign) from error
        kind: _Kind = "tile" if "tile" in (left.kind, right.kind) else "value"
        # One value per tile meets all of its features: it stands for each of them.
        if left.kind == "value" and kind == "tile":
            a = _spread_over(a)
        if right.kind == "value" and kind == "tile":
            b = _spread_over(b)
        if compared:
            return _Node(kind, lambda data: operation(a(data), b(data)).to(data.dtype))
        return _Node(kind, lambda data: operation(a(data), b(data)))

    def _constant(self, number: float, token: Token) -> _Node:
        self._count(token)
        if not math.isfinite(number):
            raise self._error("This number is not finite", token)
        return _Node("number", lambda data: number, number)

    def _negated(self, node: _Node) -> _Node:
        run = node.run
        return _Node(node.kind, lambda data: -run(data), -node.number)

    def _count(self, token: Token) -> None:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise self._error(f"This has more than {_MAX_NODES} operations", token)

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _expect(self, text: str) -> None:
        token = self._next()
        if token.text != text or token.kind == "end":
            came = f"{token.text!r} came" if token.text else "the expression ends"
            raise self._error(f"{text!r} was expected here, and {came}", token)

    def _unknown(self, token: Token) -> Exception:
        known = ", ".join(["data", *REDUCERS, *ELEMENTWISE])
        return self._error(f"{token.text[:40]!r} is not known here. Known are {known}", token)

    def _error(self, message: str, token: Token) -> Exception:
        return bad_reduction(message, token.column, self._field)


def _spread_over(run: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    return lambda data: run(data).unsqueeze(-1)
