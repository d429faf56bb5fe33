"""The command line: ``megalens export``."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path

from ..protocol import shown_text

_EXIT_CODES = (
    "Exit codes: 0 done, 2 wrong arguments, a run that cannot be read or a folder that cannot be written, "
    "130 Ctrl-C. Only 0 leaves files."
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="write a recorded run as files that other tools read",
        description=(
            "Write a recorded run as Parquet or CSV (a file for each stream), as TensorBoard's events "
            "(scalars, statistics and histograms), for Perfetto (spans and alarms) or as safetensors (traced "
            "tensors)."
        ),
        epilog=_EXIT_CODES,
    )
    parser.add_argument("folder", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--to",
        required=True,
        metavar="FORMAT",
        help="parquet, csv, tensorboard, perfetto, safetensors, or what another package brings",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the folder that is made (default: <run id>-FORMAT)"
    )
    parser.add_argument(
        "--streams", metavar="A,B", help="of these streams alone (default: all that there are)"
    )
    parser.add_argument("--force", action="store_true", help="replace a folder that an export wrote")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_export)


def _export(arguments: argparse.Namespace) -> int:
    from ..protocol import MegalensError
    from ..runs import open_run

    streams = None if arguments.streams is None else arguments.streams.split(",")
    output = arguments.output
    try:
        with closing(open_run(arguments.folder)) as run:
            output = output or Path(f"{run.id}-{arguments.to}")
            written = run.export(arguments.to, output, streams, arguments.force)
    except MegalensError as error:
        print(shown_text(f"megalens export: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nmegalens export: cancelled; nothing was written.", file=sys.stderr)
        return 130
    if arguments.json:
        print(json.dumps({"path": str(output), "rows": dict(written)}))
        return 0
    for stream, rows in written.items():
        print(f"{rows:>12,} rows of {shown_text(stream)}")
    print(f"Wrote {shown_text(str(output), 600)}")
    return 0
