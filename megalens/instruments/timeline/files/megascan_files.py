"""Files of MegatronApp's tracer, one for each rank, in both of its formats: iterations with their beginnings and ends of spans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....protocol import MegalensError, shown_text
from ....protocol.plain_json import parse_json

__all__ = ["Iteration", "RankTrace", "TimelineError", "read_rank_file", "read_rank_files"]

_FILE = re.compile(
    r"benchmark-data-(\d{1,6})-pipeline-(\d{1,6})-tensor-(\d{1,6})\.json|\w{1,80}-(\d{1,6})\.json"
)
_MOST_BYTES = 1 << 28
_PLACE = ("dp_rk", "pp_rk", "tp_rk", "dev", "g_rk")
_TOLD = 20


class TimelineError(MegalensError):
    """A trace that cannot be read, or an argument that does not fit it."""


@dataclass(frozen=True)
class Iteration:
    """One traced iteration of a rank.

    Attributes
    ----------
    pad : int
        ns of the host's clock since the iteration before ended.
    duration : int
        ns of the host's clock.
    rows : list of dict
        Beginnings (``B``), ends (``E``) and instants (``i``) in the order of the file; ``rel_ts`` is ns since the iteration began. Attributes stand on the ends.
    """

    pad: int
    duration: int
    rows: list[dict[str, Any]]


@dataclass
class RankTrace:
    """What one file holds.

    Attributes
    ----------
    rank : int
        Of all ranks of the job.
    place : mapping
        ``dp_rk``, ``pp_rk``, ``tp_rk``, ``dev`` and ``g_rk`` where the rows have them, as the format since July 2025 does; else empty.
    iterations : list of Iteration
        Each once.
    """

    rank: int
    place: Mapping[str, int] = field(default_factory=dict)
    iterations: list[Iteration] = field(default_factory=list)


def read_rank_files(folder: Path) -> tuple[list[RankTrace], list[str]]:
    """Read the files of a folder.

    Returns
    -------
    traces : list of RankTrace
        By rank, all with as many iterations.
    problems : list of str
        What was left out, in a sentence each.

    Raises
    ------
    TimelineError
        When there is nothing to read, or there are files of two jobs.
    """
    try:
        entries = sorted(
            entry for entry in folder.iterdir() if _FILE.fullmatch(entry.name) and entry.is_file()
        )
    except OSError as error:
        raise TimelineError(f"{shown_text(str(folder), 300)} cannot be read: {error.strerror}.") from error
    named = [entry for entry in entries if entry.name.startswith("benchmark-data-")]
    traces: dict[int, RankTrace] = {}
    problems: list[str] = []
    for path in named or entries:
        name = shown_text(path.name, 200)
        try:
            trace, wrong = read_rank_file(path)
        except TimelineError as error:
            problems.append(str(error))
            continue
        problems += wrong
        if not trace.iterations:
            problems.append(f"{name} holds no iteration.")
        elif trace.rank in traces:
            raise TimelineError(
                f"{name} and another file are both of rank {trace.rank}: give a folder that holds one job."
            )
        else:
            traces[trace.rank] = trace
    if not traces:
        said = f" {problems[0]}" if problems else ""
        raise TimelineError(
            f"{shown_text(str(folder), 300)} must hold files such as benchmark-data-0-pipeline-0-tensor-0.json, one for each rank.{said}"
        )
    found = [traces[rank] for rank in sorted(traces)]
    missing = sorted(set(range(found[-1].rank + 1)) - traces.keys())
    if missing:
        problems.append(f"Ranks {', '.join(map(str, missing[:_TOLD]))} have no file.")
    least = min(len(trace.iterations) for trace in found)
    longer = [trace for trace in found if len(trace.iterations) > least]
    if longer:
        problems.append(
            f"Ranks {', '.join(str(trace.rank) for trace in longer[:_TOLD])} have more than {least} iterations: only the first {least} of each are taken."
        )
        for trace in longer:
            del trace.iterations[least:]
    return found, problems


def read_rank_file(path: Path) -> tuple[RankTrace, list[str]]:
    """Read one file; what was left out of it, in sentences.

    Raises
    ------
    TimelineError
        When it is no such file.
    """
    name = shown_text(path.name, 200)
    found = _FILE.fullmatch(path.name)
    if found is None:
        raise TimelineError(
            f"{name} must be named as a rank's file is, such as benchmark-data-0-pipeline-1-tensor-0.json or app-1.json."
        )
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise TimelineError(f"{name} has more than {_MOST_BYTES >> 20} MiB.")
        text = path.read_bytes()
    except OSError as error:
        raise TimelineError(f"{name} cannot be read: {error.strerror}.") from error
    problems: list[str] = []
    try:
        rows = parse_json(text)
    except ValueError as error:
        # Whoever wrote it may have been stopped: whole rows are kept.
        try:
            rows = parse_json(text[: text.rfind(b"}") + 1] + b"]")
        except ValueError:
            raise TimelineError(f"{name} must be a JSON array of rows. {str(error)[:200]}") from error
        problems.append(f"{name} is cut off: its whole iterations are taken.")
    if not isinstance(rows, list):
        raise TimelineError(f"{name} must be a JSON array of rows, it is of another kind.")
    trace = RankTrace(int(found[4]) if found[4] else -1)
    skipped = _fill(trace, rows)
    if skipped:
        problems.append(f"{name}: {skipped} rows that do not fit were left out.")
    if trace.rank < 0:
        places = {each: int(found[at]) for at, each in enumerate(("dp_rk", "pp_rk", "tp_rk"), 1)}
        raise TimelineError(f"{name} does not say its rank (g_rk); its place is {places}.")
    return trace, problems


def _fill(trace: RankTrace, rows: list[Any]) -> int:
    """Sort rows into iterations; return how many do not fit. What stands outside of iterations, as of an evaluation, is passed over."""
    skipped, pad = 0, 0
    own: list[dict[str, Any]] | None = None
    before: list[dict[str, Any]] = []
    for row in rows:
        if not (
            isinstance(row, dict) and isinstance(row.get("name"), str) and row.get("ph") in ("B", "E", "i")
        ):
            skipped += 1
        elif row["name"] == "iteration" and row["ph"] == "B":
            pad, own = _whole(row.get("pad_before")), []
        elif own is None:
            continue
        elif row["name"] == "iteration" and row["ph"] == "E":
            if not _is_time(row.get("duration_wall")):
                skipped += 1
            elif not own or own != before:
                # The tracer writes an iteration twice, and those of a window with all that came before.
                new = own[len(before) :] if before and own[: len(before)] == before else own
                trace.iterations.append(Iteration(pad, row["duration_wall"], new))
                before = own
            own = None
        elif _is_time(row.get("rel_ts")):
            own.append(row)
            if not trace.place and all(_is_time(row.get(each)) for each in _PLACE if each != "dev"):
                trace.place = {each: _whole(row.get(each)) for each in _PLACE}
                trace.rank = trace.place["g_rk"]
        else:
            skipped += 1
    return skipped


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _whole(value: Any) -> int:
    return value if _is_time(value) else 0
