"""``megalens mcp``: runs for an agent, by the Model Context Protocol's own SDK."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..protocol import RUNS_FOLDER, VIEW_NAMES, MegalensError
from ..protocol.version import own_version

if TYPE_CHECKING:
    import pyarrow as pa
    from mcp.server.mcpserver import MCPServer

    from ..runs import Run

_MOST_RUNS = 500
_MOST_ROWS = 2_000
_MOST_CHARACTERS = 200_000
_INSTRUCTIONS = (
    "Training runs of transformers, live and recorded. Begin with list_runs, then digest. Steps, layers and "
    "ranks are counted from 0. Values that are not there were not traced; run_info says what is."
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    words = "serve runs to an agent by the Model Context Protocol, over standard input and output"
    parser = commands.add_parser(
        "mcp",
        help=words,
        description=f"{words[0].upper()}{words[1:]}. Read-only unless --allow-changes is given.",
        epilog="Needs megalens[mcp]. Exit codes: 0 done, 2 wrong arguments or no such package.",
    )
    parser.add_argument(
        "--folder",
        action="append",
        type=Path,
        metavar="DIR",
        help=f"a folder with run folders, as often as wanted (default: {RUNS_FOLDER})",
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="let it pause and resume a live run, and change what is traced",
    )
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError:
        print(
            "megalens mcp: the package mcp is not installed. Try: pip install megalens[mcp]", file=sys.stderr
        )
        return 2
    with suppress(KeyboardInterrupt):
        agent_server(arguments.folder or [Path(RUNS_FOLDER)], arguments.allow_changes).run("stdio")
    return 0


def agent_server(folders: list[Path], changes: bool = False) -> MCPServer:
    """Return a server of the runs below some folders, and of this user's live ones.

    Only those: no tool takes a path. What a run's own texts say is data, and is sent as such.
    """
    from mcp.server.mcpserver import MCPServer

    server: MCPServer = MCPServer("megalens", instructions=_INSTRUCTIONS, version=own_version())
    runs = _Runs(folders)
    for tool in (*_reading(runs), *(_changing(runs) if changes else ())):
        server.add_tool(_typed_errors(tool), structured_output=False)
    return server


class _Runs:
    """The runs that may be looked at, by id and by name."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    def recorded(self) -> Iterator[Path]:
        for folder in self._folders:
            for header in sorted(folder.glob("*/run.json"), reverse=True):
                yield header.parent

    def open(self, name: str) -> Run:
        from ..hub.discovery import live_hubs
        from ..runs import ClientError, RunFolder, connect, open_run

        if any(name in (hub.id, hub.name) for hub in live_hubs()):
            return connect(name)
        for folder in self.recorded():
            with suppress(ClientError, OSError):
                if folder.name == name or name in (RunFolder(folder).id, RunFolder(folder).name):
                    return open_run(folder)
        raise ClientError(
            f"There is no run {name!r:.100}. list_runs says which there are.", code="not-found", field="run"
        )


