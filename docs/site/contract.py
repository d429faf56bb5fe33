"""The directives ``streams`` and ``messages``: reference tables made of the files of ``protocol/`` that the code reads, too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

PROTOCOL = Path(__file__).parents[2] / "protocol"


def cell(text: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "\\<")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return ["", *(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)), ""]


def streams() -> list[str]:
    """Return a section for each stream: what a row is, and its columns."""
    lines = []
    for name, stream in json.loads((PROTOCOL / "streams.json").read_text("utf-8"))["streams"].items():
        policy = stream["policy"]
        lines += ["", f"## {name}", "", f"*{stream['title']}.* {stream.get('doc', '')}", ""]
        identity = ", ".join(f"`{each}`" for each in policy.get("identity", []))
        lines += (
            [f"A row is identified by {identity}. The hub keeps the {policy['keep']}."] if identity else []
        )
        lines += table(
            ("column", "type", "what it holds"),
            [(f"`{each['name']}`", f"`{each['type']}`", cell(each["doc"])) for each in stream["fields"]],
        )
    return lines


def kind(schema: dict[str, Any]) -> str:
    """Return in a few words what a schema accepts."""
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(each) for each in schema["enum"])
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " or ".join(kind(each) for each in schema[several])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    what = schema.get("type", "anything")
    what = " or ".join(what) if isinstance(what, list) else what
    low, high = schema.get("minimum"), schema.get("maximum")
    return f"{what}, {low} to {high}" if low is not None and high is not None else str(what)


def messages(file: str) -> list[str]:
    """Return a section for each definition of a schema: its sentence and its members."""
    schema = json.loads((PROTOCOL / file).read_text("utf-8"))
    lines = ["", schema["description"], ""]
    for name, one in schema["$defs"].items():
        lines += ["", f"## {name}", "", one.get("description", "")]
        if "properties" not in one:
            lines += ["", f"{cell(kind(one))}."]
            continue
        needed = one.get("required", [])
        lines += table(
            ("member", "value", "", "what it says"),
            [
                (
                    f"`{key}`",
                    f"`{kind(each)}`".replace("|", "\\|"),
                    "required" if key in needed else "",
                    cell(each.get("description", "")),
                )
                for key, each in one["properties"].items()
            ],
        )
    return lines


class Contract(SphinxDirective):
    """Write what a file of ``protocol/`` says: ``streams.json``, or one of the schemas."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the parsed sections."""
        file = self.arguments[0]
        self.env.note_dependency(str(PROTOCOL / file))
        made = nodes.section()
        self.state.nested_parse(
            StringList(streams() if file == "streams.json" else messages(file), file),
            self.content_offset,
            made,
            match_titles=True,
        )
        return made.children


def plain_words(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Keep a word such as ``pass_`` a word, where a docstring has it without backquotes: reStructuredText takes it for a link."""
    lines[:] = [re.sub(r"(?<![\w`:])(\w+)_(?![\w`])", r"\1\\_", line) for line in lines]


def setup(app: Any) -> dict[str, bool]:
    """Make the directive known."""
    app.add_directive("contract", Contract)
    app.connect("autodoc-process-docstring", plain_words)
    return {"parallel_read_safe": True}
