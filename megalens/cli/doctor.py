"""The command line: ``megalens doctor``: what of an installation works, to read and to paste into a report.

It says versions and states, never a token, an address or a path: a home is ``~``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..hub.discovery import found_hubs, runtime_folder
from ..protocol import VIEW_NAMES, MegalensError, parse_json, shown_text
from ..protocol.version import own_version

_PACKAGES = (
    "jupyterlab",
    "notebook",
    "jupyter_server",
    "ipywidgets",
    "pyarrow",
    "duckdb",
    "pandas",
    "torch",
    "transformers",
)
_LEAST_FREE = 1 << 30
_LEAST_FILES = 256


@dataclass(frozen=True)
class Looked:
    """What was looked at, what was found, and what to do where it is not as it should be."""

    what: str
    found: str
    advice: str = ""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="look whether this installation works; prints what belongs into a bug report",
        description="Look whether this installation works, and print what belongs into a bug report.",
        epilog="Exit codes: 0 all is well, 1 something is not.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    wrong = 0
    for look in (_versions, _extensions, _runtime, _limits, _native, _engine):
        try:
            findings = list(look())
        except (MegalensError, OSError, ImportError, KeyError, TypeError, ValueError) as error:
            findings = [Looked(look.__name__[1:], "could not be looked at", str(error))]
        for each in findings:
            wrong += bool(each.advice)
            if arguments.json:
                print(
                    json.dumps(
                        {"what": each.what, "found": _plain(each.found), "advice": _plain(each.advice)}
                    )
                )
            else:
                print(f"{'!!' if each.advice else 'ok'}  {each.what:18} {_plain(each.found)}")
                if each.advice:
                    print(f"    {_plain(each.advice)}")
    return 1 if wrong else 0


def _plain(text: str) -> str:
    return shown_text(text.replace(str(Path.home()), "~"), 600)


def _versions() -> Iterator[Looked]:
    from importlib.metadata import PackageNotFoundError, version

    yield Looked("megalens", own_version())
    yield Looked("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in _PACKAGES:
        try:
            yield Looked(package, version(package))
        except PackageNotFoundError:
            yield Looked(package, "not installed")


def _extensions() -> Iterator[Looked]:
    """Look for what Jupyter reads at its start, where it looks for it."""
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    enabled = [Path(each, "jupyter_server_config.d", "megalens.json") for each in jupyter_config_path()]
    there = any(each.is_file() for each in enabled)
    yield Looked(
        "server extension",
        "enabled" if there else "not enabled",
        "" if there else "Run: jupyter server extension enable megalens",
    )
    page = next(
        (
            path
            for each in jupyter_path("labextensions", "megalens")
            if (path := Path(each, "package.json")).is_file()
        ),
        None,
    )
    if page is None:
        yield Looked(
            "lab extension", "not found", "Install Megalens into the environment in which Jupyter runs."
        )
        return
    built = str(parse_json(page.read_bytes())["version"])
    same = built == own_version()
    yield Looked(
        "lab extension",
        built,
        "" if same else f"Megalens is {own_version()}: install both anew, and load the page again.",
    )


def _runtime() -> Iterator[Looked]:
    folder = runtime_folder()
    parent = next(each for each in (folder, *folder.parents) if each.exists())
    writable = os.access(parent, os.W_OK)
    yield Looked(
        "runtime folder",
        str(folder),
        ""
        if writable
        else "It cannot be written, so runs are not found: set MEGALENS_RUNTIME_DIR to a folder of your own.",
    )
    here, distant = found_hubs()
    yield Looked("live runs", f"{len(here)} here, {len(distant)} that cannot be reached from here")


def _limits() -> Iterator[Looked]:
    free = shutil.disk_usage(".").free
    yield Looked(
        "disk",
        f"{free / 2**30:.1f} GiB free",
        "" if free >= _LEAST_FREE else "A recording that fills the disk ends: set record_bytes.",
    )
    try:
        import resource
    except ImportError:
        return
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = files == resource.RLIM_INFINITY or files >= _LEAST_FILES
    yield Looked(
        "open files",
        f"{files}",
        "" if enough else f"A hub of many ranks needs more: ulimit -n {_LEAST_FILES} or above.",
    )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    yield Looked(
        "address space",
        "not limited" if space == resource.RLIM_INFINITY else f"limited to {space / 2**30:.1f} GiB",
    )


def _native() -> Iterator[Looked]:
    try:
        from ..tracer.moments.native.library import load
    except ImportError:
        # Without torch nothing is measured here.
        return
    kernel = load()
    yield Looked("native library", kernel if isinstance(kernel, str) else f"loaded, {kernel.name}")


def _engine() -> Iterator[Looked]:
    """Have the engine that draws pictures ask for a run that is not there, which needs all of it."""
    from ..pictures.engine import EngineError, run_job

    try:
        run_job("still", {"run": "doctor", "options": {"view": VIEW_NAMES[0]}}, {})
    except EngineError as error:
        works = error.code == "not-found"
        yield Looked("pictures", "the engine works" if works else "fail", "" if works else error.message)
