"""No regular expression in the code takes more than time linear in a text."""

import ast
import re
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "megalens"
_LENGTH = 4000
# One that goes back over 4,000 characters takes fifty times as long.
_MOST = 0.01


def expressions():
    for file in sorted(ROOT.rglob("*.py")):
        code = file.read_text(encoding="utf-8")
        if not re.search(r"\bre\.\w+\(", code):
            continue
        nodes = list(ast.walk(ast.parse(code)))
        names = {
            id(each.value): ast.unparse(each.targets[0])
            for each in nodes
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)
        }
        for node in nodes:
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                flags = re.ASCII if "re.ASCII" in ast.unparse(node) else 0
                # How the code asks it: one that begins where the text does need not be quick elsewhere.
                asked = {
                    how
                    for how in ("search", "match", "fullmatch", "finditer", "sub", "split")
                    if f"{names.get(id(node), 're')}.{how}(" in code
                }
                anywhere = bool(asked - {"match", "fullmatch"}) or not asked
                yield pytest.param(
                    node.args[0].value, flags, anywhere, id=f"{file.relative_to(ROOT)}:{node.lineno}"
                )


def slowest(pattern, flags=0, anywhere=False):
    plain = pattern.decode() if isinstance(pattern, bytes) else pattern
    expression = re.compile(plain, flags)
    letters = [*dict.fromkeys([*"a0 .:-%", *re.sub(r"\\.", "", plain)])][:16]
    worst = 0.0
    for lead in ["", "1", "a=", *letters[4:]]:
        for pump in letters:
            text = lead + pump * _LENGTH + "a\x01"
            took = _LENGTH
            for _ in range(3):
                started = time.thread_time()
                expression.fullmatch(text)
                if anywhere:
                    expression.search(text)
                took = min(took, time.thread_time() - started)
                if took < _MOST:
                    break
            worst = max(worst, took)
        if worst > _MOST:
            break
    return worst


def test_one_that_goes_back_is_noticed():
    assert slowest(r"\s*([0-9]+)\s*%?\s*") > _MOST


@pytest.mark.parametrize(("pattern", "flags", "anywhere"), list(expressions()))
def test_no_expression_goes_back(pattern, flags, anywhere):
    assert slowest(pattern, flags, anywhere) < _MOST
