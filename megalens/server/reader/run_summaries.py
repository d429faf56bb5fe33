"""What the table of runs says of each: its last loss and its settings."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

import pyarrow.compute as pc

from ...protocol import stream_segments
from ...runs import ClientError, RunFolder
from ...runs.query import Query

_LOOK_EVERY = 10.0
_MOST_SETTINGS = 200
_MOST_LETTERS = 200
_TELLING = ("model", "layout", "config", "versions")


class LastLoss(TypedDict):
    """The loss that came last; a value that is not finite is text."""

    name: str
    step: int
    value: float | str


class RunSummary(TypedDict):
    """The further columns of a run in the table of runs."""

    loss: LastLoss | None
    settings: dict[str, str | int | float | bool | None]


class RunSummaries:
    """Summaries of recorded runs, cached by file stamp. Its methods read files: use a worker thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, tuple[int, int] | None, LastLoss | None]] = {}

    def of(self, folder: RunFolder) -> RunSummary:
        """Return the summary of a run, for a growing recording at most ten seconds old."""
        now = time.monotonic()
        stamp = _stamp(folder)
        with self._lock:
            known = self._known.get(folder.id)
        if known is None or (known[1] != stamp and now - known[0] >= (0 if folder.closed else _LOOK_EVERY)):
            known = now, stamp, _last_loss(folder)
            with self._lock:
                self._known[folder.id] = known
        return {"loss": known[2], "settings": settings_of(folder.hello())}


def settings_of(header: Mapping[str, Any]) -> dict[str, str | int | float | bool | None]:
    """Return a run's settings by dotted name: model, layout, tracing and versions; at most 200, short."""
    found: dict[str, str | int | float | bool | None] = {}
    for name, value in _flat([(part, header.get(part)) for part in _TELLING]):
        if len(found) == _MOST_SETTINGS:
            break
        if not isinstance(value, float) or math.isfinite(value):
            found[name[:_MOST_LETTERS]] = value[:_MOST_LETTERS] if isinstance(value, str) else value
    return found


def _flat(parts: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in parts:
        if isinstance(value, Mapping):
            yield from _flat([(f"{name}.{key}", value[key]) for key in value])
        elif isinstance(value, list):
            # Coordinates of ranks and the like are no settings of a run.
            if all(isinstance(each, (str, int, float)) for each in value):
                yield name, ", ".join(map(str, value))
        elif value is not None:
            yield name, value


def _last_loss(folder: RunFolder) -> LastLoss | None:
    try:
        # The loss may be rare: everything is read only where recent steps have none.
        for first in dict.fromkeys((max(0, folder.step - 1000), 0)):
            table = folder.reopened().read("scalars", Query(first=first), ["step", "name", "value"])
            names = table["name"].unique().to_pylist()
            name = (
                "loss"
                if "loss" in names
                else next(
                    (each for each in sorted(names) if "loss" in each and each != "held_out_loss"), None
                )
            )
            if name is not None:
                rows = table.filter(pc.equal(table["name"], name))
                at = rows.num_rows - 1
                value = rows["value"][at].as_py()
                return {
                    "name": name[:_MOST_LETTERS],
                    "step": rows["step"][at].as_py(),
                    "value": value if math.isfinite(value) else str(value),
                }
    except (ClientError, OSError):
        # The run's own description reports what cannot be read.
        return None
    return None


def _stamp(folder: RunFolder) -> tuple[int, int] | None:
    # An unlistable folder is reported where the run is opened.
    with contextlib.suppress(OSError):
        for segment in stream_segments(folder.path, "scalars")[-1:]:
            info = segment.path.lstat()
            return info.st_mtime_ns, info.st_size
    return None
