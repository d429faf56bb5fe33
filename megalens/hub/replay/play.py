"""Replaying from the command line: the replay, its hub, the progress."""

from __future__ import annotations

import asyncio
import logging

from ...protocol import shown_text
from ...runs import RunFolder
from ..dialects.hosted_run import HostedRun
from ..options import HubOptions
from ..terminal import ask_to_stop, show_line
from .replayer import Replayer

__all__ = ["play"]


async def play(
    folder: str, speed: float | None, *, loop: bool, first: int | None, wait_for_viewer: bool, linger: float
) -> None:
    """Replay a folder until its end, or until somebody asks to stop.

    Raises
    ------
    ClientError, HubError
        What stands in the way.
    """
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
