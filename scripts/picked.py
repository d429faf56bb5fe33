"""Which tests a change asks for, and which belong to a room or a slice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

__all__ = ["changed_files", "of_room", "of_rooms", "picks"]

ROOT = Path(__file__).parents[1]
ROOMS = json.loads((ROOT / "rooms.json").read_text(encoding="utf-8"))["python"]
# Changes here have nothing to do with what a test does.
PROSE = (".md", ".ipynb", ".png")
# Checks that look at one language alone, and those that compare what is generated with what it is generated of.
PYTHON = ("ruff format", "ruff lint", "mypy strict")
PAGE = ("prettier", "eslint", "stylelint", "tsc strict")
CONTRACT = ("generated types", "generated types, Python", "golden fixtures")


def changed_files() -> list[str] | None:
    """Return the files that differ from the branch's beginning on ``origin/main``, or from the last commit where there is no such branch; None where git says nothing."""

    def asked(*words: str) -> str | None:
        done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    base = (asked("merge-base", "HEAD", "origin/main") or "HEAD").strip()
    differing, new = asked("diff", "--name-only", base), asked("ls-files", "--others", "--exclude-standard")
    if differing is None or new is None:
        return None
    return sorted({*differing.split(), *new.split()})


def of_room(name: str) -> tuple[list[str], list[str]]:
    """Return where the tests of a room or a slice lie: for jest, and for pytest."""
    jest = [f"src/{each}" for each in (name, f"instruments/{name}") if (ROOT / "src" / each).is_dir()]
    pytest = [f"tests/{each}" for each in (name, f"instruments/{name}") if (ROOT / "tests" / each).is_dir()]
    return jest, pytest


def of_rooms(names: list[str]) -> dict[str, tuple[str, ...]]:
    """Return what is added to the commands of jest and pytest to run the tests of rooms alone; a suite without any is left out.

    Raises
    ------
    SystemExit
        When one is no room; says which there are.
    """
    found = {name: of_room(name) for name in names}
    for name, places in found.items():
        if places == ([], []):
            known = {
                path.name for top in ("src", "tests", "src/instruments") for path in (ROOT / top).iterdir()
            }
            rooms = sorted(each for each in known if of_room(each) != ([], []) and "_" not in each)
            raise SystemExit(f"There are no tests of {name!r}. Rooms and slices are: {', '.join(rooms)}.")
    suites = {
        "jest": tuple(place for jest, _ in found.values() for place in jest),
        "pytest": tuple(place for _, pytest in found.values() for place in pytest),
    }
    return {suite: places for suite, places in suites.items() if places}


def picks(files: list[str] | None) -> dict[str, tuple[str, ...]] | None:
    """Return what a change asks for of the fast checks, in the form of :func:`of_rooms`, with ``()`` for what it does not; None where it is everything.

    Python's tests are picked by room: those of each room that changed and of the rooms that may import it. Jest follows imports by itself. Tools look at files
    of their own language.
    """
    if not files:
        return None
    code = [file for file in files if not file.endswith(PROSE)]
    if any(
        not file.startswith(("src/", "style/", "megalens/", "tests/", "ui-tests/", "bench/")) for file in code
    ):
        return None
    python = [file for file in code if file.endswith(".py")]
    contract = any("generated" in file or file.startswith("megalens/protocol/") for file in code)
    tools = dict[str, tuple[str, ...]].fromkeys(
        (
            *(() if python else PYTHON),
            *(() if len(python) < len(code) else PAGE),
            *(() if contract else CONTRACT),
        ),
        (),
    )
    source = tuple(file for file in code if file.startswith(("src/", "style/")))
    jest = ("--passWithNoTests", "--findRelatedTests", *source) if source else ()
    if any(file.startswith(("tests/kit/", "tests/conftest", "megalens/protocol/")) for file in code):
        return {**tools, "jest, fast": jest, "pytest, fast": ("tests",)}
    changed = {room for file in code if (room := _room(file)) is not None}
    asking = {
        name
        for name, rule in ROOMS.items()
        if any(_holds(each, other) for each in rule["rooms"] for other in changed)
    }
    places = {f"tests/{name.replace('.', '/')}" for name in changed | asking}
    # A test's helper asks for the tests beside it, a benchmark for those of what benchmarks share.
    places |= {str(Path(file).parent) for file in code if file.startswith("tests/")} - {"tests"}
    if any(file.startswith("bench/") for file in code):
        places.add("tests/demo")
    if changed or any(file.startswith("tests/test_") for file in code):
        places |= {str(each.relative_to(ROOT)) for each in (ROOT / "tests").glob("test_*.py")}
    return {
        **tools,
        "jest, fast": jest,
        "pytest, fast": tuple(sorted(each for each in places if (ROOT / each).exists())),
    }


def _room(file: str) -> str | None:
    parts = Path(file).with_suffix("").parts
    if parts[0] != "megalens":
        return None
    names = [".".join(parts[1:count]) for count in range(len(parts), 1, -1)]
    return next((name for name in names if name in ROOMS), None)


def _holds(allowed: str, room: str) -> bool:
    return room == allowed or allowed.startswith(f"{room}.") or room.startswith(f"{allowed}.")
