"""A recorded run, served as if it were live: same rows, order and steps, by a real hub. Needs no torch."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...protocol import shown_text
from ...runs import RunFolder
from ..background import BackgroundTask
from ..dialects.hosted_run import HostedRun
from ..discovery import HubEntry
from ..options import HubOptions
from ..terminal import run_shown, silence_websockets
from .replayer import Replayer

__all__ = ["Replay", "Replayer", "play", "serve"]

_FOREVER = 1e9


async def play(
    folder: str, speed: float | None, *, loop: bool, first: int | None, wait_for_viewer: bool, linger: float
) -> None:
    """Replay a folder to its end, or until somebody asks to stop; raises ``ClientError`` or ``HubError``."""
    silence_websockets()
    recording = RunFolder(folder)
    replayer = Replayer(recording, speed, loop=loop, first=first, wait_for_viewer=wait_for_viewer)
    options = HubOptions(name=recording.name[:200], linger=linger)
    async with HostedRun(options, "replay", replayer.configure) as host:
        print(f"run {host.entry.id}", flush=True)
        await run_shown(_all(replayer, host), replayer.line)
        print(shown_text(replayer.line()), flush=True)


async def _all(replayer: Replayer, host: HostedRun) -> None:
    await replayer.run(host)
    await host.finish()
    await host.linger()


class Replay:
    """A replay in a thread of this process; ``entry`` has its hub's address and token."""

    def __init__(self, entry: HubEntry, sent: threading.Event, fault: list[Exception]) -> None:
        self.entry = entry
        self._sent = sent
        self._fault = fault

    @property
    def id(self) -> str:
        """Run id, which ``megalens.connect`` takes."""
        return self.entry.id

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until every row is with the hub; raises ``TimeoutError``, or ``ClientError``."""
        if not self._sent.wait(timeout):
            raise TimeoutError(f"The replay was not at its end after {timeout:g} s.")
        if self._fault:
            raise self._fault[0]


@contextmanager
def serve(
    folder: str | os.PathLike[str],
    speed: float | None = None,
    *,
    loop: bool = False,
    first: int | None = None,
    wait_for_viewer: bool = False,
) -> Iterator[Replay]:
    """Serve a recorded run by a hub of its own until the block ends.

    Parameters
    ----------
    folder : str or path
        The run folder.
    speed : float, optional
        Relative to the time when it was recorded; as fast as possible when absent or 0.
    loop, first, wait_for_viewer
        As for :class:`Replayer`.

    Raises
    ------
    ClientError, HubError
        When the folder cannot be read, or the hub cannot be started.
    """
    recording = RunFolder(folder)
    # Wrong arguments raise here, not in the thread.
    Replayer(recording, speed, first=first)
    sent = threading.Event()
    fault: list[Exception] = []

    async def replay(ready: Callable[[HubEntry], None]) -> None:
        replayer = Replayer(recording, speed, loop=loop, first=first, wait_for_viewer=wait_for_viewer)
        options = HubOptions(name=recording.name[:200], linger=_FOREVER)
        try:
            async with HostedRun(options, "replay", replayer.configure) as host:
                ready(host.entry)
                try:
                    await replayer.run(host)
                except Exception as error:
                    fault.append(error)
                await host.finish()
                sent.set()
                # Until the block ends.
                await asyncio.Event().wait()
        finally:
            sent.set()

    task = BackgroundTask(replay, "megalens-replay")
    try:
        yield Replay(task.ready(), sent, fault)
    finally:
        task.close()
