"""``megalens anomalies``: which of the anomalies that TrainerMon recorded came first."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...protocol import MegalensError, is_whole, shown_text
from ...protocol.plain_json import parse_json

__all__ = ["add_commands"]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``megalens``."""
    parser = commands.add_parser(
        "anomalies",
        help="put the anomalies that TrainerMon recorded in order",
        description="Read the anomaly.json of every rank, say which anomalies came first in the computation, and write them to anomaly_analyse.json.",
        epilog="Exit codes: 0 done, 2 a folder or an argument that cannot be read.",
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


def _run(arguments: argparse.Namespace) -> int:
    from .anomalies import ANALYSIS, first_anomalies, read_anomalies, write_anomalies

    try:
        if arguments.topk < 1:
            raise MegalensError(f"--topk must be 1 or more, got {arguments.topk}.")
        steps = _steps(arguments.step)
        folder = Path(arguments.folder)
        target = folder if arguments.out_path is None else Path(arguments.out_path)
        anomalies, warnings = read_anomalies(folder)
        if not target.is_dir():
            raise MegalensError(
                f"--out_path must be a folder that is there, got {shown_text(str(target), 300)}."
            )
        first = first_anomalies(anomalies, arguments.topk, steps)
        try:
            write_anomalies(target / ANALYSIS, first)
        except OSError as error:
            raise MegalensError(f"Could not write {ANALYSIS}: {error.strerror or error}.") from error
    except MegalensError as error:
        print(f"megalens anomalies: {shown_text(str(error), 600)}", file=sys.stderr)
        return 2
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
