"""``megalens info``, ``report``, ``digest``, ``tail`` and ``export``: a run without a notebook."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..protocol import MegalensError, shown_text

if TYPE_CHECKING:
    from ..runs import Run

_EXIT_CODES = (
    "Exit codes: 0 done, 1 an error of Megalens itself, 2 wrong arguments, no such run or a file that cannot "
    "be written, 130 Ctrl-C."
)
RUN_HELP = (
    "a run folder or its address, files of another logger, or the name, id or ssh:// address of a live run"
)
_MARKS = "▁▂▃▄▅▆▇█"
_MARK_COUNT = 30
_TAIL_STEPS = 3_000

_Work = Callable[["Run", argparse.Namespace], int]


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, words: str, work: _Work
) -> argparse.ArgumentParser:
    """Add a command that looks at one run, which it opens and closes."""
    parser = commands.add_parser(
        name, help=words, description=f"{words[0].upper()}{words[1:]}.", epilog=_EXIT_CODES
    )
    parser.add_argument("target", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda arguments: with_run(arguments, work))
    return parser


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add_command(commands, "info", "say what a run is: model, state, what is traced and recorded", _info)
    report = add_command(
        commands, "report", "freeze views of a run into one file that needs no kernel and no network", _report
    )
    report.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="….html, ….ipynb or ….md (default: <run id>.html)"
    )
    report.add_argument(
        "--views", metavar="A,B", help="names of views, such as overview,scalars (default: what the run has)"
    )
    report.add_argument(
        "--language", default="en", metavar="NAME", help="en or zh-CN: what the page speaks (default: en)"
    )
    digest = add_command(commands, "digest", "print what happened in a run, in words and numbers", _digest)
    digest.add_argument("-o", "--output", type=Path, metavar="FILE", help="write a file ….md instead")
    tail = add_command(commands, "tail", "follow a live run: step, loss, alarms, cost of tracing", _tail)
    tail.add_argument(
        "--scalar", metavar="NAME", help="the number that is drawn (default: loss, else the first)"
    )
    _add_export(commands)


def open_target(target: str) -> Run:
    """Open what a command was given: a path, or the name, id or address of a run."""
    from ..runs import connect, open_run
    from ..runs.storage import is_address

    return open_run(target) if is_address(target) or Path(target).exists() else connect(target)


def with_run(arguments: argparse.Namespace, work: _Work) -> int:
    try:
        with closing(open_target(arguments.target)) as run:
            return work(run, arguments)
    except OSError as error:
        raise MegalensError(str(error)) from error


def _info(run: Run, arguments: argparse.Namespace) -> int:
    facts = run_facts(run)
    if arguments.json:
        print(json.dumps(facts))
        return 0
    print(shown_text(f"{facts.pop('name')} ({facts.pop('id')})", 600))
    if facts["model"] and not facts["model"].get("layers"):
        # 0 where the layers of a model were not found.
        facts["model"] = {**facts["model"], "layers": None}
    for name, value in facts.items():
        lines = value if isinstance(value, list) else [value]
        for index, line in enumerate(lines):
            print(shown_text(f"  {'' if index else name:10} {_words(line)}", 600))
    return 0


def run_facts(run: Run) -> dict[str, Any]:
    """Return what a run is, as JSON has it; ``streams`` is what is recorded on this machine."""
    from ..runs import RunFolder

    streams = {} if run.folder is None else RunFolder(run.folder).header.get("streams", {})
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state,
        "live": run.live,
        "step": run.step,
        "started": run.started,
        "model": run.model,
        "layout": run.layout,
        "traced": [
            {"flag": flag, **{name: each[name] for name in ("layers", "every", "compressor") if name in each}}
            for flag, each in run.config.items()
        ],
        "statistics": run.logged,
        "streams": [{"stream": name, **each} for name, each in streams.items()],
        "folder": None if run.folder is None else str(run.folder),
        "warnings": run.warnings,
    }


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(each)}" for name, each in value.items() if each not in (None, {}))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value > 1e9:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
    return f"{value:,}" if isinstance(value, int) else "none" if value is None else str(value)


def _report(run: Run, arguments: argparse.Namespace) -> int:
    from ..pictures.report import write_report

    views = None if arguments.views is None else arguments.views.split(",")
    output = arguments.output or Path(f"{run.id}.html")
    path = write_report(run, output, views, language=arguments.language)
    _tell_written(path, arguments)
    return 0


def _tell_written(path: Path, arguments: argparse.Namespace) -> None:
    print(json.dumps({"path": str(path)}) if arguments.json else f"Wrote {shown_text(str(path), 600)}")


def _digest(run: Run, arguments: argparse.Namespace) -> int:
    from ..pictures.report import build_report, write_report

    if arguments.output is not None:
        _tell_written(write_report(run, arguments.output), arguments)
        return 0
    text = build_report(run, format="md").decode()
    sys.stdout.write(json.dumps({"id": run.id, "text": text}) + "\n" if arguments.json else text)
    return 0


def _tail(run: Run, arguments: argparse.Namespace) -> int:
    """Print each alarm once and keep the state in the last line, until the run ends."""
    from ..hub.terminal import StateLine
    from ..runs import ClientError

    line = StateLine(sys.stderr)
    told, last = 0, -1
    try:
        while True:
            told = _tell_alarms(run, told, line, arguments.json)
            state = _state(run, arguments.scalar)
            if not arguments.json:
                line.say(_state_words(state))
            elif state["step"] != last:
                print(
                    json.dumps({name: each for name, each in state.items() if name != "course"}), flush=True
                )
            last = state["step"]
            if not run.live or run.state in ("finished", "lost"):
                break
            try:
                run.wait(timeout=1.0)
            except ClientError as error:
                if error.code != "timeout":
                    break
    finally:
        line.end()
    if not arguments.json:
        print(shown_text(_state_words(_state(run, arguments.scalar))))
    return 0


def _tell_alarms(run: Run, told: int, line: Any, as_json: bool) -> int:
    alarms = run.table("alarms").to_pylist()
    for alarm in alarms[told:]:
        if alarm.get("cause") is None:
            line.end()
            shown = {name: alarm[name] for name in ("step", "severity", "sentence")}
            words = shown_text(f"step {alarm['step']:,}  {alarm['severity']}: {alarm['sentence']}", 600)
            print(json.dumps({"alarm": shown}) if as_json else words, flush=True)
    return len(alarms)


def _state(run: Run, name: str | None) -> dict[str, Any]:
    """Return where a run is. ``behind`` is the rank that is the most steps behind, and by how many."""
    import pyarrow.compute as pc

    rows = run.scalars(name, steps=slice(max(0, run.step - _TAIL_STEPS), None))
    names = rows["name"].unique().to_pylist()
    chosen = "loss" if "loss" in names else names[0] if names else name
    values = rows["value"].filter(pc.equal(rows["name"], chosen)).to_pylist() if names else []
    ranks = [each for each in run.status.get("ranks", ()) if each.get("step") is not None]
    last = min(ranks, key=lambda each: each["step"], default=None)
    steps = max(each["step"] for each in ranks) - last["step"] if last else 0
    return {
        "name": run.name,
        "state": run.state,
        "step": run.step,
        "scalar": chosen,
        "value": values[-1] if values else None,
        "overhead_percent": (run.status.get("overhead") or {}).get("percent"),
        "behind": {"rank": last["rank"], "steps": steps} if last and steps else None,
        "course": values,
    }


def _state_words(state: dict[str, Any]) -> str:
    values, behind, percent = state["course"], state["behind"], state["overhead_percent"]
    drawn = f"{state['scalar']} {values[-1]:.4g} {sparkline(values)}" if values else "no scalars yet"
    cost = "" if percent is None else f"  tracing {percent:.1f} %"
    late = f"  rank {behind['rank']} is {behind['steps']} steps behind" if behind else ""
    return f"{state['name']}  {state['state']}  step {state['step']:,}  {drawn}{cost}{late}"


def sparkline(values: list[float]) -> str:
    """Draw a course in 30 marks at most: the largest of each part, ``!`` where it is not finite."""
    ends = [len(values) * at // _MARK_COUNT for at in range(_MARK_COUNT + 1)]
    parts = [values[begin:end] for begin, end in pairwise(ends)]
    tops = [max(part, key=lambda value: (value != value, value)) for part in parts if part]
    finite = [top for top in tops if abs(top) < float("inf")]
    low, span = (min(finite), max(finite) - min(finite)) if finite else (0.0, 0.0)
    return "".join(
        _MARKS[round((top - low) / (span or 1.0) * (len(_MARKS) - 1))] if abs(top) < float("inf") else "!"
        for top in tops
    )


def _add_export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="write a recorded run as files that other tools read",
        description=(
            "Write a recorded run as Parquet or CSV (a file for each stream), as TensorBoard's events "
            "(scalars, statistics and histograms), for Perfetto (spans and alarms) or as safetensors (traced "
            "tensors)."
        ),
        epilog=(
            "Exit codes: 0 done, 2 wrong arguments, a run that cannot be read or a folder that cannot be "
            "written, 130 Ctrl-C. Only 0 leaves files."
        ),
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
    from ..runs import open_run

    streams = None if arguments.streams is None else arguments.streams.split(",")
    output = arguments.output
    try:
        with closing(open_run(arguments.folder)) as run:
            output = output or Path(f"{run.id}-{arguments.to}")
            written = run.export(arguments.to, output, streams, arguments.force)
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
