"""``megalens upload``: a recording to other storage, also while it grows."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..protocol import shown_text

if TYPE_CHECKING:
    from ..runs.uploading import Upload

_EVERY, _MOST_WAIT = 5.0, 60.0
_LAST_LOOKS = 6
_PATIENCE = 600.0


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    words = "copy a recording to other storage, also while it grows"
    parser = commands.add_parser(
        "upload",
        help=words,
        description=(
            f"{words[0].upper()}{words[1:]}: sealed segments go as they are sealed, what is still being "
            "written stays here until the run ends. A network that breaks delays it, not the training."
        ),
        epilog="Exit codes: 0 everything is there, 2 wrong arguments, no such recording or a storage that "
        "refuses, 3 the network stayed away, 130 Ctrl-C: after both the same command goes on.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("address", metavar="ADDRESS", help="the folder there: s3://bucket/runs")
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    parser.add_argument(
        "--patience",
        type=float,
        default=_PATIENCE,
        metavar="SECONDS",
        help="with --follow: how long the network may stay away once the run has ended (default: "
        f"{_PATIENCE:.0f})",
    )
    parser.add_argument("--low-priority", action="store_true", help="let every other process go first")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_upload)


def _upload(arguments: argparse.Namespace) -> int:
    from ..runs import ClientError
    from ..runs.uploading import Upload

    if arguments.low_priority and hasattr(os, "nice"):
        os.nice(19)
    try:
        upload = Upload(arguments.folder.resolve(), arguments.address)
        if arguments.follow:
            sent = _follow(upload, arguments.folder, arguments.patience)
        else:
            sent = upload.send(whole=True)
    except ClientError as error:
        print(shown_text(f"megalens upload: {error}"), file=sys.stderr)
        return 3 if error.code == "disconnected" else 2
    except KeyboardInterrupt:
        print("\nmegalens upload: what was sent stays; the same command goes on.", file=sys.stderr)
        return 130
    facts = {"address": upload.address, "bytes": sent}
    print(json.dumps(facts) if arguments.json else shown_text(f"{upload.address} has all of it.", 600))
    return 0


def _follow(upload: Upload, folder: Path, patience: float) -> int:
    """Send what is sealed until nobody writes the recording any more, and then the rest.

    While it is written, whatever fails is tried again. Once it has ended, the network may stay away for
    ``patience`` seconds: then ``ClientError`` (``disconnected``) is raised.
    """
    from ..hub.terminal import StateLine
    from ..runs import RunFolder
    from ..runs.storage import HEADER, own_files, stays

    line, sent = StateLine(sys.stderr), 0
    try:
        while _is_written(folder):
            sent += _sent(upload.send, line.say, None)
            line.say(f"{sent:,} bytes are at {upload.address}")
            time.sleep(_EVERY)
        for _ in range(_LAST_LOOKS):
            # The hub has left the list of live ones, and may still close its files and seal its tails.
            done = RunFolder(folder).closed and all(
                name == HEADER or stays(name) for name, _ in own_files(folder)
            )
            sent += _sent(lambda: upload.send(whole=True), line.say, time.monotonic() + patience)
            if done:
                break
            time.sleep(_EVERY)
    finally:
        line.end()
    return sent


def _is_written(folder: Path) -> bool:
    from ..hub.discovery import live_hubs
    from ..runs import ClientError, RunFolder

    try:
        return RunFolder(folder).status()["recording"]["state"] == "on"
    except ClientError as error:
        # A hub describes the run once a training has joined it.
        return error.code == "not-found" and any(
            Path(hub.record).resolve() == folder.resolve() for hub in live_hubs() if hub.record
        )


def _sent(send: Callable[[], int], say: Callable[[str], object], until: float | None) -> int:
    """Send until it succeeds. ``until``: up to then, and only while it is the network that fails."""
    from ..runs import ClientError

    pause = _EVERY
    while True:
        try:
            return send()
        except ClientError as error:
            if until is not None and (error.code != "disconnected" or time.monotonic() >= until):
                raise
            say(f"waiting {pause:.0f} s: {error}")
        time.sleep(pause)
        pause = min(2 * pause, _MOST_WAIT)
