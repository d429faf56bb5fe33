"""What the table of runs says of each beside its entry: the loss that came last, and the settings."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.compute as pc

from ..runs import ClientError, RunFolder
from ..runs.query import Query

__all__ = ["RunSummaries", "settings_of"]

_LOOK_EVERY = 10.0
_MOST_SETTINGS = 200
_MOST_LETTERS = 200
_TELLING = ("model", "layout", "config", "versions")


class RunSummaries:
    """Summaries of recorded runs, remembered while their files stay as they are. Its methods read files: call them in a worker thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, tuple[int, int] | None, dict[str, Any]]] = {}

    def of(self, folder: RunFolder) -> dict[str, Any]:
        """Return ``{loss, settings}`` of a run.

        A recording that grows is read anew every ten seconds at most. ``loss`` is ``{name, step, value}`` or null; a value that is not finite is text.
        """
        now = time.monotonic()
        stamp = _stamp(folder)
        with self._lock:
            known = self._known.get(folder.id)
        if known is None or (known[1] != stamp and now - known[0] >= (0 if folder.closed else _LOOK_EVERY)):
            known = now, stamp, {"loss": _last_loss(folder)}
            with self._lock:
                self._known[folder.id] = known
        return {**known[2], "settings": settings_of(folder.hello())}


def settings_of(header: Mapping[str, Any]) -> dict[str, str | int | float | bool | None]:
    """Return what a run was set to, by dotted name: model, layout, tracing and versions; at most 200, short."""
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
            # Places of ranks and the like tell nobody what a run was set to.
            if all(isinstance(each, (str, int, float)) for each in value):
                yield name, ", ".join(map(str, value))
        elif value is not None:
            yield name, value


def _last_loss(folder: RunFolder) -> dict[str, Any] | None:
    try:
        # The loss may come every so many steps; the whole is read only where it did not come lately.
        for first in dict.fromkeys((max(0, folder.step - 1000), 0)):
            table = folder.again().read("scalars", Query(first=first), ["step", "name", "value"])
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
        # Its own description says what cannot be read of a run.
        return None
    return None


def _stamp(folder: RunFolder) -> tuple[int, int] | None:
    for end in (".parquet", ".arrows"):
        try:
            info = (folder.path / f"scalars{end}").lstat()
        except OSError:
            continue
        return info.st_mtime_ns, info.st_size
    return None
