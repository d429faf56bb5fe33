"""Which tests a change asks for, and which belong to a room or a slice."""

from __future__ import annotations

import ast
import json
import posixpath
import re
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
# Over how many imports a change asks for the tests of other rooms.
IMPORTS = 2
# Wherever it stands. To parse whole files takes as long as the tests of a room.
IMPORT = re.compile(r"^[ \t]*(?:from [\w.]+ import (?:\([^)]*\)|[^\n(;#]+)|import [^\n;#]+)", re.M)
# Types alone are for the compiler, which looks at everything.
PAGE_IMPORT = re.compile(r"^(?!(?:im|ex)port type )[^\n]*?(?:from |import\(?)'(\.[^']+)'", re.M)
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

    It asks for the tests of each room that changed, and for the test files of others that import what changed over at most two imports. Tools look at files of
    their own language.
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
    source = [file for file in code if file.startswith("src/")]
    specs = {f"src/{_page_room(file)}/" for file in source} | _near(source)
    # First, so that the patterns to leave out, which stand before, end there.
    jest = ("--passWithNoTests", *sorted(specs)) if source else ()
    if any(file.startswith(("tests/kit/", "tests/conftest", "megalens/protocol/")) for file in code):
        return {**tools, "jest, fast": jest, "pytest, fast": ("tests",)}
    changed = {room for file in code if (room := _room(file)) is not None}
    places = {f"tests/{name.replace('.', '/')}" for name in changed}
    # A test's helper asks for the tests beside it, a benchmark for those of what benchmarks share.
    places |= {str(Path(file).parent) for file in code if file.startswith("tests/")} - {"tests"}
    if any(file.startswith("bench/") for file in code):
        places.add("tests/demo")
    if changed or any(file.startswith("tests/test_") for file in code):
        places |= {str(each.relative_to(ROOT)) for each in (ROOT / "tests").glob("test_*.py")}
    places |= _near([file for file in python if file.startswith("megalens/")])
    return {
        **tools,
        "jest, fast": jest,
        # What lies in a folder that is picked would run twice.
        "pytest, fast": tuple(
            each
            for each in sorted(places)
            if (ROOT / each).exists() and not any(each.startswith(f"{other}/") for other in places)
        ),
    }


def _near(files: list[str]) -> set[str]:
    """Return the test files that import one of ``files``, or what imports one of them: what is farther away has tests of its own between."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for top, ends in (("megalens", "*.py"), ("tests", "*.py"), ("src", "*.ts*"))
        for path in (ROOT / top).rglob(ends)
        if {file.partition("/")[0] for file in files} & {top, "megalens" if top == "tests" else top}
    }
    found, newest = set(files), set(files)
    for _ in range(IMPORTS):
        names = {_module(file) for file in newest}
        last = re.compile(rf"\b(?:{'|'.join({re.escape(re.split('[./]', name)[-1]) for name in names})})\b")
        newest = {
            file
            for file, text in texts.items()
            if file not in found and last.search(text) and not names.isdisjoint(_imported(file, text))
        }
        found |= newest
        if not newest:
            break
    return {file for file in found if Path(file).name.startswith("test_") or ".spec." in file}


def _module(file: str) -> str:
    name = re.sub(r"(?:/__init__|/index)?\.(?:py|tsx?)$", "", file)
    return name.replace("/", ".") if file.endswith(".py") else name


def _imported(file: str, text: str) -> set[str]:
    """Return what a file imports, by full names: modules, and in Python what is imported from them, which may be modules too."""
    package = file.split("/")[:-1]
    if not file.endswith(".py"):
        return {posixpath.normpath("/".join([*package, path])) for path in PAGE_IMPORT.findall(text)}
    names = set[str]()
    statements = "\n".join(statement.strip() for statement in IMPORT.findall(text))
    for node in ast.parse(statements).body:
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            whole = ".".join([*above, *([node.module] if node.module else [])])
            names |= {whole, *(f"{whole}.{each.name}" for each in node.names)}
    return names


def _room(file: str) -> str | None:
    parts = Path(file).with_suffix("").parts
    if parts[0] != "megalens":
        return None
    names = [".".join(parts[1:count]) for count in range(len(parts), 1, -1)]
    return next((name for name in names if name in ROOMS), None)


def _page_room(file: str) -> str:
    parts = file.split("/")[1:-1]
    return "/".join(parts[: 2 if parts[:1] == ["instruments"] else 1]) or "__tests__"
