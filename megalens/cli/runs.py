"""``megalens runs``: what is live, or the recordings in folders, searched, sorted and grouped."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..protocol import shown_text
from .hub import main_runs

if TYPE_CHECKING:
    from ..runs.run_index import ListedRun

_LIMIT = 200


class _Line(NamedTuple):
    run: ListedRun
    state: str
    bytes: int
    tags: Sequence[str]
    notes: str


_ORDERS: dict[str, Callable[[_Line], tuple[float | str, str]]] = {
    "started": lambda line: (-line.run.started, line.run.id),
    "name": lambda line: (line.run.name.casefold(), line.run.id),
    "step": lambda line: (-line.run.step, line.run.id),
    "bytes": lambda line: (-line.bytes, line.run.id),
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    words = "list the runs that are live now, or the recordings in folders: search, sort and group them"
    parser = commands.add_parser(
        "runs",
        help=words,
        description=f"{words[0].upper()}{words[1:]}. What is known of them is kept in an index in the cache.",
        epilog="Exit codes: 0 listed, 1 an error of Megalens, 2 wrong arguments or no such folder.",
    )
    parser.add_argument(
        "folders",
        type=Path,
        nargs="*",
        metavar="FOLDER",
        help="folder of run folders, such as megalens-runs; without one live runs are listed",
    )
    parser.add_argument("--search", metavar="WORDS", help="all of these words in name, id, tags or notes")
    parser.add_argument("--tag", help="runs with this tag")
    parser.add_argument("--since", type=_moment, metavar="DATE", help="begun then or later: 2026-11-28")
    parser.add_argument("--until", type=_moment, metavar="DATE", help="begun before")
    parser.add_argument("--by", choices=["job", "tag", "day", "state"], help="stand together")
    parser.add_argument(
        "--sort", choices=list(_ORDERS), default="started", help="(default: the newest first)"
    )
    parser.add_argument("--limit", type=int, default=_LIMIT, help=f"at most so many (default: {_LIMIT})")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, without tokens")
    parser.set_defaults(run=_runs)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _runs(arguments: argparse.Namespace) -> int:
    if not arguments.folders:
        return main_runs(arguments)
    folders: list[Path] = arguments.folders
    missing = next((folder for folder in folders if not folder.is_dir()), None)
    if missing is not None:
        print(shown_text(f"megalens runs: {missing} is no folder."), file=sys.stderr)
        return 2
    lines = [line for folder in folders for line in _lines(folder) if _fits(line, arguments)]
    lines.sort(key=_ORDERS[arguments.sort])
    groups: dict[str, list[_Line]] = {}
    for line in lines[: arguments.limit]:
        for group in _groups(line, arguments.by):
            groups.setdefault(group, []).append(line)
    for group, found in groups.items():
        if arguments.by and not arguments.json:
            print(shown_text(f"{group} ({len(found):,})", 300))
        for line in found:
            print(_json(line, group) if arguments.json else shown_text(_words(line, bool(arguments.by)), 600))
    if len(lines) > arguments.limit and not arguments.json:
        print(f"{len(lines) - arguments.limit:,} more: --limit {len(lines)} lists all.")
    return 0


def _lines(home: Path) -> Iterator[_Line]:
    from ..hub.discovery import live_hubs
    from ..runs import ClientError
    from ..runs.run_index import NOTES_FILE, RunIndex, read_notes

    home = home.absolute()
    index, live = RunIndex(home), {hub.id for hub in live_hubs()}
    for folder in sorted(home.iterdir()):
        try:
            run = index.run(folder)
        except (ClientError, OSError) as error:
            print(shown_text(f"{folder.name} is left out: {error}", 300), file=sys.stderr)
            continue
        if run is None:
            continue
        tags, notes = list[str](), ""
        with suppress(OSError, ValueError):
            if (folder / NOTES_FILE).exists():
                written = read_notes(folder)
                tags, notes = written["tags"], written["notes"]
        state = "live" if run.id in live else "recorded" if run.closed and not run.lost else "gone"
        yield _Line(run, state, index.bytes(run), tags, notes)
    index.save()


def _fits(line: _Line, arguments: argparse.Namespace) -> bool:
    run = line.run
    text = " ".join([run.name, run.id, line.notes, *line.tags]).casefold()
    return (
        all(word in text for word in (arguments.search or "").casefold().split())
        and (arguments.tag is None or arguments.tag in line.tags)
        and (arguments.since is None or run.started >= arguments.since)
        and (arguments.until is None or run.started < arguments.until)
    )


def _groups(line: _Line, by: str | None) -> Sequence[str]:
    from ..runs.run_words import job_name

    if by == "tag":
        return line.tags or ["no tag"]
    if by == "job":
        return [job_name(line.run.name)]
    if by == "day":
        return [time.strftime("%Y-%m-%d", time.localtime(line.run.started))]
    return [line.state if by == "state" else ""]


def _words(line: _Line, inside: bool) -> str:
    run = line.run
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
    tags = f"  [{', '.join(line.tags)}]" if line.tags else ""
    size = f"{line.bytes / 1e6:,.1f} MB"
    words = f"{run.name}  {begun}  {line.state}  step {run.step:,}  {size}{tags}  {run.id}"
    return f"  {words}" if inside else words


def _json(line: _Line, group: str) -> str:
    run = line.run
    facts = {
        "id": run.id,
        "name": run.name,
        "state": line.state,
        "started": run.started,
        "ended": run.ended,
        "step": run.step,
        "bytes": line.bytes,
        "tags": list(line.tags),
        "folder": str(run.path),
    }
    return json.dumps({**facts, "group": group} if group else facts)
