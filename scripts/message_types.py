"""Write the Python types of the messages: ``megalens/protocol/messages_generated.py``, a ``TypedDict`` a definition of the schema.

Run from the root of a checkout: ``python -m scripts.message_types``. ``--check`` writes nothing and exits 1 when the file would change.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "protocol" / "messages.schema.json"
TARGET = ROOT / "megalens" / "protocol" / "messages_generated.py"

HEAD = '''"""The messages of ``protocol/messages.schema.json`` as types.

Generated from ``protocol/messages.schema.json`` by ``scripts/message_types.py``. Do not edit: run ``make generate``.
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
        if "properties" not in spec:
            text = f"{name} = {self._type(spec, name)}\n"
        else:
            required = spec.get("required", ())
            members = []
            for key, value in spec["properties"].items():
                kind = self._type(value, name + key.title().replace("_", ""))
                members.append(f"    {key}: {kind if key in required else f'NotRequired[{kind}]'}\n")
                if "description" in value:
                    members.append(f"    {quoted(value['description'])}\n")
            text = (
                f"\nclass {name}(TypedDict):\n    {quoted(spec.get('description', name))}\n\n"
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
            return " | ".join(PLAIN[each] for each in kind)
        if kind == "array":
            return f"list[{self._type(spec['items'], name)}]"
        if kind != "object":
            return PLAIN[kind]
        if "properties" in spec:
            self._define(name, spec)
            return name
        values = spec.get("additionalProperties")
        return f"dict[str, {self._type(values, name) if values else 'Any'}]"


def quoted(text: str) -> str:
    """Return a docstring of one sentence or more."""
    return '"""' + text.strip().rstrip(".").replace("\\", "\\\\") + '."""'


def source() -> str:
    """Return the text of the whole file."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    writer = Writer(schema["$defs"])
    union = " | ".join(schema["$defs"][one["$ref"].rsplit("/", 1)[1]]["title"] for one in schema["oneOf"])
    every = f'Message: TypeAlias = "{union}"\n{quoted(schema["description"])}\n'
    names = (
        "__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted([*writer.names, "Message"])) + "]\n\n"
    )
    return HEAD + "\n" + names + "".join(writer.texts) + "\n" + every


def main() -> int:
    """Write the file, or say that it is out of step."""
    text = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", str(TARGET)],
        input=source(),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{TARGET.relative_to(ROOT)} is out of step with protocol/: run make generate")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
