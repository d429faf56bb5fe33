"""The rooms import only what rooms.json allows, and importing megalens stays light."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_ALL = json.loads((ROOT / "rooms.json").read_text(encoding="utf-8"))
INSIDE_TRACER = _ALL["tracer"]
# A slice may be deleted; its rules go with it.
RULES = {
    room: rule
    for room, rule in _ALL["python"].items()
    if not room.startswith("instruments.") or (ROOT / "megalens" / room.replace(".", "/")).is_dir()
}
# What other libraries keep to themselves and there is no other way to.
FOREIGN = {
    "_BaseDataLoaderIter",
    "_C",
    "_cdata",
    "_current_graph_task_id",
    "_execution_engine",
    "_foreach_norm",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_functorch",
    "_get_default_store",
    "_local_tensor",
    "_modules",
    "_option_string_actions",
    "_parameters",
    "_replace",
    "_resolve_group",
    "_torchdynamo_disable",
    "_unsafe_view",
    "_version",
}


@cache
def parsed(path: Path) -> ast.Module:
    """A file's tree, which several rules look at."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of it: to walk through a tree takes longer than to parse it."""
    return tuple(ast.walk(parsed(path)))


@cache
def imported_names(path: Path, typing: bool = False) -> list[str]:
    """Absolute dotted names that a file imports, lazily or not; those for type checkers alone only if ``typing``."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    typing_only = {
        id(node)
        for block in nodes(path)
        if isinstance(block, ast.If)
        and isinstance(block.test, ast.Name | ast.Attribute)
        and ast.unparse(block.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for child in block.body
        for node in ast.walk(child)
    }
    names: list[str] = []
    for node in nodes(path):
        if not typing and id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


def room_of(path: Path) -> str | None:
    """The room with the longest path that holds a file; None for what belongs to none, such as the package's own __init__.py."""
    parts = path.relative_to(ROOT / "megalens").with_suffix("").parts
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in RULES), None)


def breaches(room: str, path: Path) -> list[str]:
    """Imports of one file that its room may not have."""
    rule = RULES[room]
    found = []
    for name in imported_names(path):
        top, _, rest = name.partition(".")
        if top == "megalens":
            # A room inside another one is allowed by its own name.
            inside = any(rest.startswith(f"{other}.") for other in RULES if other.startswith(f"{room}."))
            own = (rest == room or rest.startswith(f"{room}.")) and not inside
            # The version and the lazy facade names belong to no room.
            fits = own or any(rest == r or rest.startswith(f"{r}.") for r in rule["rooms"])
            fits = fits or rest.startswith("_version") or not rest
        else:
            fits = top in sys.stdlib_module_names or top in rule["packages"]
        if not fits:
            found.append(f"{path.relative_to(ROOT)} imports {name}")
    return found


FILES = sorted((ROOT / "megalens").rglob("*.py"))


@pytest.mark.parametrize("room", sorted(RULES))
def test_a_room_imports_only_from_its_left(room: str) -> None:
    files = [path for path in FILES if room_of(path) == room]
    assert files, f"megalens/{room} has no files"
    assert [line for path in files for line in breaches(room, path)] == []


@pytest.mark.parametrize("room", sorted(RULES))
def test_no_room_of_the_core_may_import_a_slice_and_no_slice_another(room: str) -> None:
    assert [other for other in RULES[room]["rooms"] if other.startswith("instruments")] == []


def test_no_files_import_each_other_in_a_circle() -> None:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in FILES
    }
    graph = {
        name: {
            found
            for each in imported_names(path, typing=True)
            if (found := _module(each, modules)) not in (None, name)
        }
        for name, path in modules.items()
    }
    assert circles(graph) == []


def _module(name: str, modules: dict[str, Path]) -> str | None:
    """The module that an imported name is of: itself, or what holds it."""
    return (
        name if name in modules else name.rpartition(".")[0] if name.rpartition(".")[0] in modules else None
    )


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected parts of more than one node (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            part = stack[stack.index(node) :]
            del stack[-len(part) :]
            if len(part) > 1:
                found.append(sorted(part))

    for node in graph:
        if node not in order:
            visit(node)
    return found


@pytest.mark.parametrize("folder", sorted(INSIDE_TRACER))
def test_a_folder_of_the_tracer_imports_only_what_stands_below_it(folder: str) -> None:
    allowed = [f"megalens.tracer.{name}" for name in (folder, *INSIDE_TRACER[folder])]
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / "megalens" / "tracer" / folder).rglob("*.py"))
        for name in imported_names(path)
        if name.startswith("megalens.")
        and not name.startswith("megalens.protocol.")
        and not any(name == each or name.startswith(f"{each}.") for each in allowed)
    ]
    assert found == []


def test_every_folder_of_the_tracer_has_a_rule() -> None:
    folders = {p.parent.name for p in (ROOT / "megalens" / "tracer").glob("*/__init__.py")}
    assert folders == set(INSIDE_TRACER)


def private_reaches(path: Path) -> list[str]:
    """Places where a file reaches into another object's private members."""
    tree = parsed(path)
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in FOREIGN
        and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]


