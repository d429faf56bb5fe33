"""``megalens upload``: a recording to other storage, also while it grows."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..protocol import shown_text

if TYPE_CHECKING:
    from ..runs.remote import Upload

_EVERY, _MOST_WAIT = 5.0, 60.0
_LAST_LOOKS = 6


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
        "refuses, 130 Ctrl-C: the same command goes on.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("address", metavar="ADDRESS", help="the folder there: s3://bucket/runs")
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_upload)


def _upload(arguments: argparse.Namespace) -> int:
    from ..runs import ClientError
    from ..runs.remote import Upload

    try:
        upload = Upload(arguments.folder.resolve(), arguments.address)
        if arguments.follow:
            sent = _follow(upload, arguments.folder) + _finish(upload, arguments.folder)
        else:
            sent = upload.send(whole=True)
    except ClientError as error:
        print(shown_text(f"megalens upload: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nmegalens upload: what was sent stays; the same command goes on.", file=sys.stderr)
        return 130
    facts = {"address": upload.address, "bytes": sent}
    print(json.dumps(facts) if arguments.json else shown_text(f"{upload.address} has all of it.", 600))
    return 0


def _finish(upload: Upload, folder: Path) -> int:
    """Send the rest, and again while the hub that has left the list of live ones still closes its files."""
    from ..runs import RunFolder

    sent = 0
    for _ in range(_LAST_LOOKS):
        closed = RunFolder(folder).closed
        sent += upload.send(whole=True)
        if closed:
            break
        time.sleep(_EVERY)
    return sent


def _follow(upload: Upload, folder: Path) -> int:
    """Send what is sealed until nobody writes the recording any more, however often the network breaks."""
    from ..hub.terminal import StateLine
    from ..runs import ClientError, RunFolder

    line, sent, pause = StateLine(sys.stderr), 0, _EVERY
    try:
        while RunFolder(folder).status()["recording"]["state"] == "on":
            try:
                sent += upload.send()
                line.say(f"{sent:,} bytes are at {upload.address}")
                pause = _EVERY
            except ClientError as error:
                pause = min(2 * pause, _MOST_WAIT)
                line.say(f"waiting {pause:.0f} s: {error}")
            time.sleep(pause)
    finally:
        line.end()
    return sent
