"""Write the Python types of messages and requests, a ``TypedDict`` a definition of their schemas: ``messages_generated.py``, ``requests_generated.py``.

Run from the root of a checkout: ``python -m scripts.message_types``. ``--check`` writes nothing and exits 1 when a file would change.
"""

from __future__ import annotations

import json
import subprocess
import sys
from keyword import iskeyword
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "protocol"
TARGETS = ROOT / "megalens" / "protocol"
KINDS = ("messages", "requests")

HEAD = '''"""The KINDS of ``protocol/KINDS.schema.json`` as types.

Generated from ``protocol/KINDS.schema.json`` by ``scripts/message_types.py``. Do not edit: run ``make generate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    # Annotations are never evaluated here, so that Python 3.10 needs no other package for it.
    from typing import NotRequired
'''
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


class Writer:
    """Collects the text of every type, inline objects before what holds them."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._titles = {key: spec["title"] for key, spec in definitions.items()}
        self.names: list[str] = []
        self.texts: list[str] = []
        for key, spec in definitions.items():
            self._define(self._titles[key], spec)

    def _define(self, name: str, spec: dict[str, Any]) -> None:
        if name in self.names:
            return
        if "properties" not in spec:
            text = f"{name} = {self._type(spec, name)}\n"
        else:
            required = spec.get("required", ())
            members, base = [], "TypedDict"
            for key, value in spec["properties"].items():
                kind = self._type(value, name + key.title().replace("_", ""))
                if iskeyword(key):
                    # No class can have a member of this name.
                    base = f"_{name}{key.title()}"
                    self.texts.append(f'{base} = TypedDict("{base}", {{"{key}": {kind}}}, total=False)\n')
                    continue
                members.append(f"    {key}: {kind if key in required else f'NotRequired[{kind}]'}\n")
                if "description" in value:
                    members.append(f"    {quoted(value['description'])}\n")
            text = (
                f"\nclass {name}({base}):\n    {quoted(spec.get('description', name))}\n\n"
                + "".join(members)
                + "\n"
            )
            self.names.append(name)
            self.texts.append(text)
            return
        self.names.append(name)
        self.texts.append(text + (f"{quoted(spec['description'])}\n\n" if "description" in spec else "\n"))

    def _type(self, spec: dict[str, Any], name: str) -> str:
        if "$ref" in spec:
            return self._titles[spec["$ref"].rsplit("/", 1)[1]]
        if "const" in spec or "enum" in spec:
            values = spec.get("enum", [spec.get("const")])
            return f"Literal[{', '.join(json.dumps(value) for value in values)}]"
        if "anyOf" in spec:
            return " | ".join(self._type(each, name) for each in spec["anyOf"])
        kind = spec["type"]
        if isinstance(kind, list):
            return " | ".join(self._type({**spec, "type": each}, name) for each in kind)
        if kind == "array":
            return f"list[{self._type(spec['items'], name)}]"
        if kind != "object":
            return PLAIN[kind]
        if "properties" in spec:
            name = spec.get("title", name)
            self._define(name, spec)
            return name
        values = spec.get("additionalProperties")
        return f"dict[str, {self._type(values, name) if isinstance(values, dict) else 'Any'}]"


def quoted(text: str) -> str:
    """Return a docstring of one sentence or more."""
    return '"""' + text.strip().rstrip(".").replace("\\", "\\\\") + '."""'


def with_views(node: Any, views: dict[str, Any]) -> Any:
    """Return a schema with what it takes from ``views.schema.json`` written out."""
    if isinstance(node, list):
        return [with_views(each, views) for each in node]
    if not isinstance(node, dict):
        return node
    file, _, path = str(node.get("$ref", "")).partition("#/")
    if file:
        found: Any = views
        for name in path.split("/"):
            found = found[name]
        return with_views(json.loads(json.dumps(found).replace('"#/', f'"{file}#/')), views)
    return {key: with_views(each, views) for key, each in node.items()}


def source(kind: str) -> str:
    """Return the text of a whole file."""
    schema, views = (
        json.loads((SCHEMAS / f"{each}.schema.json").read_text(encoding="utf-8")) for each in (kind, "views")
    )
    schema = with_views(schema, views)
    writer = Writer(schema["$defs"])
    union = " | ".join(schema["$defs"][one["$ref"].rsplit("/", 1)[1]]["title"] for one in schema["oneOf"])
    title = schema["title"]
    every = f'{title}: TypeAlias = "{union}"\n{quoted(schema["description"])}\n'
    names = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted([*writer.names, title])) + "]\n\n"
    return HEAD.replace("KINDS", kind) + "\n" + names + "".join(writer.texts) + "\n" + every


def main() -> int:
    """Write the files, or say which are out of step."""
    stale = [kind for kind in KINDS if not _written(kind)]
    return 1 if stale and "--check" in sys.argv[1:] else 0


def _written(kind: str) -> bool:
    target = TARGETS / f"{kind}_generated.py"
    text = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", str(target)],
        input=source(kind),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    if target.is_file() and target.read_text(encoding="utf-8") == text:
        return True
    if "--check" in sys.argv[1:]:
        print(f"{target.relative_to(ROOT)} is out of step with protocol/: run make generate")
    else:
        target.write_text(text, encoding="utf-8")
        print(f"wrote {target.relative_to(ROOT)}")
    return False


if __name__ == "__main__":
    sys.exit(main())