def _typed_errors(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Have what a tool refuses reach the agent as its sentence."""

    @functools.wraps(tool)
    def told(*arguments: Any, **named: Any) -> Any:
        from mcp.server.mcpserver.exceptions import ToolError

        try:
            return tool(*arguments, **named)
        except (MegalensError, OSError) as error:
            raise ToolError(str(error)) from error

    return told


def _reading(runs: _Runs) -> tuple[Callable[..., Any], ...]:
    from .compare import compared
    from .look import run_facts

    def list_runs() -> list[dict[str, Any]]:
        """List live runs, then recorded ones, newest first: id, name, state, live, step, started."""
        from ..hub.discovery import live_hubs
        from ..runs import ClientError, RunFolder

        found = [
            {"id": hub.id, "name": hub.name, "live": True, "started": hub.started} for hub in live_hubs()
        ]
        known = {each["id"] for each in found}
        for folder in runs.recorded():
            with suppress(ClientError, OSError):
                run = RunFolder(folder)
                if run.id not in known and len(found) < _MOST_RUNS:
                    state = run.status()
                    found.append(
                        {"id": run.id, "name": run.name, "live": False, "state": state["state"]}
                        | {"step": state["step"], "started": run.header["run"]["started"]}
                    )
        return found

    def run_info(run: str) -> dict[str, Any]:
        """Say what a run is: model, layout, state, what is traced and recorded, warnings."""
        with closing(runs.open(run)) as opened:
            return run_facts(opened)

    def digest(run: str, views: list[str] | None = None) -> str:
        """Say in words and numbers what happened in a run, as Markdown: losses, alarms, slow ranks, texts.

        `views` restricts it to some views; without it, those that the run has something for.
        """
        from ..pictures.report import build_report

        with closing(runs.open(run)) as opened:
            return build_report(opened, views, format="md").decode()[:_MOST_CHARACTERS]

    def compare_runs(run: str, other: str) -> dict[str, Any]:
        """Say where two runs part: settings, each logged number's first different step and end, alarms."""
        with closing(runs.open(run)) as first, closing(runs.open(other)) as second:
            return compared(first, second)

    def scalars(run: str, names: list[str] | None = None, steps: str | None = None) -> dict[str, Any]:
        """Return logged numbers such as the loss. `steps` is a text such as "100-200,300"."""
        with closing(runs.open(run)) as opened:
            return _rows(opened.scalars(names, steps))

    def alarms(run: str, steps: str | None = None) -> dict[str, Any]:
        """Return what the training monitor found: step, rule, severity, sentence, what to look at."""
        with closing(runs.open(run)) as opened:
            return _rows(opened.table("alarms", steps))

    def rows(run: str, stream: str, steps: str | None = None) -> dict[str, Any]:
        """Return rows of a stream that run_info lists, without long lists of values."""
        with closing(runs.open(run)) as opened:
            return _rows(opened.table(stream, steps))

    def moments(
        run: str, stat: str = "grad", by: list[str] | None = None, steps: str | None = None
    ) -> dict[str, Any]:
        """Return exact statistics of tensors (mean, rms, kurtosis, share of zeros …) by group and step.

        `stat` is one of those that run_info lists under statistics; `by` any of layer, kind, family, name,
        module_type, rank.
        """
        import pyarrow as pa

        with closing(runs.open(run)) as opened:
            found = opened.moments(stat, by or ["layer"], steps)
        return _rows(pa.Table.from_pandas(found.reset_index(drop=True), preserve_index=False))

    def picture(run: str, view: str, options: dict[str, Any] | None = None) -> list[Any]:
        """Draw a view of a run as SVG, with its caption in words. `options` are those of the view."""
        from mcp_types import EmbeddedResource, TextContent, TextResourceContents

        from ..pictures.report.build import check_views
        from ..pictures.widgets.picture import draw_picture

        with closing(runs.open(run)) as opened:
            checked = check_views(opened, [{**(options or {}), "view": view}])[0]
            svg, caption = draw_picture(opened, checked)
            address = f"megalens://{opened.id}/{checked['view']}.svg"
        drawn = TextResourceContents(uri=address, mime_type="image/svg+xml", text=svg)
        words = TextContent(type="text", text=caption)
        return [words, EmbeddedResource(type="resource", resource=drawn)] if svg else [words]

    picture.__doc__ = f"{picture.__doc__} Views: {', '.join(VIEW_NAMES)}."
    return list_runs, run_info, digest, compare_runs, scalars, alarms, rows, moments, picture


def _changing(runs: _Runs) -> tuple[Callable[..., Any], ...]:
    def pause(run: str) -> str:
        """Pause a live run before its next step; resume has it go on."""
        with closing(runs.open(run)) as opened:
            opened.pause()
        return "paused"

    def resume(run: str) -> str:
        """Have a paused run go on."""
        with closing(runs.open(run)) as opened:
            opened.resume()
        return "going on"

    def trace(run: str, flag: str, layers: str | None = None, every: int = 1) -> str:
        """Trace a flag of a live run in some layers ("0-3,7"; all without it), every so many steps."""
        with closing(runs.open(run)) as opened:
            opened.configure([flag], layers=layers, every=every)
        return f"{flag} is traced"

    def stop_tracing(run: str, flag: str) -> str:
        """Trace a flag no longer."""
        with closing(runs.open(run)) as opened:
            opened.configure({flag: None})
        return f"{flag} is not traced"

    return pause, resume, trace, stop_tracing


def _rows(table: pa.Table) -> dict[str, Any]:
    """Return rows as JSON, without lists: where there are too many, evenly chosen ones and both ends."""
    import math

    import pyarrow as pa

    count = table.num_rows
    shown = table.select(
        [
            field.name
            for field in table.schema
            if not pa.types.is_list(field.type) and not pa.types.is_binary(field.type)
        ]
    )
    if count > _MOST_ROWS:
        shown = shown.take([round(at * (count - 1) / (_MOST_ROWS - 1)) for at in range(_MOST_ROWS)])
    return {
        "rows": count,
        "shown": shown.num_rows,
        "columns": {
            name: [
                str(each) if isinstance(each, float) and not math.isfinite(each) else each
                for each in column.to_pylist()
            ]
            for name, column in zip(shown.column_names, shown.columns, strict=True)
        },
    }