@pytest.mark.parametrize("room", ["tracer", "adapters", "demo"])
def test_no_object_reaches_into_anothers_private_members(room: str) -> None:
    files = [*(ROOT / "megalens" / room).rglob("*.py"), *(ROOT / "megalens").glob("*.py")]
    assert [place for path in sorted(files) for place in private_reaches(path)] == []


def test_nothing_of_the_training_side_imports_a_room_by_its_name() -> None:
    for path in [
        *(ROOT / "megalens" / "tracer").rglob("*.py"),
        *(ROOT / "megalens" / "adapters").rglob("*.py"),
    ]:
        for call in nodes(path):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("import_module", "__import__"):
                assert ast.unparse(call) == "import_module('megalens._version')", path


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest takes the second for the first, and collects nothing at all."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "megalens").rglob("*.py")):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@cache
def _names_in(module: Path) -> set[str]:
    """What a module file, or a package's, has at its top level, with what it takes over by a star."""
    names = {each.stem for each in module.parent.iterdir()} if module.name == "__init__.py" else set()
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Modules that load on first use list their names.
            names.add(node.value)
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            names |= _names_in(module.parent / f"{node.module}.py")
    return names


@pytest.mark.parametrize("folder", ["bench", "scripts", "ui-tests"])
def test_what_is_run_by_hand_imports_names_that_exist(folder: str) -> None:
    missing = []
    for path in (ROOT / folder).rglob("*.py"):
        for node in nodes(path):
            module = getattr(node, "module", None)
            if not isinstance(node, ast.ImportFrom) or node.level or not module.startswith("megalens"):
                continue
            there = ROOT / module.replace(".", "/")
            slice_of = there.relative_to(ROOT).parts[:3]
            if slice_of[1:2] == ("instruments",) and not ROOT.joinpath(*slice_of).is_dir():
                continue
            file = there / "__init__.py" if there.is_dir() else there.with_suffix(".py")
            known = _names_in(file) if file.is_file() else set()
            missing += [f"{path.name}: {module}.{each.name}" for each in node.names if each.name not in known]
    assert missing == []


def test_benchmarks_load_files_of_the_page_that_exist() -> None:
    named = {
        name
        for path in [*(ROOT / "bench").rglob("*.mjs"), *(ROOT / "bench").rglob("*.py")]
        for name in re.findall(r"src/[\w/-]+\.ts", path.read_text(encoding="utf-8"))
    }
    slices = re.compile(r"src/instruments/\w+")
    there = {name for name in named if not (found := slices.match(name)) or (ROOT / found[0]).is_dir()}
    assert len(named) >= 5
    assert [name for name in sorted(there) if not (ROOT / name).is_file()] == []


def test_readmes_and_docs_name_files_that_exist() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    there = {Path(each).name for each in listed if (ROOT / each).is_file()}
    pages = [each for each in listed if each.startswith(("megalens/", "src/")) and each.endswith("README.md")]
    pages += ["docs/architecture.md", "docs/internals.md", "CONTRIBUTING.md"]
    missing = [
        f"{page}: {name}"
        for page in pages
        if (ROOT / page).is_file()
        for name in re.findall(r"`([\w/.-]+\.(?:py|tsx?|mjs))`", (ROOT / page).read_text(encoding="utf-8"))
        if Path(name).name not in there
    ]
    assert len(there) > 100
    assert missing == []


def test_every_file_is_in_a_room() -> None:
    outside = {str(path.relative_to(ROOT)) for path in FILES if room_of(path) is None}
    assert outside == {
        f"megalens/{name}.py" for name in ("__init__", "__main__", "_moved", "_needed", "_version")
    } | {"megalens/instruments/__init__.py"}


# What megalens or a room of it needs at some time, each worth a tenth of a second or more.
HEAVY = {
    "IPython",
    "duckdb",
    "ipywidgets",
    "jsonschema",
    "jupyter_server",
    "numpy",
    "pandas",
    "py_mini_racer",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "torch",
    "transformers",
    "websockets",
}


def loaded(code: str, among: set[str]) -> set[str]:
    """Return which of ``among`` a fresh process has imported after it ran ``code``."""
    code += "; import sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return among & set(out.stdout.split())


@pytest.mark.parametrize(
    "code", ["import megalens; dir(megalens)", "from megalens import NoOp, Noise1, ProtocolError, Tile"]
)
def test_megalens_and_what_describes_a_trace_pull_in_no_heavy_package(code: str) -> None:
    assert loaded(code, HEAVY) == set()


@pytest.mark.slow
def test_tracing_pulls_in_only_torch_and_what_sends() -> None:
    light = {"numpy", "pyarrow", "torch", "websockets"}
    assert loaded("import megalens; megalens.trace; megalens.log_statistics", HEAVY) == light


def test_no_message_and_no_options_need_a_library_of_schemas() -> None:
    code = (
        "import megalens.runs, megalens.protocol as p; "
        "p.check_message({'type': 'goodbye', 'reason': 'finished'}); p.check_view_options({'view': 'scalars'})"
    )
    assert loaded(code, {"jsonschema"}) == set()
