"""The hub: frames of producers in, to viewers and to the recording out."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import sys
import time
from dataclasses import replace
from functools import partial
from typing import cast

from websockets.asyncio.server import Server, ServerConnection, serve

from ..protocol import shown_text
from ..protocol.messages_generated import Limits
from ..protocol.version import own_versions
from .batch_connection import BatchConnection
from .broadcaster import Publisher
from .clients import Clients
from .connections import HalfOpen, MinuteLog, check_upgrade, connection_limits, select_subprotocol
from .discovery import (
    TOUCH_SECONDS,
    HubEntry,
    entry_path,
    remove_dead_entries,
    remove_entry,
    touch_entry,
    write_entry,
)
from .machine import node_name, own_namespaces, process_identity
from .options import HubError, HubOptions, new_run_id
from .recorder import Recorder
from .resumed import read_resumed, set_aside
from .run_state import RunState
from .session import Session

_LOST_GRACE_SECONDS = 2.0
_STOOD_STILL_SECONDS = 1.0

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_MIB = 1024 * 1024
_PRODUCER_BYTES = 64 * _MIB
_RECORDER_BYTES = 256 * _MIB


class Hub:
    """One hub process's server, from its start to its end.

    ``entry`` is set once it has started; ``viewers`` are those attached, by number.
    """

    def __init__(self, options: HubOptions) -> None:
        self.options = options
        before = None if options.resume is None else read_resumed(options.resume)
        run_id = new_run_id(options.name) if before is None else before["run"]["id"]
        limits: Limits = {
            "max_message_bytes": _PRODUCER_BYTES,
            "viewer_queue_bytes": options.viewer_queue_bytes,
            "backlog_bytes": options.backlog_bytes,
        }
        self.state = RunState(run_id, options.name, limits, own_versions(), before)
        self.entry: HubEntry | None = None
        self.viewers: dict[int, Session] = {}
        self._changed = asyncio.Event()
        self._publisher = Publisher(self.state, options.backlog_bytes, self.viewers, self._changed.set)
        self.clients = Clients(
            options, self.state, self._publisher, self.viewers, self._changed.set, self._enter
        )
        self._token = secrets.token_urlsafe(32)
        self._server: Server | None = None
        self._silent: list[int] = []
        self._limits = connection_limits()
        self._half_open = HalfOpen(lambda: self._limits.half_open, self._crowded)
        self.log = MinuteLog(lambda line: print(f"megalens hub: {line}", file=sys.stderr, flush=True))
        self._done_since: float | None = None
        self._touched = time.monotonic()
        self._closed = False

    async def start(self) -> HubEntry:
        """Open the port, begin the recording and write the runtime file; raises ``HubError``."""
        options = self.options
        made = partial(BatchConnection, half_open=self._half_open)
        try:
            self._server = await serve(
                self.clients.serve,
                options.host,
                options.port,
                process_request=check_upgrade(
                    self._token, lambda: self._limits.sessions - len(self.clients), self.log.count
                ),
                select_subprotocol=select_subprotocol,
                compression=None,
                max_size=_PRODUCER_BYTES,
                # A training process that is stopped in a debugger, or a tab that sleeps, is still there.
                ping_timeout=None,
                close_timeout=10,
                server_header=None,
                open_timeout=options.join_seconds,
                backlog=self._limits.backlog,
                create_connection=cast("type[ServerConnection]", made),
            )
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise HubError(
                f"Could not listen on {options.host}:{options.port}: {reason}. Choose another --port, or 0 "
                "for any free one."
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
            node=node_name(),
            namespaces=own_namespaces(),
        )
        try:
            if folder and self.state.before is not None:
                set_aside(folder, self.state.before, options.first_step)
            if folder:
                self._publisher.recorder = Recorder(
                    folder,
                    self.state.description(),
                    _RECORDER_BYTES,
                    limit_bytes=options.record_bytes,
                    mode=options.record_mode,
                    resumes=options.resume is not None,
                )
            remove_dead_entries()
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
                    # Whatever it is, rows go on to viewers and the recording; a recording that ends is the
                    # worse loss.
                    self.state.warn(
                        f"The hub met an error of its own: {shown_text(repr(error), 200)}. Please report it."
                    )
                await asyncio.wait([waiter], timeout=0.1 if self._changed.is_set() else 0.25)
        finally:
            waiter.cancel()
            await self.stop()

    def _look_after(self) -> None:
        """Notice who is gone, and send and write what is due."""
        self._watch()
        self._publisher.record_warnings("hub", list(self.state.warnings))
        if self.clients.broadcaster.tick(changed=self._changed.is_set()):
            self._changed.clear()
        self._publisher.describe_if_due()

    async def stop(self) -> None:
        """Send shutdown messages, close the recording, remove the runtime file. Safe twice."""
        if self._closed:
            return
        self._closed = True
        if self.entry:
            remove_entry(self.entry)
        await self.clients.shut_down()
        if self._server:
            self._server.close(code=1001)
            self._half_open.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 3)
        self._publisher.close_recording()
        if self._publisher.closing:
            await self._publisher.closing
        self.log.flush()

    def _over(self) -> bool:
        if not self.state.done or self.viewers or not self._publisher.recorded:
            return False
        quiet_since = max(self.clients.last_viewer_left, self._done_since or 0)
        return time.monotonic() - quiet_since >= self.options.linger

    def _watch(self) -> None:
        """Notice what no message reports: a parent that is gone, producers that are done."""
        self.log.tick()
        parent = self.options.parent_pid
        if parent is not None and self.state.state == "waiting" and not _process_runs(parent):
            self.state.give_up()
            self._changed.set()
        recorder = self._publisher.recorder
        if recorder and recorder.state == "on" and recorder.message:
            # It was interrupted, or gives up old steps, which the state alone does not tell.
            self.state.warn(recorder.message)
        for text in recorder.sentences if recorder else ():
            self.state.warn(text)
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
            self._publisher.close_recording()

    def _enter(self, name: str, ended: float | None) -> None:
        """Bring the runtime file up to date: it is all that a list of runs knows of this one."""
        if self._closed or self.entry is None:
            return
        if (self.entry.name, self.entry.ended) == (name, ended) and entry_path(self.entry).exists():
            if time.monotonic() - self._touched > TOUCH_SECONDS:
                self._touched = time.monotonic()
                touch_entry(self.entry)
            return
        # The file may be gone, with its folder: systemd removes it when its user logs out.
        self.entry = replace(self.entry, name=name, ended=ended)
        with contextlib.suppress(HubError):
            write_entry(self.entry)

    def _crowded(self) -> None:
        self.log.count("connections that said nothing and were cut off to let others in")
        self.state.warn(
            "Some program opens connections to this run's hub without the token, more than it answers. "
            "They are cut off; nothing of the run is lost."
        )


def keep_freed_memory() -> None:
    """Let this process reuse the memory of one frame for the next, where its C library is glibc.

    By itself glibc gives large blocks back to the system as soon as they are free and fetches them anew: some
    hundred page faults for each frame of a few hundred kB, which cost more than all else that the hub does
    with it. Now blocks of up to 32 MiB stay in the heap, and up to 64 MiB of free memory at its end stay with
    the process.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        # 32 MiB is the most that glibc takes for blocks that it does not map one by one.
        for parameter, value in (
            (_MMAP_THRESHOLD, 32 * _MIB),
            (_TRIM_THRESHOLD, 64 * _MIB),
            (_TOP_PAD, 4 * _MIB),
        ):
            mallopt(parameter, value)


def _process_runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
