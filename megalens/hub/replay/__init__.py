"""A recorded run, served as if it were live: same rows, order and steps, by a real hub. Needs no torch."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...protocol import shown_text
from ...runs import RunFolder
from ..dialects.hosted_run import HostedRun
from ..discovery import HubEntry
from ..options import HubOptions
from ..terminal import ask_to_stop, show_line
from .replayer import Replayer

__all__ = ["Replay", "Replayer", "play", "serve"]

_FOREVER = 1e9


async def play(
    folder: str, speed: float | None, *, loop: bool, first: int | None, wait_for_viewer: bool, linger: float
) -> None:
    """Replay a folder to its end, or until somebody asks to stop; raises ``ClientError`` or ``HubError``."""
    logging.getLogger("websockets").addHandler(logging.NullHandler())
    logging.getLogger("websockets").propagate = False
    recording = RunFolder(folder)
    replayer = Replayer(recording, speed, loop=loop, first=first, wait_for_viewer=wait_for_viewer)
    options = HubOptions(name=recording.name[:200], linger=linger)
    async with HostedRun(options, "replay", replayer.configure) as host:
        print(f"run {host.entry.id}", flush=True)
        showing = asyncio.create_task(show_line(replayer.line))
        try:
            await ask_to_stop(_all(replayer, host))
        finally:
            showing.cancel()
            await asyncio.wait([showing])
        print(shown_text(replayer.line()), flush=True)


async def _all(replayer: Replayer, host: HostedRun) -> None:
    await replayer.run(host)
    await host.finish()
    await host.linger()


class Replay:
    """A replay in a thread of this process; ``entry`` has its hub's address and token."""

    def __init__(self, entry: HubEntry, sent: threading.Event, fault: list[BaseException]) -> None:
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
    ready, sent, over = threading.Event(), threading.Event(), asyncio.Event()
    known: list[tuple[HubEntry, asyncio.AbstractEventLoop]] = []
    fault: list[BaseException] = []

    async def replay() -> None:
        replayer = Replayer(recording, speed, loop=loop, first=first, wait_for_viewer=wait_for_viewer)
        options = HubOptions(name=recording.name[:200], linger=_FOREVER)
        async with HostedRun(options, "replay", replayer.configure) as host:
            known.append((host.entry, asyncio.get_running_loop()))
            ready.set()
            sending = asyncio.create_task(replayer.run(host))
            ending = asyncio.create_task(over.wait())
            await asyncio.wait([sending, ending], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                if (error := sending.exception()) is not None:
                    fault.append(error)
                await host.finish()
                sent.set()
                await ending
            else:
                sending.cancel()
                await asyncio.wait([sending])

    def work() -> None:
        try:
            asyncio.run(replay())
        except BaseException as error:
            fault.append(error)
        finally:
            ready.set()
            sent.set()

    thread = threading.Thread(target=work, name="megalens-replay", daemon=True)
    thread.start()
    ready.wait()
    if not known:
        thread.join()
        raise fault[0]
    entry, running = known[0]
    try:
        yield Replay(entry, sent, fault)
    finally:
        running.call_soon_threadsafe(over.set)
        thread.join()
