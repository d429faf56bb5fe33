"""All runs: hubs of this user, hubs that were connected by hand, and recorded folders."""

from __future__ import annotations

import logging
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..hub.discovery import HubEntry, found_hubs, id_at_address, live_hubs
from ..protocol import attempt_folders, shown_text
from ..runs import ClientError, RunFolder
from ..runs.run_index import ListedRun, recording_bytes
from ..runs.run_words import job_name
from .errors import ServerError, no_run, not_recorded, some_of
from .hub_target import AllowedHubs, HubTarget
from .reader.between import RunPlace
from .recorded_runs import RecordedRuns
from .run_notes import NotesFiles, checked_name, remove_recording, write_name
from .statistics_runs import ServedStatistics, StatisticsRuns

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RunRegistry:
    """All that the server knows of runs. Its methods read files: call them in a worker thread.

    ``run_folders`` are relative to the root or absolute. ``allowed_hubs`` are patterns ``host:port`` of hubs
    that may be connected by hand. ``hidden`` says whether Jupyter would hide a path, given relative to the
    root.
    """

    def __init__(
        self,
        root: Path,
        run_folders: Iterable[str],
        allowed_hubs: Iterable[str],
        log: logging.Logger,
        hidden: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self.root = root = root.resolve()
        self.statistics = StatisticsRuns(root, hidden)
        self._recordings = RecordedRuns(root, run_folders, log)
        self.allowed = AllowedHubs(allowed_hubs)
        self._log = log
        self._lock = threading.RLock()
        # By its reported run and its address.
        self._connected: dict[tuple[str, str], HubTarget] = {}
        self._names: dict[str, str] = {}
        self._announced: dict[str, str] = {}
        self._steps: dict[str, int] = {}
        self._seen: dict[str, HubTarget] = {}
        self._records: dict[str, Path] = {}
        self._ended: dict[str, float] = {}
        self._lost: set[str] = set()
        self._distant: list[HubEntry] = []
        self._notes = NotesFiles()

    def listing(self) -> dict[str, Any]:
        """Return the list of runs, newest first, and sentences on what is left out of it."""
        entries = self.entries()
        with self._lock:
            posing = [target.posing_words() for target in self._live().values() if target.poses]
            distant = [hub.distant_words() for hub in self._distant]
        left_out = self._recordings.left_out
        return {"runs": entries, "warnings": [*some_of(distant), *some_of(posing), *some_of(left_out)]}

    def entries(self) -> list[dict[str, Any]]:
        with self._lock:
            live = self._live()
            folders = self._recorded()
        entries = [self._live_entry(target, folders.get(run_id)) for run_id, target in live.items()]
        entries += [self._recorded_entry(folder) for run_id, folder in folders.items() if run_id not in live]
        entries += [self._statistics_entry(run) for run in self.statistics.all()]
        return sorted(entries, key=lambda entry: (entry["started"], entry["id"]), reverse=True)

    def has_recordings(self) -> bool:
        with self._lock:
            return len(self._recorded()) > 0

    def records(self) -> bool:
        """Whether a hub of the last list records on this machine."""
        return any((folder / "run.json").is_file() for folder in list(self._records.values()))

    def entry(self, run_id: str) -> dict[str, Any]:
        """Return one run's entry, also of a live one that left nothing; raises ``ServerError`` 404."""
        found = next((entry for entry in self.entries() if entry["id"] == run_id), None)
        if found is None:
            with self._lock:
                target = self._seen.get(run_id)
            if target is None:
                raise no_run(run_id)
            found = {**self._live_entry(target, None), "state": "gone"}
        return found

    def hub(self, run_id: str) -> HubTarget | None:
        """Return a live run's hub, or None."""
        with self._lock:
            return self._live().get(run_id)

    def folder(self, run_id: str) -> RunFolder:
        """Return a recorded run; raises ``ServerError`` 404."""
        if not _RUN_ID.fullmatch(run_id):
            raise no_run(run_id)
        with self._lock:
            self._live()
            found = self._recorded().get(run_id)
        if found is None:
            raise no_run(run_id) if self.hub(run_id) is None else not_recorded()
        # Two requests may read at once.
        return _opened(found)

    def place(self, run_id: str) -> RunPlace:
        """Return where a run's files or its hub are; raises ``ServerError`` 404."""
        with self._lock:
            target = self._live().get(run_id)
            folder = self._recorded().get(run_id)
        statistics = self.statistics.get(run_id)
        place: RunPlace = {}
        if folder is not None:
            place["folder"] = str(folder.path)
            place["name"] = self._names.get(run_id) or folder.name
        if target is not None:
            place["hub"] = (target.address, target.token)
        if statistics is not None:
            place["tree"] = statistics.tree.told()
        if not place:
            raise no_run(run_id)
        return place

    def places(self) -> dict[str, RunPlace]:
        """Return where each recorded run is, by id."""
        with self._lock:
            return {run_id: {"folder": str(each.path)} for run_id, each in self._recorded().items()}

    def run_ids(self) -> set[str]:
        with self._lock:
            return {*self._live(), *self._recorded(), *(each.id for each in self.statistics.all())}

    def describe(self, run_id: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Write ``name``, ``notes`` or ``tags`` to a run, and return its entry.

        Raises ``ServerError``: 400 for a bad value, 404 for no such run, 409 when its folder cannot be
        written, or there is none for notes.
        """
        name = checked_name(changes["name"]) if "name" in changes else None
        entry = self.entry(run_id)
        if {"notes", "tags"} & set(changes):
            self._notes.change(self._notable(run_id).path, changes)
        if name is not None:
            if entry["state"] == "live" or "kind" in entry:
                self._names[run_id] = name
            else:
                write_name(self.folder(run_id), name)
                self._names.pop(run_id, None)
        return self.entry(run_id)

    def delete(self, run_id: str) -> bool:
        """Delete a recording, and return whether its folder is gone: other files in it stay.

        Raises ``ServerError``: 404 for no such recording, 403 for a link or one outside of the known folders,
        409 for a run whose hub still runs, for files of others, and where the system refuses.
        """
        if self.statistics.get(run_id) is not None:
            raise ServerError(
                409, "refused", "These are files of another logger: delete them where they lie."
            )
        with self._lock:
            folder = self._recorded().get(run_id)
            if run_id in self._live() or (folder is not None and _is_written(folder.path)):
                raise ServerError(
                    409,
                    "refused",
                    "The hub of this run is still there. Delete the recording when the training has ended "
                    "and nobody looks at it live.",
                )
            if folder is None:
                raise no_run(run_id)
            if folder.superseded:
                raise ServerError(
                    409,
                    "refused",
                    "This is an earlier attempt of a run, which has its first steps from it. Delete the run "
                    "to delete both.",
                )
            if not self._recordings.may_delete(folder.path):
                raise ServerError(
                    403,
                    "forbidden",
                    "Only folders that lie in the run folders of this server are deleted, and no links.",
                )
            streams = _opened(folder).streams
            for part in attempt_folders(folder.path):
                remove_recording(part, streams)
                self._recordings.forget(part)
            with suppress(OSError):
                (folder.path / "attempts").rmdir()
            gone = remove_recording(folder.path, streams)
            for known in (self._records, self._names, self._announced, self._steps, self._seen, self._ended):
                known.pop(run_id, None)
            self._lost.discard(run_id)
            self._recordings.forget(folder.path)
            self._notes.forget(folder.path)
        return gone

    def add_converted(self, folder: Path) -> dict[str, Any]:
        """Add the recording that files of another tool were converted to, and return its entry."""
        run_id = RunFolder(folder).id
        with self._lock:
            self._records[run_id] = folder
        return self.entry(run_id)

    def open_statistics(self, path: Any) -> tuple[list[dict[str, Any]], list[str]]:
        """Open a tree of raw-moment files.

        Returns the entries, and sentences about what was left out; raises ``ServerError``.
        """
        runs, warnings = self.statistics.open(path)
        return [self._statistics_entry(run) for run in runs], warnings

    def connect(self, target: HubTarget) -> dict[str, Any]:
        """Add a hub that was connected by hand, and return its entry."""
        with self._lock:
            self._connected[target.run, target.address] = target
            # The same hub may be known by its runtime file or another address: it has the same token.
            same = [
                found
                for found in self._live().values()
                if (found.run, found.token) == (target.run, target.token)
            ]
        return self.entry(same[0].id)

    def saw(
        self, run_id: str, *, name: str | None = None, step: int | None = None, state: str | None = None
    ) -> None:
        """Note what a relayed message reports about a live run."""
        with self._lock:
            if state in ("finished", "lost"):
                self._ended.setdefault(run_id, time.time())
            elif state is not None:
                self._ended.pop(run_id, None)
            if state == "lost":
                self._lost.add(run_id)
            elif state is not None:
                self._lost.discard(run_id)
            if name is not None:
                self._announced[run_id] = name
            if step is not None:
                self._steps[run_id] = step

    def _live(self) -> dict[str, HubTarget]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hubs, self._distant = found_hubs()
        for warning in caught:
            self._log.debug("Megalens: %s", shown_text(warning.message))
        found: dict[str, HubTarget] = {}
        for hub in hubs:
            if not _RUN_ID.fullmatch(hub.id):
                continue
            found[hub.id] = HubTarget(
                hub.id, hub.id, hub.name, hub.address, hub.started, hub.token, hub.ended
            )
            if hub.record:
                # A killed hub leaves its folder, maybe outside of the configured folders.
                self._records[hub.id] = Path(hub.record)
        self._add_connected(found)
        self._seen.update(found)
        return found

    def _add_connected(self, found: dict[str, HubTarget]) -> None:
        """Add the hubs that were connected by hand, never in place of a run that is known otherwise."""
        recorded = self._recorded() if self._connected else {}
        for target in self._connected.values():
            other, folder = found.get(target.run), recorded.get(target.run)
            if other is not None and other.token == target.token:
                continue
            if other is not None or (folder is not None and folder.started != target.started):
                target = replace(target, id=id_at_address(target.run, target.address))
            found[target.id] = target

    def _recorded(self) -> dict[str, ListedRun]:
        found, others = self._recordings.find(self._records.values())
        self.statistics.look(others)
        return found

    def _notable(self, run_id: str) -> ListedRun:
        """Return the folder for notes on a run."""
        with self._lock:
            folder = self._recorded().get(run_id)
        if folder is None:
            raise ServerError(
                409, "refused", "Notes and tags are kept beside the recording, and this run has none of ours."
            )
        return folder

    def _live_entry(self, target: HubTarget, folder: ListedRun | None) -> dict[str, Any]:
        if folder is not None and folder.closed and (folder.finished or target.ended is not None):
            # Its hub stays for present viewers; new ones read the recording.
            return self._recorded_entry(folder)
        # Its hub may record outside of the folders that are listed.
        path = self._records.get(target.id)
        announced = self._announced.get(target.id)
        name = self._names.get(target.id) or target.shown(
            announced or (folder.name if folder else target.name)
        )
        steps = [
            step for step in (self._steps.get(target.id), folder.step if folder else None) if step is not None
        ]
        return {
            "id": target.id,
            "name": name,
            "job": job_name(name),
            "state": "live",
            "started": target.started,
            "ended": target.ended or (folder.ended if folder else None) or self._ended.get(target.id),
            **({"stopped": True} if self._is_stopped(target.id, folder) else {}),
            "step": max(steps, default=None),
            "folder": self._recordings.relative(folder.path) if folder else None,
            **(self._written(folder) if folder else {"bytes": recording_bytes(path)} if path else {}),
        }

    def _is_stopped(self, run_id: str, folder: ListedRun | None) -> bool:
        """Return whether the training went without saying that it had ended; its hub may still be there."""
        return run_id in self._lost or (folder is not None and folder.lost)

    def _recorded_entry(self, folder: ListedRun) -> dict[str, Any]:
        name = self._names.get(folder.id) or folder.name
        return {
            "id": folder.id,
            "name": name,
            "job": job_name(name),
            "state": "recorded" if folder.closed and not folder.lost else "gone",
            "started": folder.started,
            "ended": folder.ended,
            "step": max(folder.step, self._steps.get(folder.id, 0)),
            "folder": self._recordings.relative(folder.path),
            **self._written(folder),
        }

    def _written(self, folder: ListedRun) -> dict[str, Any]:
        """Return a recording's size, and what a person wrote about it."""
        entry: dict[str, Any] = {"bytes": self._recordings.bytes(folder)}
        try:
            notes = self._notes.of(folder.path)
        except (ValueError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            sentence = f"The notes on {self._recordings.called(folder.path)} cannot be read: {reason:.300}."
            if sentence not in self._recordings.left_out:
                self._recordings.left_out.append(sentence)
            notes = None
        if notes is not None:
            entry.update(notes=notes["notes"], tags=notes["tags"])
        return entry

    def _statistics_entry(self, run: ServedStatistics) -> dict[str, Any]:
        started, ended = run.times()
        return {
            "id": run.id,
            "name": self._names.get(run.id) or run.tree.label,
            "state": "recorded",
            "started": started,
            "ended": ended,
            "step": self._steps.get(run.id),
            "folder": self._recordings.relative(run.tree.root),
            "kind": "statistics",
        }


def _opened(run: ListedRun) -> RunFolder:
    try:
        return RunFolder(run.path)
    except ClientError as error:
        raise ServerError(409, error.code, error.message, error.field) from error


def _is_written(folder: Path) -> bool:
    """Whether a running hub records there, under any run."""
    return any(hub.record and Path(hub.record).resolve() == folder.resolve() for hub in live_hubs())
