"""``megalens timeline``: who makes the others wait, and traces of several ranks as one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...protocol import MegalensError, shown_text

if TYPE_CHECKING:
    from ...runs import Run


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "timeline", help="say which rank makes the others wait, and put traces together"
    )
    kinds = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    codes = "Exit codes: 0 done, 2 what cannot be read or written."
    parser = kinds.add_parser(
        "verdict",
        help="who makes the others wait, and what it costs",
        description=(
            "Judge the spans of a recorded run: slow devices, links, hosts and data, uneven stages and bad "
            "steps."
        ),
        epilog=(
            "Exit codes: 0 healthy, 1 something is slow or what would show it is not there, 2 a run that "
            "cannot be read or has no spans."
        ),
    )
    parser.add_argument("folder", metavar="RUN", nargs="+", help="the folder of a recorded run; several")
    parser.add_argument(
        "--engine",
        metavar="ADDRESS",
        help="a Dask scheduler such as tcp://host:8786: its workers judge runs side by side",
    )
    parser.add_argument("--first", type=int, metavar="STEP", help="the first step that is judged")
    parser.add_argument("--last", type=int, metavar="STEP", help="the last step that is judged")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--method",
        choices=("megalens", "megascan"),
        default="megalens",
        help="megascan: what MegaScan's three heuristics would say, to compare with",
    )
    parser.set_defaults(run=_verdict)
    parser = kinds.add_parser(
        "export",
        help="the spans of a run as a trace that chrome://tracing and Perfetto open",
        description=(
            "Write the spans of a recorded run with all ranks on one clock. The file says how sure that "
            "clock is."
        ),
        epilog=codes,
    )
    parser.add_argument("folder", metavar="RUN", help="the folder of a recorded run")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="where to write; compressed where it ends in .gz",
    )
    parser.set_defaults(run=_export)
    parser = kinds.add_parser(
        "aggregate",
        help="the files that MegatronApp's tracer wrote, as one file of Chrome's events",
        description=(
            "Read benchmark-data-…json of every rank and write one file that chrome://tracing and Perfetto "
            "open."
        ),
        epilog=codes,
    )
    parser.add_argument("folder", metavar="DIR", help="the folder with one file for each rank")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write")
    parser.set_defaults(run=_aggregate)


def _tell(sentence: str) -> None:
    print(f"megalens timeline: {shown_text(sentence, 600)}", file=sys.stderr)


def _verdict(arguments: argparse.Namespace) -> int:
    from .analysis import analyse

    if len(arguments.folder) > 1 or arguments.engine is not None:
        return _several_verdicts(arguments)
    (arguments.folder,) = arguments.folder
    if arguments.method == "megascan":
        return _megascan(arguments)
    with _opened(arguments.folder) as run:
        verdict = analyse(run).verdict(arguments.first, arguments.last)
    print(json.dumps(verdict.to_message(), indent=2) if arguments.json else shown_text(str(verdict), 20_000))
    return 0 if verdict.healthy else 1


def _several_verdicts(arguments: argparse.Namespace) -> int:
    from ...runs.many import ask_each
    from .analysis import verdict_of

    if arguments.method == "megascan":
        raise MegalensError("MegaScan's heuristics judge one run at a time, without --engine.")
    code, unread = 0, []
    span = (arguments.first, arguments.last)
    for path, verdict in ask_each(arguments.folder, verdict_of, *span, engine=arguments.engine):
        if isinstance(verdict, MegalensError):
            unread.append(str(verdict))
            continue
        code = code or int(not verdict.healthy)
        if arguments.json:
            print(json.dumps({"run": path, **verdict.to_message()}))
        else:
            print(shown_text(f"{path}:\n{verdict}", 20_000))
    for sentence in unread:
        _tell(sentence)
    return 2 if unread else code


def _megascan(arguments: argparse.Namespace) -> int:
    from .analysis import analyse, megascan_of_files
    from .megascan_files import read_rank_files
    from .trace_folder import is_megascan

    folder = Path(arguments.folder)
    if folder.is_dir() and is_megascan(folder):
        # Its own files have each rank's coordinates, which spans lack.
        verdict = megascan_of_files(read_rank_files(folder)[0])
    else:
        with _opened(arguments.folder) as run:
            verdict = analyse(run).verdict(arguments.first, arguments.last, method="megascan")
    print(json.dumps(verdict.to_message(), indent=2) if arguments.json else verdict)
    return 0 if verdict.abnormal is None else 1


def _export(arguments: argparse.Namespace) -> int:
    from .analysis import analyse
    from .chrome import write_chrome_trace

    with _opened(arguments.folder) as run:
        analysis = analyse(run)
    out = Path(arguments.output)
    count = _written(out, lambda path: write_chrome_trace(analysis, path))
    for problem in (*analysis.spans.problems, *analysis.dependencies.problems, *analysis.clocks.problems):
        _tell(problem)
    print(f"Wrote {count} spans of {len(analysis.spans.ranks)} ranks to {shown_text(str(out), 600)}")
    return 0


def _aggregate(arguments: argparse.Namespace) -> int:
    from .megascan_files import aggregate, read_rank_files

    traces, problems = read_rank_files(Path(arguments.folder))
    events, more = aggregate(traces)
    for problem in (*problems, *more):
        _tell(problem)

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            json.dump(events, file, indent=2)

    out = Path(arguments.output)
    _written(out, write)
    print(f"Wrote {len(events)} events of {len(traces)} ranks to {shown_text(str(out), 600)}")
    return 0


def _written(out: Path, write: Callable[[Path], Any]) -> Any:
    """Write to a temporary file, then rename it to ``out``."""
    from .megascan_files import TimelineError

    partial = out.with_name(f".{os.getpid()}.partial.{out.name}")
    try:
        result = write(partial)
        os.replace(partial, out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TimelineError(f"{out} cannot be written: {error.strerror}.") from error
    return result


def _opened(folder: str) -> Run:
    # pyarrow is read only once a run is.
    from ...runs import open_run

    return open_run(folder)
