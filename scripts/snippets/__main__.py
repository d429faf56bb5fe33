"""Run every Python snippet of README and docs: ``python -m scripts.snippets --training PYTHON --notebook PYTHON [PAGE …]``.

Both default to this Python. ``scripts/check-wheel.sh`` gives those of two clean environments, made by README's own ``pip install`` lines. A comment before
a snippet says how it is run:

- ``<!-- snippet: training -->``: a part of a training script. ``setup.py`` beside this file makes a small model, an optimizer and batches before it; ``training, own model`` makes one
  that Megalens does not know.
- ``<!-- snippet: continues -->``: goes on where the training snippet before it ended; ``continues, with run`` has the live run as ``run``, some steps later.
- ``<!-- snippet: notebook, live -->``: cells of a notebook, one a statement, beside a live run.
- ``<!-- snippet: notebook, recorded -->``: the same with recordings.
- either of the two with ``, raises NAME``: the page shows an error, which must come.
- ``<!-- snippet: not run, WHY -->``.

Exit codes: 0 all ran, 1 one of them did not, 2 a snippet's comment is not one of these.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Snippet", "main", "pages", "snippets_of"]

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SECONDS = 600
FENCE = re.compile(r"^(?:<!-- snippet: (?P<how>[^\n]*) -->\n+)?```python\n(?P<code>.*?)^```$", re.S | re.M)
TRAINING = ("training", "training, own model")
CONTINUED = ("continues", "continues, with run")
NOTEBOOKS = ("notebook, live", "notebook, recorded")


@dataclass(frozen=True)
class Snippet:
    """A fenced block of Python.

    Attributes
    ----------
    place : str
        Page and line.
    how : str
        One of the ways above.
    code : str
        Its text.
    error : str
        Class of the error that the page shows for it; empty as a rule.
    """

    place: str
    how: str
    code: str
    error: str = ""


def pages() -> list[Path]:
    """Return the pages whose snippets are run here; the scripts of docs/frameworks are tested by themselves."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted(docs.glob("elsewhere/*.md"))]


def snippets_of(page: Path) -> list[Snippet]:
    """Return the Python of one page.

    Raises
    ------
    ValueError
        When no comment says how a snippet is run, or what it says is none of the ways.
    """
    text = page.read_text(encoding="utf-8")
    found: list[Snippet] = []
    for match in FENCE.finditer(text):
        place = f"{page.name}:{text.count(chr(10), 0, match.start('code'))}"
        how, _, error = (match["how"] or "nothing").partition(", raises ")
        if how not in (*TRAINING, *CONTINUED, *NOTEBOOKS) and not re.fullmatch(r"not run, \S.+", how):
            ways = ", ".join((*TRAINING, *CONTINUED, *NOTEBOOKS))
            raise ValueError(
                f"{place}: expected a comment before it with one of {ways} or 'not run, WHY', got {how!r}"
            )
        if how in CONTINUED and not any(each.how in TRAINING for each in found):
            raise ValueError(f"{place}: there is no training snippet before it")
        found.append(Snippet(place, how, match["code"], error))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for, print what failed, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m scripts.snippets", description=__doc__)
    parser.add_argument("--training", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--notebook", default=sys.executable, metavar="PYTHON")
    parser.add_argument(
        "pages", nargs="*", type=Path, metavar="PAGE", help="all of README and docs when absent"
    )
    options = parser.parse_args(arguments)
    try:
        found = [each for page in options.pages or pages() for each in snippets_of(page)]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    failures: list[str] = []
    # A hub stays for viewers for some seconds, and may write while its folder goes.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        failures += _scripts(found, options.training, Path(home))
        for how in NOTEBOOKS:
            failures += _notebook([each for each in found if each.how == how], options, Path(home))
    print("\n".join(failures), end="\n" if failures else "")
    ran = sum(not each.how.startswith("not run") for each in found)
    print(f"{ran} snippets, {len(failures)} failed")
    return 1 if failures else 0


def _notebook(snippets: list[Snippet], options: argparse.Namespace, home: Path) -> list[str]:
    """Run the cells of all pages in one kernel, beside a live run or with recordings; return what failed."""
    if not snippets:
        return []
    live = snippets[0].how.endswith("live")
    folder = home / ("live" if live else "recorded")
    folder.mkdir()
    training = None
    try:
        if live:
            training = _live(options.training, folder)
        elif failed := _run([options.training, str(HERE / "setup.py"), "recordings"], "recordings", folder):
            return failed
        first = "connect()" if live else "open('megalens-runs/…')"
        cells = [("the run", f"import megalens; run = megalens.{first}", "")]
        for each in snippets:
            cells += [(each.place, cell, each.error) for cell in _cells(each.code)]
            if "use_widgets" in each.code:
                # One kernel runs the cells of all pages.
                cells.append((each.place, "megalens.use_widgets()", ""))
        return _run([options.notebook, str(HERE / "notebook.py")], "a notebook", folder, json.dumps(cells))
    finally:
        if training is not None:
            training.terminate()
            training.wait(60)


def _scripts(found: list[Snippet], python: str, home: Path) -> list[str]:
    """Run each training snippet with those that continue it; return what failed."""
    folders = {}
    for number, first in enumerate(found):
        if first.how not in TRAINING:
            continue
        folder = folders[first.place] = home / f"script{number}"
        _environment(folder)
        parts = [_begin(first.how.endswith("own model")), first.code]
        for later in found[number + 1 :]:
            if later.how in TRAINING:
                break
            if later.how in CONTINUED:
                parts += ["run = attached(tracer, model, batches)\n"] * later.how.endswith("run") + [
                    later.code
                ]
        parts.append("finish()\n")
        (folder / "train.py").write_text("\n".join(parts), encoding="utf-8")
    if not folders:
        return []
    command = [python, str(HERE / "setup.py"), "scripts", *map(str, folders.values())]
    return _run(command, "scripts", home, seconds=SECONDS * len(folders)) or [
        f"{place}: {(folder / 'log').read_text(errors='replace')[-2500:]}"
        for place, folder in folders.items()
        if not (folder / "ended").exists()
    ]


def _begin(own: bool) -> str:
    model = "own_model" if own else "known_model"
    return (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom setup import *\n"
        f"model = {model}(); optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"
    )


def _live(python: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "training.log").open("wb") as log:
        training = subprocess.Popen(
            [python, str(HERE / "setup.py"), "live"],
            cwd=folder,
            env=_environment(folder),
            stdout=log,
            stderr=log,
        )
    # The notebook itself waits for its steps.
    end = time.monotonic() + 90
    while not list((folder / "runtime").glob("hub-*.json")):
        if training.poll() is not None or time.monotonic() > end:
            training.kill()
            raise SystemExit("no live run: " + (folder / "training.log").read_text()[-2000:])
        time.sleep(0.1)
    return training


def _cells(code: str) -> list[str]:
    """Return the statements of a snippet, each with its comment: what a person types into a cell."""
    lines = code.splitlines()
    return ["\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in ast.parse(code).body]


def _environment(folder: Path) -> dict[str, str]:
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if os.environ.get("MEGALENS_SNIPPETS_PATH"):
        kept["PYTHONPATH"] = os.environ["MEGALENS_SNIPPETS_PATH"]
    # Threads of torch that wait for each other, spinning, take the time of the suites beside.
    kept["OMP_NUM_THREADS"] = "1"
    return {**kept, "MEGALENS_RUNTIME_DIR": str(runtime), "IPYTHONDIR": str(folder / "ipython")}


def _run(command: list[str], what: str, folder: Path, given: str = "", seconds: int = SECONDS) -> list[str]:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(folder),
            input=given,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return [f"{what}: did not end within {seconds} s"]
    return [f"{what}: {(done.stderr or done.stdout)[-2500:]}"] if done.returncode else []


if __name__ == "__main__":
    raise SystemExit(main())
