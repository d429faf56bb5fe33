"""Write the table of rules in ``docs/monitor.md``: ``python -m scripts.rules_page``. ``--check`` writes nothing and exits 1 when the page would change."""

from __future__ import annotations

import sys
from pathlib import Path

from megalens.instruments.monitor.rules import RULES
from megalens.protocol.kinds import kind_infos

PAGE = Path(__file__).parents[1] / "docs" / "monitor.md"
BEGIN, END = "<!-- rules -->\n", "<!-- /rules -->"


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| rule | severity | what an alarm means | parameters |", "|---|---|---|---|"]
    for info in kind_infos(RULES):
        rule = RULES[info["name"]]
        parameters = ", ".join(f"`{name}` {spec['default']:g}" for name, spec in rule.properties.items())
        lines.append(f"| `{rule.name}` | {rule.severity} | {info['description']} | {parameters} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Write the page, or say whether it is as it should be."""
    text = PAGE.read_text("utf-8")
    if "--check" in sys.argv:
        return int(page(text) != text)
    PAGE.write_text(page(text), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
