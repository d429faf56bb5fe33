"""The hub: frames of producers in, to viewers and to the recording out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve

from ..protocol import (
    BIT_CAUGHT_UP,
    FrameChecker,
    ProtocolError,
    decode_frame,
    encode_frame,
    shown_text,
    stream_schema,
)
from ..protocol.arrow_columns import arrow_batch
from ..protocol.messages_generated import Announce, HelloResumed, Join, Limits, Message
from ..protocol.version import own_versions
from .batch_connection import BatchConnection
from .broadcaster import Broadcaster
from .changes import Changes
from .discovery import HubEntry, process_identity, remove_entry, write_entry
from .errors import HubError
from .half_open import HalfOpen
from .handshake import check_upgrade, select_subprotocol
from .history import Backlog, StreamHistory
from .live_frame import admit_frame
from .minute_log import MinuteLog
from .open_files import count_places
from .options import HubOptions
from .process import process_runs
from .recorder import Recorder
from .requests import Requests
from .resumed import read_resumed, set_aside
from .run_id import new_run_id
from .run_state import RunState
from .session import Session
from .warning_log import WarningLog

__all__ = ["Hub"]

_LOST_GRACE_SECONDS = 2.0
_STOOD_STILL_SECONDS = 1.0


class Hub:
    """One hub process's server.

    Parameters
    ----------
    options : HubOptions
        How it was started.
    """

    def __init__(self, options: HubOptions) -> None:
        self.options = options
        before = None if options.resume is None else read_resumed(options.resume)
        run_id = new_run_id(options.name) if before is None else before["run"]["id"]
        limits: Limits = {
            "max_message_bytes": options.max_producer_bytes,
            "viewer_queue_bytes": options.viewer_queue_bytes,
            "backlog_bytes": options.backlog_bytes,
        }
        self.state = RunState(run_id, options.name, limits, options.idle_seconds, own_versions(), before)
        self.entry: HubEntry | None = None
        self._token = secrets.token_urlsafe(32)
        self._checker = FrameChecker()
        self._history = StreamHistory(options.backlog_bytes, self.state.streams)
        self._sessions: dict[int, Session] = {}
        self._viewers: dict[int, Session] = {}
        self._producers: dict[int, Session] = {}
        self._broadcaster = Broadcaster(self.state, self._viewers, self.leaders, lambda: self.recorder)
        self._count = 0
        self._changes = Changes(self.state, self._viewers, self.leaders, self._applied)
        self._requests = Requests(self.state, self._viewers, self.leaders)
        self._skipped: dict[str, int] = {}
        self.recorder: Recorder | None = None
        self._record_closing: asyncio.Task[None] | None = None
        self._server: Server | None = None
        self._warnings = WarningLog()
        self._changed = asyncio.Event()
        self._describe_due = False
        self._silent: list[int] = []
        self._places = count_places()
        self._half_open = HalfOpen(lambda: self._places.half_open, self._crowded)
        self.log = MinuteLog(lambda line: print(f"megalens hub: {line}", file=sys.stderr, flush=True))
        self._last_viewer_left = time.monotonic()
        self._done_since: float | None = None
        self._closed = False

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> HubEntry:
        """Open the port, begin the recording and write the runtime file.

        Raises
        ------
        HubError
            When the port is in use or a folder cannot be written.
        """
        options = self.options
        try:
            self._server = await serve(
                self._handle,
                options.host,
                options.port,
                process_request=check_upgrade(
                    self._token, lambda: self._places.sessions - len(self._sessions), self.log.count
                ),
                select_subprotocol=select_subprotocol,
                compression=None,
                max_size=options.max_producer_bytes,
                # A training process that is stopped in a debugger, or a tab that sleeps, is still there.
                ping_timeout=None,
                close_timeout=10,
                server_header=None,
                open_timeout=options.join_seconds,
                backlog=self._places.backlog,
                create_connection=partial(BatchConnection, half_open=self._half_open),  # type: ignore[arg-type]
            )
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise HubError(
                f"Could not listen on {options.host}:{options.port}: {reason}. Choose another --port, or 0 for any free one."
            ) from error
        host, port = next(iter(self._server.sockets)).getsockname()[:2]
        folder = options.record.absolute() / self.state.run["id"] if options.record else None
        if options.resume is not None:
            folder = options.resume.absolute()
        self.entry = HubEntry(
            id=self.state.run["id"],
            name=options.name,
            pid=os.getpid(),
            host={"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host),  # noqa: S104
            port=port,
            token=self._token,
            started=self.state.started,
            record=str(folder) if folder else None,
            process=process_identity(os.getpid()),
        )
        try:
            if folder and self.state.before is not None:
                set_aside(folder, self.state.before, options.first_step)
            if folder:
                self.recorder = Recorder(
                    folder,
                    self.state.description(),
                    options.recorder_queue_bytes,
                    limit_bytes=options.record_bytes,
                    resumes=options.resume is not None,
                )
            write_entry(self.entry)
        except HubError:
            await self.stop()
            raise
        return self.entry

    async def serve_until_done(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set or the run is over and nobody watches; then :meth:`stop`."""
        waiter = asyncio.create_task(stop.wait())
        last = time.monotonic()
        try:
            while not stop.is_set() and not self._over():
                now = time.monotonic()
                if now - last > _STOOD_STILL_SECONDS:
                    # What came meanwhile is not read yet.
                    self.state.ranks.forgive(now - last)
                last = now
                try:
                    self._look_after()
                except Exception as error:
                    # Whatever it is, rows go on to viewers and the recording; a recording that ends is the worse loss.
                    self.warn(
                        f"The hub met an error of its own: {shown_text(repr(error), 200)}. Please report it."
                    )
                await asyncio.wait([waiter], timeout=0.1 if self._changed.is_set() else 0.25)
        finally:
            waiter.cancel()
            await self.stop()

    def _look_after(self) -> None:
        """Notice who is gone, and tell and write down what is due."""
        self._watch()
        self._record_warnings("hub", list(self.state.warnings))
        if self._broadcaster.tick(changed=self._changed.is_set()):
            self._changed.clear()
        if self._describe_due and self.recorder:
            self._describe_due = False
            self.recorder.describe(self.state.description())

    async def stop(self) -> None:
        """Say goodbye to everybody, close the recording, remove the runtime file. Safe twice."""
        if self._closed:
            return
        self._closed = True
        if self.entry:
            remove_entry(self.entry)
        await asyncio.gather(*(session.goodbye("shutdown", 1001) for session in [*self._sessions.values()]))
        for session in self._sessions.values():
            # It did not answer the close: the end of the hub does not wait for it.
            session.abort()
        if self._server:
            self._server.close(code=1001)
            self._half_open.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 3)
        self._close_recording()
        if self._record_closing:
            await self._record_closing
        self.log.flush()

    def _over(self) -> bool:
        if not self.state.done or self._viewers:
            return False
        if self._record_closing is None and self.recorder is not None:
            return False
        if self._record_closing is not None and not self._record_closing.done():
            return False
        quiet_since = max(self._last_viewer_left, self._done_since or 0)
        return time.monotonic() - quiet_since >= self.options.linger

    def _watch(self) -> None:
        """Notice what no message tells: a parent that is gone, producers that are done."""
        self.log.tick()
        parent = self.options.parent_pid
        if parent is not None and self.state.state == "waiting" and not process_runs(parent):
            self.state.give_up()
            self._changed.set()
        if self.recorder and self.recorder.state == "on" and self.recorder.message:
            # It was interrupted, or gives up old steps, which the state alone does not tell.
            self.state.warn(self.recorder.message)
        silent = self.state.ranks.silent(time.monotonic())
        if silent != self._silent:
            self._silent = silent
            self._changed.set()
        if not self.state.done:
            self._done_since = None
            self._enter(self.state.run["name"], None)
            return
        now = time.monotonic()
        if self._done_since is None:
            self._done_since = now
            self._changed.set()
        # A lost producer may be back at once, after a short break of the network.
        if self.state.state == "finished" or now - self._done_since >= _LOST_GRACE_SECONDS:
            self._enter(self.state.run["name"], self.state.ended)
            self._close_recording()

    def _enter(self, name: str, ended: float | None) -> None:
        """Bring the runtime file up to date: it is all that a list of runs knows of this one."""
        if self._closed or self.entry is None or (self.entry.name, self.entry.ended) == (name, ended):
            return
        self.entry = replace(self.entry, name=name, ended=ended)
        with contextlib.suppress(HubError):
            write_entry(self.entry)

    def _close_recording(self) -> None:
        if self.recorder is None:
            return
        if self._record_closing is not None and not (self._record_closing.done() and self.recorder.behind):
            return
        self._record_warnings("hub", list(self.state.warnings))
        closing = asyncio.to_thread(self.recorder.close, self.state.description())
        self._record_closing = asyncio.create_task(closing)
        self._record_closing.add_done_callback(lambda _: self._changed.set())

    # -- connections -----------------------------------------------------------------------------------------------

    async def _handle(self, connection: ServerConnection) -> None:
        assert isinstance(connection, BatchConnection)
        connection.let_in()
        self._count += 1
        session = Session(self, self.options, self.state.streams, connection, self._count)
        self._sessions[session.number] = session
        try:
            await session.run()
        finally:
            del self._sessions[session.number]

    def _crowded(self) -> None:
        self.log.count("connections that said nothing and were cut off to let others in")
        self.state.warn(
            "Some program opens connections to this run's hub without the token, more than it answers. They are cut off; nothing of the run is lost."
        )

    def leave(self, session: Session) -> None:
        """Count a client out, with a goodbye or without. Safe for one that never joined."""
        self._changed.set()
        if self._viewers.pop(session.number, None):
            self._last_viewer_left = time.monotonic()
        if session.rank is None:
            return
        rank, session.rank = session.rank, None
        del self._producers[rank]
        self.state.detach(rank, finished=session.said_goodbye)
        why = "finished" if session.said_goodbye else "lost"
        self._audit(session.peer["name"], "disconnect", {"rank": rank, "reason": why})
        self._changes.forget(session.number)
        self._requests.forget(session.number)

    async def whole(self, session: Session) -> None:
        """Wait until the recording is whole, where the training is over, and tell a producer that said goodbye meanwhile that it is being written."""
        # Of the processes of a job the last to leave: rank 0 waits for the others.
        if self.state.done and self.state.state == "finished":
            self._enter(self.state.run["name"], self.state.ended)
            self._close_recording()
            while self._record_closing is not None and not self._record_closing.done():
                session.tell(self._broadcaster.status(session))
                await asyncio.wait([self._record_closing], timeout=1.0)

    def welcome(self, session: Session, join: Join) -> tuple[str, Backlog]:
        """Count a viewer in and return the text of its ``hello`` and what it is sent before live frames."""
        since = join.get("since")
        run = self.state.run["id"]
        if since is not None and (join.get("run", run) != run or since > self.state.seq):
            since = None
        backlog = self._history.backlog(since, join.get("backlog"))
        resumed: HelloResumed | None = None
        if since is not None:
            resumed = {
                "since": since,
                "missed_frames": backlog.missed_frames,
                "missed_rows": backlog.missed_rows,
                "first_step": backlog.first_step,
                "last_step": backlog.last_step,
            }
        self._viewers[session.number] = session
        session.enqueue(self._broadcaster.status(session))
        self._broadcaster.somebody_looks()
        self._changed.set()
        return self._broadcaster.hello(resumed), backlog

    @property
    def viewers(self) -> dict[int, Session]:
        """The viewers that are attached, by number."""
        return self._viewers

    def leaders(self) -> list[Session]:
        """Return the producers that answer changes, for themselves or for others too."""
        return [session for session in self._producers.values() if session.leads]

    def leads(self, rank: int) -> bool:
        """Return whether the producer of this rank answers changes, for itself or for others too."""
        return self.state.job.leader(rank) == rank

    def short_hello(self) -> str:
        """Return the text of ``hello`` for a producer."""
        return self._broadcaster.short_hello()

    def warn(self, text: str) -> None:
        """Have a sentence told to everybody."""
        self.state.warn(text)

    # -- messages --------------------------------------------------------------------------------------------------

    async def take(self, session: Session, message: Message) -> None:
        """Act on one checked message.

        Raises
        ------
        ProtocolError
            What the sender is told.
        """
        if message["type"] == "announce":
            await self._make_way(session, message)
            self._announce(session, message)
        elif message["type"] == "status":
            if session.rank is not None:
                self.state.report(session.rank, message)
                self._record_warnings(session.peer["name"], message.get("warnings", ()))
                self._changed.set()
        elif message["type"] == "configure":
            self._changes.ask(session, message)
        elif message["type"] == "configured":
            self._changes.answer(session, message)
        elif message["type"] == "generate" or message["type"] == "cancel":
            self._requests.ask(session, message)
        elif message["type"] == "generating":
            self._requests.answer(session, message)
        elif message["type"] == "error":
            if not self._requests.answer(session, message):
                self._changes.refuse(session, message)
        elif message["type"] == "goodbye":
            session.said_goodbye = True

    def publish(self, data: bytes | bytearray, rank: int | None = None) -> None:
        """Check a frame of a producer, or of the hub itself, and pass it on to everybody.

        Raises
        ------
        ProtocolError
            ``bad-frame`` or ``version-mismatch``.
        """
        header = decode_frame(data, self.state.streams)
        if not header.known:
            self._skipped[header.stream] = self._skipped.get(header.stream, 0) + 1
            if self._skipped[header.stream] == 1:
                self.state.warn(
                    f"The hub skips the stream {header.stream}, which it does not know. "
                    "Update the hub, or let the producer announce it."
                )
            return
        frame, body = admit_frame(
            self._checker, header, data, self.state.seq + 1, header.bits & ~BIT_CAUGHT_UP
        )
        self.state.saw(frame, body, rank)
        self._history.append(frame)
        if self.recorder:
            self.recorder.put(body, frame.step, len(data))
        for viewer in list(self._viewers.values()):
            viewer.enqueue(frame)
        self._changed.set()

    async def _make_way(self, session: Session, message: Announce) -> None:
        """See to it that nobody else is the rank that a producer announces.

        Raises
        ------
        ProtocolError
            ``refused``, when another job has this hub.
        """
        rank = message["rank"]
        while session.rank is None:
            other = self.state.job.is_other(message, self.state.attached)
            if other:
                raise _taken(f"Another job has this hub. {other}")
            holder = self._producers.get(rank)
            if holder is None:
                return
            # The same process may be back before its broken connection is noticed.
            if await holder.alive():
                raise _taken(
                    f"{self.state.ranks.name(rank, at_start=True)} of the job that has this hub is still there."
                )
            self.leave(holder)
            holder.close_soon(4409, "replaced")

    def _announce(self, session: Session, message: Announce) -> None:
        rank = message["rank"]
        if session.rank not in (None, rank):
            raise ProtocolError(
                "bad-message",
                "A producer stays the rank that it announced first.",
                field="rank",
                expected=str(session.rank),
                got=str(rank),
            )
        fresh = self.state.streams.announce(message.get("streams", {}))
        # A tracer announces itself again when it has learned more of the model.
        action = "connect" if session.rank is None else "announce"
        session.rank = rank
        self._producers[rank] = session
        self.state.attach(message)
        detail: dict[str, Any] = {"rank": rank, "model": message["model"]["name"]}
        if session.leads:
            detail["config"] = message["config"]
        self._audit(session.peer["name"], action, detail)
        self._describe_due = True
        if fresh and self.recorder:
            self.recorder.describe(self.state.description())
        self._enter(self.state.run["name"], None)
        # The first frame of a stream may come right behind its announcement.
        self._broadcaster.announce(at_once=fresh)

    # -- what the hub itself says ----------------------------------------------------------------------------------

    def _audit(self, who: str, action: str, detail: dict[str, Any], step: int | None = None) -> None:
        """Add a row to the run's ``audit`` stream."""
        step = self.state.step if step is None else step
        text = json.dumps(detail, ensure_ascii=False, separators=(",", ":"))
        row = {"step": [step], "time": [time.time()], "who": [who], "action": [action], "detail": [text]}
        self.publish(encode_frame("audit", arrow_batch(row, stream_schema("audit")), step=step))

    def _record_warnings(self, who: str, warnings: Iterable[str]) -> None:
        """Have a recording say what was told live."""
        for text in self._warnings.new(warnings):
            self._audit(who, "warning", {"text": text})

    def _applied(self, who: str, action: str, detail: dict[str, Any], step: int) -> None:
        self._audit(who, action, detail, step)
        self._describe_due = True


def _taken(text: str) -> ProtocolError:
    return ProtocolError(
        "refused",
        f"{text} Give the second job a hub of its own, on another port, or end the first job.",
        field="rank",
    )
