"""``megalens check``, and for what TrainerMon wrote ``megalens anomalies`` and ``megalens monitor``."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...protocol import MegalensError, is_whole, shown_text
from ...protocol.outside import parse_json

_EXIT_CODES = (
    "Exit codes: 0 healthy, 1 alarms of severity critical or warning, 2 a run or rules that cannot be read."
)
_DONE_CODES = "Exit codes: 0 done, 2 a folder or an argument that cannot be read."
_EVERY_SECONDS = 0.5


def _tell(sentence: str) -> None:
    print(f"megalens monitor: {shown_text(sentence, 600)}", file=sys.stderr)


def _wrote(path: Path) -> int:
    print(f"Wrote {shown_text(str(path), 600)}")
    return 0


def _to_tensorboard(arguments: argparse.Namespace) -> int:
    from .trainermon.convert import csv2tensorboard_by_step

    names = ("time_start", "time_end", "process_num", "data_type_list", "output_dirpath")
    options = {name: getattr(arguments, name) for name in names}
    return _wrote(csv2tensorboard_by_step(arguments.folder, **options, tell=_tell))


def _to_db(arguments: argparse.Namespace) -> int:
    from .trainermon.convert import write_database

    folder = Path(arguments.folder)
    out = folder if arguments.db is None else Path(arguments.db)
    if not out.is_dir():
        raise MegalensError(f"--db must be a folder that is there, got {shown_text(str(out), 300)}.")
    names = None if arguments.mapping is None else _names(Path(arguments.mapping))
    micro_step = arguments.micro_step == "true"
    return _wrote(write_database(folder, out, micro_step=micro_step, names=names, tell=_tell))


def _names(path: Path) -> dict[str, str]:
    try:
        names = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise MegalensError(f"--mapping must be a JSON file, got {shown_text(str(error), 300)}.") from error
    if not isinstance(names, dict) or not all(isinstance(new, str) and old for old, new in names.items()):
        raise MegalensError('--mapping must hold an object of texts, such as {"module.": ""}.')
    return names


def _run(arguments: argparse.Namespace) -> int:
    from .trainermon.anomalies import ANALYSIS, first_anomalies, read_anomalies, write_anomalies

    if arguments.topk < 1:
        raise MegalensError(f"--topk must be 1 or more, got {arguments.topk}.")
    steps = _steps(arguments.step)
    folder = Path(arguments.folder)
    target = folder if arguments.out_path is None else Path(arguments.out_path)
    anomalies, warnings = read_anomalies(folder)
    if not target.is_dir():
        raise MegalensError(f"--out_path must be a folder that is there, got {shown_text(str(target), 300)}.")
    first = first_anomalies(anomalies, arguments.topk, steps)
    try:
        write_anomalies(target / ANALYSIS, first)
    except OSError as error:
        raise MegalensError(f"Could not write {ANALYSIS}: {error.strerror or error}.") from error
    for warning in warnings:
        print(f"megalens anomalies: {shown_text(warning, 600)}", file=sys.stderr)
    print(f"The first {len(first)} of {len(anomalies)} anomalies:")
    for number, anomaly in enumerate(first):
        print(f"{number}: {shown_text(anomaly.message, 1000)}")
    return 0


def _steps(text: str) -> frozenset[int]:
    try:
        steps = parse_json(text)
    except ValueError:
        steps = None
    if not isinstance(steps, list) or not all(is_whole(each, 0) for each in steps):
        raise MegalensError(f"--step must be a list of steps such as [3,4], got {shown_text(text, 100)}.")
    return frozenset(steps)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="judge a recorded run by rules",
        description=(
            "Judge the recorded statistics of a run by the rules of the monitor, and say what they find."
        ),
        epilog=_EXIT_CODES,
    )
    parser.add_argument(
        "run_folder", metavar="RUN", nargs="+", help="the run folder, or a folder of raw moments; several"
    )
    parser.add_argument(
        "--engine",
        metavar="ADDRESS",
        help="a Dask scheduler such as tcp://host:8786: its workers judge runs side by side",
    )
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help='JSON file of rule settings: {"rules": {"jump": {"on": true, "threshold": 12}}, '
        '"muted": [{"rule": "dead", "name": "*bias"}]}',
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a line: each alarm, then the summary"
    )
    parser.add_argument(
        "--upgrade",
        action="store_true",
        help=(
            "judge nothing: rewrite the files of an older recording, or of one whose hub was killed, as "
            "those of a finished one are today"
        ),
    )
    parser.set_defaults(run=_check)
    parser = commands.add_parser(
        "anomalies",
        help="put the anomalies that TrainerMon recorded in order",
        description=(
            "Read the anomaly.json of every rank, say which anomalies came first in the computation, and "
            "write them to anomaly_analyse.json."
        ),
        epilog=_DONE_CODES,
    )
    parser.add_argument(
        "folder", metavar="DIR", help="the folder anomaly_detected, which holds rank0/anomaly.json"
    )
    parser.add_argument("-k", "--topk", type=int, default=8, metavar="N", help="how many to show (default 8)")
    parser.add_argument(
        "-s",
        "--step",
        "--step_list",
        default="[]",
        metavar="STEPS",
        help="of these steps only, such as [3,4]",
    )
    parser.add_argument("-o", "--out_path", metavar="DIR", help="where to write (default: DIR)")
    parser.set_defaults(run=_run)
    parser = commands.add_parser("monitor", help="write what TrainerMon measured in other formats")
    kinds = parser.add_subparsers(dest="format", required=True, metavar="FORMAT")
    parser = kinds.add_parser(
        "to-db",
        help="as the SQLite file of msProbe's trend viewer",
        description=(
            "Read the CSV files that TrainerMon wrote, of all ranks, and write monitor_data.trend.db."
        ),
        epilog=_DONE_CODES,
    )
    parser.add_argument("folder", metavar="DIR", help="an output folder of TrainerMon")
    parser.add_argument("--db", metavar="DIR", help="where to write (default: DIR)")
    parser.add_argument("--mapping", metavar="FILE", help="JSON object: parts of names, and what they become")
    parser.add_argument(
        "--micro_step",
        choices=("true", "false"),
        default="true",
        help="whether the x axis counts micro-batches (default true)",
    )
    parser.set_defaults(run=_to_db)
    parser = kinds.add_parser(
        "to-tensorboard",
        help="as files of TensorBoard",
        description=(
            "Read the CSV files that TrainerMon wrote, of all ranks, and write their numbers over steps as "
            "TensorBoard's events, one file for each rank and kind."
        ),
        epilog=_DONE_CODES,
    )
    parser.add_argument("folder", metavar="DIR", help="an output folder of TrainerMon")
    parser.add_argument(
        "--time_start", metavar="TIME", help="folders from this time on, such as Nov21_12-20-04"
    )
    parser.add_argument("--time_end", metavar="TIME", help="folders up to this time")
    parser.add_argument(
        "--process_num", type=int, default=1, metavar="N", help="1 to 128 processes (default 1)"
    )
    parser.add_argument(
        "--data_type_list", nargs="+", metavar="KIND", help="such as actv grad_reduced (default all)"
    )
    parser.add_argument(
        "--output_dirpath", metavar="DIR", help="where to write (default: a new folder in DIR)"
    )
    parser.set_defaults(run=_to_tensorboard)


def _check(arguments: argparse.Namespace) -> int:
    if arguments.upgrade:
        for folder in arguments.run_folder:
            _upgrade(folder)
        return 0
    if len(arguments.run_folder) > 1 or arguments.engine is not None:
        return _check_several(arguments)
    # The reader of runs takes a moment to import.
    from ...runs import open_run
    from .recorded import judge_run

    settings = _settings(arguments.rules)
    (folder,) = arguments.run_folder
    try:
        with open_run(folder) as run:
            steps = serious = followed = 0
            for _, alarms in judge_run(run, settings, _Progress()):
                steps += 1
                for alarm in alarms:
                    serious += alarm.severity != "note"
                    followed += alarm.follows
                    _print_alarm(alarm, arguments.json)
        if not steps:
            raise MegalensError(f"{folder} holds no statistics to judge.")
    except OSError as error:
        raise MegalensError(str(error)) from error
    _print_summary(steps, serious, followed, arguments.json)
    return 1 if serious else 0


def _check_several(arguments: argparse.Namespace) -> int:
    """Judge runs, on an engine side by side; those that cannot be read are named at the end."""
    from ...runs.many import ask_each
    from .recorded import judge_whole

    settings = _settings(arguments.rules)
    code, unread = 0, []
    for path, judged in ask_each(arguments.run_folder, judge_whole, settings, engine=arguments.engine):
        if isinstance(judged, MegalensError):
            unread.append(str(judged))
            continue
        run = {"run": path} if arguments.json else {}
        if not arguments.json:
            print(shown_text(f"{path}:", 600))
        for alarm in judged.alarms:
            _print_alarm(alarm, arguments.json, run)
        serious = sum(alarm.severity != "note" for alarm in judged.alarms)
        followed = sum(alarm.follows for alarm in judged.alarms)
        _print_summary(judged.steps, serious, followed, arguments.json, run)
        code = code or int(serious > 0)
    for sentence in unread:
        print(f"megalens check: {shown_text(sentence, 1000)}", file=sys.stderr)
    return 2 if unread else code


def _print_summary(
    steps: int, serious: int, followed: int, as_json: bool, run: Mapping[str, str] = MappingProxyType({})
) -> None:
    summary = {**run, "steps": steps, "alarms": serious, "followed": followed}
    more = f", and {followed} that followed" if followed else ""
    print(json.dumps(summary) if as_json else f"{steps} steps, {serious} alarms{more}.")


def _upgrade(folder: str) -> int:
    from ...hub.resumed import upgrade_recording

    done = False
    try:
        for sentence in upgrade_recording(Path(folder)):
            print(shown_text(sentence, 600))
            done = True
    except OSError as error:
        raise MegalensError(str(error)) from error
    if not done:
        print("Every file is as it should be.")
    return 0


def _settings(path: str | None) -> Any:
    if path is None:
        return None
    try:
        return parse_json(Path(path).read_bytes())
    except OSError as error:
        raise MegalensError(str(error)) from error
    except ValueError as error:
        raise MegalensError(f"{path} must be a JSON file of rule settings: {str(error)[:200]}") from error


def _print_alarm(alarm: Any, as_json: bool, run: Mapping[str, str] = MappingProxyType({})) -> None:
    if as_json:
        row = dict(run) | {
            k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(alarm).items()
        }
        print(json.dumps(row))
        return
    where = "" if alarm.rank < 0 else f", rank {alarm.rank}"
    print(
        shown_text(
            f"step {alarm.step}{where}: {alarm.severity} {alarm.rule}, {alarm.direction}, {alarm.stat} "
            f"{alarm.name}: {alarm.sentence}"
        )
    )


class _Progress:
    """Prints progress on a terminal."""

    def __init__(self) -> None:
        self._reported_at = time.monotonic()

    def __call__(self, done: int, total: int, what: str) -> None:
        if sys.stderr.isatty() and time.monotonic() - self._reported_at > _EVERY_SECONDS:
            self._reported_at = time.monotonic()
            print(f"{what}: {done:,} of {total:,} steps", file=sys.stderr)
