"""A foreign hub's run as a run of ours: reads the one, sends to the other."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ...protocol import EMBEDDING, ProtocolError, compressor_infos, shown_text
from ...protocol.messages_generated import Announce, Config, ConfigPatch, FlagInfo, Status
from ...protocol.version import own_version
from ..options import HubOptions
from ..terminal import run_shown, silence_websockets
from .dialect import Dialect, DialectError, Translation
from .hosted_run import HostedRun
from .peer_message import MOST_BYTES, BadMessage, TensorRow, detect, open_peer, read_message
from .peer_rows import LeftOut, NumberedRow, PeerRows, note_table, tensors_table

_RETRY_SECONDS = 0.5
_FLUSH_SECONDS = 0.2
_STATUS_SECONDS = 1.0
_SILENT_SECONDS = 30.0
_FRAME_BYTES = 8 << 20
_LARGE_TEXT = 256 * 1024

_WAITING = "The peer has not said yet how many layers its model has."


def announcement(name: str, dialect: Dialect | None, *, layers: int, config: Config) -> Announce:
    """Return the ``announce`` message; ``layers`` is 0 while unknown."""
    flags: list[FlagInfo] = []
    for flag, facts in (dialect.flags if dialect else {}).items():
        there = list(range(layers)) if layers and not facts.never else []
        if flag == "InputTokens" and there:
            there = [EMBEDDING]
        info: FlagInfo = {
            "name": flag,
            "title": facts.title,
            "layers": there,
            "parts": list(facts.parts),
            "axes": list(facts.axes),
            "bytes_per_layer": None,
        }
        if not there:
            info["reason"] = facts.never or _WAITING
        flags.append(info)
    return {
        "type": "announce",
        "rank": 0,
        "run_name": name[:200],
        "model": {"name": "model of a foreign hub", "layers": layers},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": flags,
        "compressors": compressor_infos(),
        "config": config,
        "versions": {"megalens": own_version()},
        "origin": {
            "kind": "foreign",
            "name": dialect.name if dialect else "not known yet",
            "steps": "inferred",
        },
    }


class Translator:
    """Follows one foreign hub until it ends."""

    def __init__(self, plan: Translation) -> None:
        self._plan = plan
        self._host: HostedRun | None = None
        self._announced_layers = 0
        self._left_out = LeftOut()
        self._peer = PeerRows(plan.dialect, plan, self._left_out) if plan.dialect is not None else None
        self._rows: list[NumberedRow] = []
        self._waiting_bytes = 0
        self._requests = 0
        self._done = False
        self._last_end = self._end = self.failure = ""
        self._began = self._heard = time.monotonic()
        self.step = 0
        self.sent_rows = 0
        self.text: list[str] = []

    @property
    def _started(self) -> bool:
        return self._peer is not None and self._peer.started

    @property
    def _generates(self) -> bool:
        return self._peer is not None and self._peer.dialect.generates

    # -- what is reported ------------------------------------------------------------------------------------

    def line(self) -> str:
        """Return one line of progress."""
        left_out = f" · {self._left_out.rows} left out" if self._left_out.rows else ""
        if self.step:
            return f"step {self.step} (inferred) · {self.sent_rows} rows{left_out}"
        return f"{self._waiting()}{left_out}"

    def sentences(self) -> list[str]:
        """Return what the person must know: what was left out, and what else is not as it should be."""
        sentences = self._left_out.sentences()
        quiet = time.monotonic() - self._heard
        if not self.step and not self._done:
            sentences.append(self._waiting())
        elif quiet > _SILENT_SECONDS and not self._done:
            sentences.append(
                f"The peer has sent nothing for {quiet:.0f} s. It sends to one connection only: another "
                "client may have taken the place of this one."
            )
        if self._peer is not None:
            sentences += self._peer.sentences(ended=self._done)
        if self._end and self._end not in sentences:
            sentences.append(self._end)
        return sentences[-20:]

    def _waiting(self) -> str:
        seconds = time.monotonic() - self._began
        what = "for the peer's first tensors" if self._started else "for the peer to start"
        if not self._requests:
            what = f"for {self._plan.address}"
        return f"Waiting {what} for {seconds:.0f} s."

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self, host: HostedRun) -> None:
        """Translate until the peer ends, or ``most_steps`` are there.

        Raises ``DialectError`` when the peer cannot be reached, refuses, or speaks another dialect. Rows that
        came before are with the hub.
        """
        self._host = host
        await self._announce()
        reporting = asyncio.create_task(self._report_regularly())
        try:
            await self._follow()
            self._end_generation("cancelled", self._end)
        except DialectError as error:
            self._end = self.failure = error.message
            self._end_generation("failed", error.message)
            raise
        finally:
            self._end_generation("cancelled")
            reporting.cancel()
            await asyncio.wait([reporting])
            self._done = True
            await self._flush()
            await self._send_status()
            await self._leave_note()

    async def configure(self, change: str, patch: ConfigPatch) -> None:
        """Take a viewer's change."""
        assert self._host is not None
        if self._peer is None:
            raise ProtocolError("refused", "The peer is not known yet. Try again when it has started.")
        if self._generates:
            raise ProtocolError("refused", "An inference hub reads its configuration when generation starts.")
        after = self._peer.standing.plan(change, patch)
        await self._host.say(
            {
                "type": "configured",
                "id": change,
                "applied": False,
                "step": self.step + 1,
                "config": after,
            }
        )

    async def _follow(self) -> None:
        heard_at = time.monotonic()
        while not self._done:
            connection = await open_peer(self._plan.address)
            if connection is None:
                if time.monotonic() - heard_at < self._plan.wait_seconds:
                    await self._pause(heard_at)
                    continue
                if self.step or self._started:
                    self._end = f"The peer went away after step {self.step} and did not come back."
                    return
                raise DialectError(
                    "unreachable",
                    f"No hub could be reached at {self._plan.address} within {self._plan.wait_seconds:g} "
                    "s. Check the address and that the training runs.",
                )
            before = self._heard
            try:
                await self._talk(connection)
            except ConnectionClosed as end:
                self._broke(end)
            finally:
                await connection.close()
            if self._heard > before:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at >= self._plan.wait_seconds and not self._done:
                raise DialectError(
                    "dialect",
                    f"{self._plan.address} takes connections and ends them without a word "
                    f"({self._last_end}).",
                )
            if not self._done:
                await self._pause(heard_at)

    async def _pause(self, heard_at: float) -> None:
        """Wait before the next attempt, no longer than the peer is waited for."""
        left = heard_at + self._plan.wait_seconds - time.monotonic()
        # At least a little: a peer that ends every connection is not asked without a pause.
        await asyncio.sleep(min(_RETRY_SECONDS, max(left, 0.01)))

    async def _talk(self, connection: ClientConnection) -> None:
        if self._peer is None:
            dialect, others = await detect(connection)
            self._peer = PeerRows(dialect, self._plan, self._left_out)
            await self._announce()
            for data in others:
                await self._take(data)
        await self._ask(connection, self._peer)
        while not self._done:
            await self._take(await connection.recv())

    async def _ask(self, connection: ClientConnection, peer: PeerRows) -> None:
        if self._requests:
            peer.interrupt()
            self._left_out.note(
                "The connection to the peer broke and was made again; what it sent meanwhile is lost and "
                "not counted."
            )
        if peer.started and not peer.dialect.claims:
            return
        if self._requests >= peer.dialect.most_requests:
            self._left_out.note(
                f"The peer was asked to start {self._requests} times and must not be asked again."
            )
            return
        request = peer.request
        if peer.dialect.generates:
            if self._requests:
                raise DialectError("refused", "The connection broke before the generation was done.")
            request = {
                "type": "generate",
                "prompts": list(self._plan.prompts),
                "tokens_to_generate": self._plan.tokens,
                **request,
            }
        else:
            request = {"type": "run_training_step", **request}
        self._requests += 1
        if peer.generation is not None:
            peer.generation.ask()
        await connection.send(json.dumps(request))

    def _broke(self, end: ConnectionClosed) -> None:
        close = end.rcvd or end.sent
        code, reason = (close.code, close.reason) if close else (1006, "")
        why = f"close {code}{f' ({reason[:100]})' if reason else ''}"
        if end.sent is not None and end.sent.code == 1009:
            self._left_out.leave_out(f"messages larger than {MOST_BYTES >> 20} MiB")
        if self._generates:
            hint = " Such a hub ends so on a request that it does not expect." if code == 1011 else ""
            raise DialectError("refused", f"The peer ended the generation: {why}.{hint}")
        self._last_end = why
        if code not in (1000, 1001):
            self._left_out.note(f"The connection ended with {why}.")

    # -- what comes ------------------------------------------------------------------------------------------

    async def _take(self, data: str | bytes) -> None:
        assert self._peer is not None
        self._heard = time.monotonic()
        try:
            if len(data) > _LARGE_TEXT:
                # The hub goes on meanwhile.
                message = await asyncio.to_thread(read_message, data)
            else:
                message = read_message(data)
            kind = message["type"]
            if kind == "update":
                await self._put(self._peer.update(message))
            elif kind == "start":
                rows = self._peer.start(message)
                await self._announce()
                await self._put(rows)
            elif kind == "finish" and self._generates:
                texts = message.get("text")
                texts = texts if isinstance(texts, list) else []
                self.text = [shown_text(text) for text in texts if isinstance(text, str)]
                self._end_generation("finished")
                self._done = True
            elif kind == "error":
                self._left_out.note(f"The peer says: {str(message.get('message'))[:300]}")
            elif kind != "pong":
                self._left_out.leave_out(f"messages of the type {kind[:30]!r}", lost=False)
        except BadMessage as bad:
            if isinstance(data, str) and not data.lstrip().startswith(("{", "[")):
                self._note_plain_text(data)
            self._left_out.leave_out(str(bad))

    def _end_generation(self, state: str, message: str = "") -> None:
        if self._peer is not None and self._peer.generation is not None:
            self._peer.generation.end(state, self.step, message)

    def _note_plain_text(self, text: str) -> None:
        """Note an error that a peer sent as plain text."""
        if self._generates:
            raise DialectError("refused", f"The peer refused the request: {text[:300]}")
        self._left_out.note(f"The peer says: {text[:200]}")

    async def _put(self, rows: list[tuple[TensorRow, int, int]]) -> None:
        """Queue rows that came for the next frame."""
        assert self._peer is not None
        self._done = self._done or self._peer.done
        for row, step, micro_batch in rows:
            if step > self.step:
                await self._begin(step)
            numbered = self._peer.numbered(row, step, micro_batch)
            if numbered is not None:
                self._rows.append(numbered)
                self._waiting_bytes += numbered.row.values.nbytes
        generation = self._peer.generation
        if generation is not None and generation.step > self.step:
            await self._begin(generation.step)
        if self._waiting_bytes > _FRAME_BYTES:
            await self._flush()

    async def _begin(self, step: int) -> None:
        assert self._peer is not None
        assert self._host is not None
        await self._flush()
        self.step = step
        for change, after in self._peer.standing.apply(step):
            await self._host.say(
                {"type": "configured", "id": change, "applied": True, "step": step, "config": after}
            )

    # -- what goes -------------------------------------------------------------------------------------------

    async def _announce(self) -> None:
        assert self._host is not None
        peer = self._peer
        layers = self._announced_layers = peer.layers if peer is not None else 0
        await self._host.say(
            announcement(
                self._plan.name,
                peer.dialect if peer is not None else None,
                layers=layers,
                config=peer.standing.config if peer is not None else {"flags": {}},
            )
        )

    async def _flush(self) -> None:
        assert self._host is not None
        if self._peer is not None and self._peer.layers > self._announced_layers:
            await self._announce()
        rows, self._rows, self._waiting_bytes = self._rows, [], 0
        if rows:
            self.sent_rows += len(rows)
            await self._host.send("tensors", tensors_table(rows), max(row.step for row in rows))
        if self._peer is not None and self._peer.generation is not None:
            for stream, table in self._peer.generation.tables():
                self.sent_rows += table.num_rows
                await self._host.send(stream, table, self.step)

    async def _report_regularly(self) -> None:
        reported = 0.0
        while True:
            await self._flush()
            if time.monotonic() - reported >= _STATUS_SECONDS:
                reported = time.monotonic()
                await self._send_status()
            await asyncio.sleep(_FLUSH_SECONDS)

    async def _send_status(self) -> None:
        assert self._host is not None
        status: Status = {
            "type": "status",
            "state": "training" if self.step else "idle",
            "step": self.step,
            "dropped": {"producer": self._left_out.rows, "viewer": 0, "recorder": 0},
        }
        sentences = self.sentences()
        if sentences:
            status["warnings"] = [sentence[:500] for sentence in sentences]
        await self._host.say(status)

    async def _leave_note(self) -> None:
        """Record what the recording lacks, and that the peer went away or failed."""
        assert self._host is not None
        sentences = [sentence for sentence in self.sentences() if sentence != self._end]
        for action, detail in (("drop", {"warnings": sentences}), ("end", {"reason": self._end})):
            if any(detail.values()):
                table = note_table(self.step, f"translation of {self._plan.address}", action, detail)
                await self._host.send("audit", table, self.step)


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
    silence_websockets()
    translator = Translator(plan)
    options = HubOptions(name=plan.name, record=record, record_mode=record_mode, linger=linger)
    async with HostedRun(options, f"translation of {plan.address}"[:200], translator.configure) as host:
        print(f"run {host.entry.id}", flush=True)
        if record is not None:
            print(shown_text(f"recorded in {host.entry.record}"), flush=True)
        try:
            stopped = await run_shown(
                _translate(translator, host, record is None),
                translator.line,
                stdin_closed if until_stdin_closes else None,
            )
        finally:
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
