"""Every sentence that rules and verdicts make has a sample, which the page's test says in Chinese."""

import ast
import json
import re
from pathlib import Path

import pytest

from megalens.instruments.monitor.rules import RULES
from megalens.protocol.kinds import kind_infos

ROOT = Path(__file__).parents[2]
SAMPLES = json.loads((ROOT / "protocol/fixtures/sentences.json").read_text())
INSTRUMENTS = ROOT / "megalens/instruments"
FILES = [
    *sorted((INSTRUMENTS / "monitor/rules").glob("*.py")),
    *(INSTRUMENTS / "timeline" / name for name in ("culprits.py", "stuck.py", "dependencies.py")),
]


class Parts(ast.NodeVisitor):
    """The literal parts of texts that functions make; not what describes settings, nor errors."""

    def __init__(self):
        self.found = []

    def visit_Call(self, node):
        name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
        if name not in ("number", "shown_text", "remember", "once"):
            self.generic_visit(node)

    def visit_Raise(self, node):
        pass

    def visit_Assign(self, node):
        # Titles and what several settings say.
        if not isinstance(node.value, ast.Constant) or node.col_offset > 4:
            self.generic_visit(node)

    def visit_ClassDef(self, node):
        # A verdict as a text is for the terminal.
        if node.name != "Verdict":
            self.generic_visit(node)

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self.found += [part.strip() for part in re.split(r"\{.*?\}", node.value)]


def test_what_rules_are_called_and_mean_is_in_every_language():
    texts = set()
    for each in kind_infos(RULES):
        texts |= {each["title"], each["description"]}
        for spec in each["schema"]["properties"].values():
            texts |= {spec["title"], spec["description"]}
    for catalogue in (ROOT / "megalens/locale").glob("*/LC_MESSAGES/megalens.json"):
        assert texts - set(json.loads(catalogue.read_text())) == set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_part_of_a_sentence_is_in_a_sample(file):
    parts = Parts()
    parts.visit(ast.parse(file.read_text()))
    said = "\n".join(each for some in SAMPLES.values() for each in some)
    assert [each for each in parts.found if len(each.split()) > 2 and each not in said] == []
