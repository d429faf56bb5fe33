"""A run that is watched while it trains."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import SUBPROTOCOL, HubReader, ProtocolError, Streams
from ..protocol.messages_generated import (
    Cancel,
    ConfigPatch,
    Configure,
    Configured,
    ErrorMessage,
    Generate,
    Generating,
    Goodbye,
    Hello,
    Join,
    Peer,
    Status,
)
from ..protocol.version import own_version
from .arrivals import Arrivals
from .errors import ClientError, as_int
from .link import LinkTarget, ViewerLink
from .query import Query
from .recorded import earlier_attempts, lacking_here, rows_before, with_recorded
from .run import Run
from .run_words import lacking_words
from .status import RunStatus

if TYPE_CHECKING:
    from .moments import MomentSource

_MOST_BAD = 10
_MOST_NOTES = 20
_WAITING: Status = {"type": "status", "state": "waiting", "step": 0}


class LiveRun(Run):
    """A live run: a thread keeps its rows arriving, within bounds, and the connection coming back.

    Parameters
    ----------
    target : callable
        Returns (address, token, run) of the hub, or ``None`` when it is gone for good.
    folder : Path, optional
        Where the hub records, when it does and this machine has it.
    limit_bytes : int, optional
        Bound of the tensors in memory; the stream's policy when absent.
    called : callable, optional
        Maps the hub's id of the run to the one it has here; the same when absent.
    """

    def __init__(
        self,
        target: LinkTarget,
        folder: Path | None = None,
        limit_bytes: int | None = None,
        called: Callable[[str], str] = lambda run: run,
    ) -> None:
        self._folder = folder
        self._called = called
        self._reader = HubReader()
        # The run by the hub's own name.
        self._hub_run_id = self._known = ""
        self._greeted = False
        self._status = _WAITING
        self._statuses = 0
        self._changed = threading.Condition()
        self._arrivals = Arrivals(limit_bytes)
        self._answers: dict[str, Configured | Generating | ProtocolError | None] = {}
        self._problem: Exception | None = None
        self._connected = False
        self._ended: str | None = None
        self._closed = False
        self._bad = self._announced_drops = 0
        self._notes: deque[str] = deque(maxlen=_MOST_NOTES)
        self._shut_down = False
        self._link = ViewerLink(target, self)

    # What the run is

    @property
    def live(self) -> bool:
        return not self._closed and self._ended is None and self._status["state"] not in ("finished", "lost")

    @property
    def link_target(self) -> LinkTarget | None:
        """Where its hub is, for a page's own connection; None where the run has another id there."""
        return self._link.target if self._hub_run_id == self.id else None

    @property
    def connected(self) -> bool:
        """Whether the hub is reached right now."""
        return self._connected

    @property
    def state(self) -> str:
        """``waiting``, ``training``, ``paused``, ``idle``, ``finished``, or ``lost``, also with the hub."""
        state = str(self._status["state"])
        return "lost" if self._ended == "gone" and state != "finished" else state

    @property
    def step(self) -> int:
        return max(self._arrivals.newest, int(self._status["step"]))

    @property
    def status(self) -> RunStatus:
        """The newest ``status`` message. It prints in words."""
        return RunStatus(self._status)

    @property
    def folder(self) -> Path | None:
        return self._folder

    @property
    def attempts(self) -> list[Run]:
        return earlier_attempts(self.folder)

    @property
    def truncated(self) -> list[str]:
        return []

    @property
    def received_frames(self) -> int:
        """Data frames that arrived."""
        return self._arrivals.received

    @property
    def missed_frames(self) -> int:
        """Data frames that the hub dropped for this slow viewer, or that were lost while disconnected."""
        return self._arrivals.missed

    @property
    def evicted_rows(self) -> int:
        """Rows that arrived and were evicted to stay within memory, oldest first."""
        return self._arrivals.evicted_rows

    @property
    def warnings(self) -> list[str]:
        """Sentences of the hub and of this side."""
        found = [*self._status.get("warnings", []), *self._notes]
        if not self._connected and not self._closed and self._ended is None and self._greeted:
            found.append("The connection to the hub is broken; it comes back by itself.")
        if self._ended == "gone":
            found.append("The hub stopped unexpectedly. What arrived before stays readable.")
        unannounced, dropped = self._arrivals.unannounced, self._arrivals.missed - self._arrivals.unannounced
        if unannounced:
            found.append(f"{unannounced} frames did not arrive, and the hub did not say why.")
        if dropped > 0:
            found.append(f"{dropped} frames were given up on the way here.")
        if self.evicted_rows:
            where = "" if self._folder is None else " The recording has them, and they are read from there."
            found.append(f"{self.evicted_rows} older rows were given up to stay within memory.{where}")
        if missing := self._status.get("recording", {}).get("missing_steps"):
            found.append(lacking_words(missing))
        if self._bad:
            found.append(f"{self._bad} messages could not be read.")
        if isinstance(self._problem, ProtocolError) and self._greeted:
            found.append(
                f"The connection was ended because the hub broke the protocol: {self._problem.message}"[:500]
            )
        return found

    def _moments(self) -> MomentSource:
        """Return those that arrived here, and those of the recording where this machine has one."""
        from .moments import LiveRows, MomentSource

        return MomentSource(LiveRows(lambda: self._received("moments", Query()), self._folder))

    # What can be asked of it

    def start(self, timeout: float) -> None:
        """Connect, and wait until the run is known and the hub's backlog has arrived.

        Raises ``ClientError`` or ``ProtocolError``; nothing is left running then.
        """
        self._link.start()
        deadline = time.monotonic() + timeout
        with self._changed:
            answered = self._changed.wait_for(lambda: self._greeted or self._problem, timeout)
            if answered and self._greeted:
                # One status comes before the backlog, and one behind it.
                self._changed.wait_for(
                    lambda: self._statuses > 1 or self._ended or self._problem,
                    max(0.0, min(5.0, deadline - time.monotonic())),
                )
                return
            problem = self._problem
        self.close()
        raise problem or ClientError(
            f"The hub did not answer within {timeout:g} s. Try again.", code="timeout"
        )

    def wait(self, step: int | None = None, timeout: float | None = None) -> int:
        with self._changed:
            wanted = self.step + 1 if step is None else as_int(step, "step")
            self._changed.wait_for(lambda: self._arrived(wanted) or not self.live, timeout)
            if self._arrived(wanted) or (not self.live and self.step >= wanted):
                return self.step
            if not self.live:
                raise ClientError(f"The run ended at step {self.step}, before step {wanted}.", code="closed")
        raise ClientError(
            f"Step {wanted} did not come within {timeout:g} s; the run is at step {self.step}.",
            code="timeout",
        )

    def close(self) -> None:
        """Leave the hub and end the thread. What arrived stays readable. Safe twice."""
        self._closed = True
        self._link.close()
        with self._changed:
            self._connected = False
            self._changed.notify_all()

    def _arrived(self, step: int) -> bool:
        """Whether a step's rows are here. It has several frames: only the next step proves the last."""
        reported = int(self._status["step"])
        newest = self._arrivals.newest
        if max(newest, reported) > step or self._arrivals.newest_tensors >= step:
            return True
        # No later step may ever come, and not every step has tensors.
        return (not self.config and newest >= step) or (reported >= step and self.state != "training")

    @property
    def _streams(self) -> Streams:
        return self._arrivals.streams

    def _read(self, stream: str, query: Query) -> pa.Table:
        found = self._received(stream, query)
        folder = self._folder
        if folder is None or not (folder / "run.json").is_file():
            return found
        if self._has_all(stream):
            # But for what an earlier attempt of the training recorded.
            return pa.concat_tables([*rows_before(folder, stream, query), found])
        try:
            return with_recorded(folder, stream, query, found)
        except (ClientError, OSError) as error:
            note = f"The recording cannot be read, and memory has the newest rows only: {error}"[:500]
            if note not in self._notes:
                self._notes.append(note)
            return found

    def _received(self, stream: str, query: Query) -> pa.Table:
        with self._changed:
            return query.filter(self._arrivals.table(stream))

    def _has_all(self, stream: str) -> bool:
        """Whether memory has all rows of a stream that the hub has had, as far as its status tells."""
        with self._changed:
            came = self._status.get("streams", {}).get(stream, {"rows": 0})["rows"]
            whole = self._arrivals.evicted(stream) == 0 and self._arrivals.missed == 0 and not self._notes
            return whole and "time" in self._status and self._arrivals.count_of(stream) >= came

    def _not_kept(self, stream: str, query: Query) -> str | None:
        if self._folder is not None:
            return lacking_here(self._status.get("recording", {}).get("missing_steps", []), query)
        if self._has_all(stream):
            return None
        steps = pc.min_max(self._received(stream, Query())["step"]).as_py()
        return (
            f"Of {stream} only steps {steps['min']} to {steps['max']} are here: memory keeps the newest, and "
            "this machine has no recording of the run."
        )

    def _configure(self, patch: ConfigPatch, timeout: float) -> int:
        answer = self._ask({"type": "configure", "id": "", "patch": patch}, timeout, "change")
        if answer is not None and answer["type"] == "configured" and answer["applied"]:
            return int(answer["step"])
        if not self.live or not self._connected:
            raise ClientError(
                "The connection broke before the change was confirmed. Look at run.config, then try again.",
                code="disconnected",
            )
        if answer is not None and answer["type"] == "configured":
            raise ClientError(
                f"The change was accepted for step {answer['step']}, but that step did not start within "
                f"{timeout:g} s. It applies when training goes on.",
                code="timeout",
            )
        raise ClientError(f"The change was not answered within {timeout:g} s.", code="timeout")

    def _request(self, message: Generate | Cancel, timeout: float) -> Generating:
        answer = self._ask(message, timeout, "request")
        if answer is not None and answer["type"] == "generating":
            return answer
        broken = not self.live or not self._connected
        when = "before the connection broke" if broken else f"within {timeout:g} s"
        raise ClientError(
            f"The request was not answered {when}. Look at run.generations, then try again.",
            code="disconnected" if broken else "timeout",
        )

    def _ask(
        self, message: Configure | Generate | Cancel, timeout: float, what: str
    ) -> Configured | Generating | None:
        """Send a message under an id of its own, wait, and return the last answer; raises the refusal."""
        if not self.live:
            raise ClientError(f"{self.name} has ended, so no {what} reaches it.", code="closed")
        key = f"kernel-{uuid.uuid4().hex[:12]}"
        with self._changed:
            self._answers[key] = None
        try:
            self._link.send({**message, "id": key})  # type: ignore[arg-type]
            with self._changed:
                self._changed.wait_for(
                    lambda: self._settled(key) or not self._connected or not self.live, timeout
                )
                answer = self._answers[key]
        finally:
            with self._changed:
                self._answers.pop(key, None)
        if isinstance(answer, ProtocolError):
            raise answer
        return answer

    def _await(self, stream: str, done: Callable[[], bool], timeout: float | None) -> bool:
        seen = -1

        def settled() -> bool:
            nonlocal seen
            # Other rows come hundreds of times a second, and reading is not free.
            rows = self._arrivals.count_of(stream)
            if rows != seen:
                seen = rows
                if done():
                    return True
            return not self.live

        with self._changed:
            self._changed.wait_for(settled, timeout)
            return done()

    def _settled(self, key: str) -> bool:
        answer = self._answers[key]
        if answer is None or isinstance(answer, ProtocolError):
            return answer is not None
        return answer["type"] == "generating" or bool(answer["applied"])

    # Called by the link

    def join_message(self, run: str | None) -> Join:
        """Return the ``join`` with where this viewer stopped, unless the hub now has another run."""
        self._reader = HubReader(run)
        peer: Peer = {"name": "kernel", "version": own_version()}
        if user := os.environ.get("JUPYTERHUB_USER"):
            peer["user"] = user
        message: Join = {
            "type": "join",
            "protocol": SUBPROTOCOL,
            "role": "viewer",
            "peer": peer,
            "since": None,
        }
        with self._changed:
            self._arrivals.expected = None
            if self._greeted:
                message["since"] = self._arrivals.seq
                message["run"] = self._hub_run_id
        return message

    def on_text(self, text: str) -> None:
        try:
            message = self._reader.message(text)
        except ProtocolError as error:
            if error.code in ("version-mismatch", "refused", "too-large"):
                raise
            self._count_bad(error)
            return
        with self._changed:
            getattr(self, f"_on_{message['type']}")(message)
            self._changed.notify_all()

    def on_bytes(self, data: bytes) -> None:
        try:
            frame = self._reader.frame(data, self._streams)
            body = self._arrivals.checked(frame, data)
        except ProtocolError as error:
            self._count_bad(error)
            return
        with self._changed:
            self._arrivals.add(frame, body, len(data))
            self._changed.notify_all()

    def _count_bad(self, error: ProtocolError) -> None:
        """Count an unreadable message. A later version may send a few; many are another protocol."""
        self._bad += 1
        if self._bad >= _MOST_BAD:
            raise error

    def on_down(self, problem: Exception, final: bool) -> None:
        with self._changed:
            self._connected = False
            if not self._greeted:
                # Before the first hello a person is waiting for the answer.
                self._problem = problem
            elif final:
                self._ended = self._ended or ("ended" if self._shut_down else "gone")
                self._problem = problem
            self._changed.notify_all()

    def _on_hello(self, message: Hello) -> None:
        fresh = not self._connected
        run_id = message["run"]["id"]
        if fresh and self._greeted and run_id != self._hub_run_id:
            self._arrivals.seq = 0
            self._announced_drops = 0
            self._notes.append(
                f"The hub was restarted after step {self.step}; rows in between may be missing."
            )
        if fresh:
            self._arrivals.expected = message["seq"] + 1
            self._arrivals.missed += message.get("resumed", {}).get("missed_frames", 0)
            self._announced_drops = 0
            self._shut_down = False
        if run_id != self._hub_run_id:
            self._known = self._called(run_id)
            if self._known != run_id:
                self._notes.append(
                    f"This hub says that it is the run {run_id}, which another hub is. It is called "
                    f"{self._known} here."
                )
        self._hub_run_id = run_id
        if self._known != run_id:
            name = f"{message['run']['name'][:100]} (another hub)"
            message = {**message, "run": {**message["run"], "id": self._known, "name": name}}
        self._connected = True
        self._hello = message
        self._greeted = True
        self._streams.learn(message.get("streams", {}))

    def _on_status(self, message: Status) -> None:
        drops = message.get("dropped", {}).get("viewer", 0)
        if drops > self._announced_drops:
            # The gaps seen so far are what this count announces.
            self._announced_drops = drops
            self._arrivals.unannounced = 0
        self._status = message
        self._statuses += 1

    def _on_configured(self, message: Configured) -> None:
        if message["applied"]:
            self._hello = {**self._hello, "config": message["config"]}
        if message["id"] in self._answers:
            self._answers[message["id"]] = message

    def _on_generating(self, message: Generating) -> None:
        if message["id"] in self._answers:
            self._answers[message["id"]] = message

    def _on_error(self, message: ErrorMessage) -> None:
        error = ProtocolError.from_message(message)
        key = message.get("reply_to")
        if key in self._answers:
            self._answers[key] = error
        elif not self._greeted:
            self._problem = error

    def _on_goodbye(self, message: Goodbye) -> None:
        self._shut_down = True
        if message["reason"] == "finished":
            self._ended = "ended"
