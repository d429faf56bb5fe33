"""Follows a foreign hub from the command line: the translation, its hub, the progress."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from ...protocol import shown_text
from ..options import HubOptions
from ..terminal import ask_to_stop, show_line
from .dialect import Translation
from .hosted_run import HostedRun
from .translator import Translator


async def follow(
    plan: Translation,
    *,
    record: Path | None,
    linger: float,
    until_stdin_closes: bool,
    record_mode: int | None = None,
) -> None:
    """Translate until the peer ends or somebody asks to stop, and close the recording.

    ``linger`` is, without a recording, how long viewers find the finished run. Raises ``DialectError``,
    ``HubError`` or ``ProtocolError``; a recording that began is closed.
    """
    # What websockets logs about a peer's faults is in the status.
    logging.getLogger("websockets").addHandler(logging.NullHandler())
    logging.getLogger("websockets").propagate = False
    translator = Translator(plan)
    options = HubOptions(name=plan.name, record=record, record_mode=record_mode, linger=linger)
    async with HostedRun(options, f"translation of {plan.address}"[:200], translator.configure) as host:
        print(f"run {host.entry.id}", flush=True)
        if record is not None:
            print(shown_text(f"recorded in {host.entry.record}"), flush=True)
        showing = asyncio.create_task(show_line(translator.line))
        try:
            stopped = await ask_to_stop(
                _translate(translator, host, record is None),
                stdin_closed if until_stdin_closes else None,
            )
        finally:
            showing.cancel()
            await asyncio.wait([showing])
            _sum_up(translator)
        if stopped:
            await host.finish()


async def _translate(translator: Translator, host: HostedRun, linger: bool) -> None:
    try:
        await translator.run(host)
    finally:
        await host.finish()
    if linger:
        await host.linger()


def _sum_up(translator: Translator) -> None:
    for sentence in translator.sentences():
        # Why it failed is what the command ends with.
        if sentence != translator.failure:
            print(shown_text(sentence), file=sys.stderr)
    for text in translator.text:
        print(shown_text(text))
    print(f"{translator.step} steps (inferred), {translator.sent_rows} rows", flush=True)


async def stdin_closed() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass
