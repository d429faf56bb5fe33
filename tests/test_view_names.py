"""No Python room of the core names a view: tables, widgets and methods are made from the contract. A slice names its own."""

import json
import re
from pathlib import Path

import pytest

from megalens.protocol import STREAM_NAMES, VIEW_NAMES, view_about

ROOT = Path(__file__).parents[1]
EXCEPTIONS = json.loads((ROOT / "view-names.json").read_text(encoding="utf-8"))["exceptions"]
METHODS = tuple(view_about(view)["method"] for view in VIEW_NAMES)
# Words that streams, or what is logged, have as well.
SHARED = (*STREAM_NAMES, "statistics")
QUOTED = re.compile(r"""(["'])(\w+)\1""")


def named(line: str) -> list[str]:
    """Views that a line names as text; a name that a stream has as well counts only on a line that speaks of views, not streams."""
    found = {match[1] for match in QUOTED.findall(line)}
    return [
        name
        for name in dict.fromkeys((*VIEW_NAMES, *METHODS))
        if name in found and (name not in SHARED or ("view" in line.lower() and "stream" not in line.lower()))
    ]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ('    view_name = "statistics"', ["statistics"]),
        ('_METHODS = {"heatmap": "heatmap"}', ["heatmap"]),
        ('    table = empty_table("moments")', []),
        ("# the history of a run", []),
    ],
)
def test_what_a_line_names(line, names):
    assert named(line) == names


def test_no_room_names_views():
    breaches = []
    for path in sorted((ROOT / "megalens").rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if "generated" in path.name or place.startswith("megalens/instruments/"):
            continue
        allowed = {name for each in EXCEPTIONS if place.startswith(each["path"]) for name in each["names"]}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            breaches += [f"{place}:{number} names {name}" for name in named(line) if name not in allowed]
    assert breaches == []
