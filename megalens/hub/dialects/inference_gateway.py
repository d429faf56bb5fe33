"""Serving a run of ours that writes text to clients of an inference hub."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from ...protocol import EMBEDDING, Frame, MegalensError, ProtocolError, compressor_from_setting, decode_frame
from ...protocol.errors import must_be
from ...protocol.messages_generated import Cancel, Configure, FlagInfo, FlagSetting, Generate, Message, Phase
from ..background import BackgroundTask
from ..discovery import HubEntry
from .client_generate import ClientGeneration, TensorKey, WrittenPass, WrittenPasses, read_generate
from .dialect import DialectError
from .generation_writer import GenerationWriter
from .hub_gateway import LOOPBACK, GatewayClient, HubGateway, address_of, error_text, refusal_text

_MOST_WAITING = 4
_PHASES: list[Phase] = ["generate"]
_TRAIN: list[Phase] = ["train"]

_STREAMS = ("generations", "tokens", "tensors")
_MOST_WAITING_BYTES = 256 << 20
_TENSOR_SECONDS = 2.0
_LARGE_VALUES = 1 << 16
_LOST_TOKENS = "Tokens are missing: this machine could not take them as fast as they came."


class ServedInference:
    """Serves a live run in MegatronApp's dialect of inference, in a thread of its own, until it is closed, or
    the run ends; as a context manager it closes itself.

    Parameters
    ----------
    entry : HubEntry
        The run's hub.
    port : int
        Port; 0 takes any free one.
    host : str
        Address or name under which clients find this machine.

    Attributes
    ----------
    address : str
        Where clients connect to.

    Raises
    ------
    DialectError
        ``bad-parameter`` when the port is in use, ``unreachable`` when the hub is.
    """

    def __init__(self, entry: HubEntry, port: int = 5000, host: str = LOOPBACK) -> None:
        self._task = BackgroundTask(InferenceGateway(entry, port, host=host).run, "megalens-inference")
        try:
            self.address = address_of(host, self._task.ready())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Serve no more. Safe twice."""
        self._task.close()

    def __enter__(self) -> ServedInference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ClientTurn:
    """Takes frames of our hub during one generation, and makes messages for the client.

    ``parts`` are the names of the parts of each flag that is sent, ``traced`` the layers of which it comes,
    and ``put`` takes a message.
    """

    def __init__(
        self,
        asked: ClientGeneration,
        layers: int,
        parts: Mapping[str, Sequence[str]],
        traced: Mapping[str, Sequence[int]],
        put: Callable[[str], None],
    ) -> None:
        self._put = put
        self._writer = GenerationWriter(asked, layers, parts)
        self._expected: list[TensorKey] = [
            (layer, flag, part)
            for flag in asked.tiles
            for layer in traced[flag]
            if layer != EMBEDDING
            for part in parts[flag]
        ]
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._bytes = 0
        self._lost = False

    def offer(self, frame: Frame) -> None:
        """Queue a frame until it is read. Never waits."""
        if frame.stream not in _STREAMS:
            return
        size = len(frame.body)
        if self._bytes + size > _MOST_WAITING_BYTES and frame.stream == "tensors":
            self._lost = True
            return
        self._bytes += size
        self._frames.put_nowait(frame)

    async def run(self, generation: int) -> None:
        """Send everything of a generation, from ``start`` to ``finish``.

        Raises ``DialectError`` (``refused``) when the generation did not finish, with the text for the
        client.
        """
        passes = WrittenPasses(generation, self._expected)
        started = False
        while not passes.done:
            late = await self._take(passes)
            if passes.started and not started:
                started = True
                self._put(self._writer.start(passes.prompts, passes.padded))
            if passes.ended and passes.state != "finished":
                why = passes.message or "It was cancelled."
                raise DialectError("refused", f"The generation did not finish. {why}")
            for done in passes.complete(give_up=late):
                await self._send(done)
        if not started:
            raise DialectError("refused", _LOST_TOKENS)
        for text in self._writer.projection():
            self._put(text)
        for sentence in self._sentences(passes):
            self._put(error_text(sentence))
        self._put(self._writer.finish())

    def _sentences(self, passes: WrittenPasses) -> Iterator[str]:
        """Yield what the client must know of what it was not sent."""
        yield from self._writer.left_out.values()
        if passes.broken:
            yield _LOST_TOKENS
        missing = {flag for _, flag, _ in passes.missing} - self._writer.left_out.keys()
        if missing or self._lost:
            yield f"Not everything came of {', '.join(sorted(missing)) or 'some tensors'}."

    async def _take(self, passes: WrittenPasses) -> bool:
        """Take the next frame; return whether none came for as long as tensors are waited for."""
        try:
            # Not wait_for, which takes no notice of being cancelled when a frame is there at the same moment.
            async with asyncio.timeout(_TENSOR_SECONDS if passes.started else None):
                frame = await self._frames.get()
        except TimeoutError:
            return True
        self._bytes -= len(frame.body)
        passes.take(frame.stream, frame.table())
        return False

    async def _send(self, done: WrittenPass) -> None:
        size = sum(values.size for values in done.tensors.values())
        if size > _LARGE_VALUES:
            # The other clients are answered meanwhile.
            texts = await asyncio.to_thread(lambda: list(self._writer.updates(done)))
        else:
            texts = list(self._writer.updates(done))
        for text in texts:
            self._put(text)
        await asyncio.sleep(0)


class InferenceGateway(HubGateway):
    """Serves one hub's run in MegatronApp's dialect of inference.

    Whoever runs it allows this machine's clients to generate, to switch flags on and to perturb. Generations
    are done one at a time, as there; what is asked meanwhile waits. A client that goes takes its generations
    with it.
    """

    peer = "inference client"

    def __init__(
        self, entry: HubEntry, port: int, *, host: str = LOOPBACK, queue_bytes: int = 64 << 20
    ) -> None:
        super().__init__(entry, port, host, queue_bytes)
        self._requests: dict[GatewayClient, asyncio.Queue[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self._turn = asyncio.Lock()
        self._now: ClientTurn | None = None
        self._cancelling: set[asyncio.Task[None]] = set()

    # -- the hub's side --------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while (item := await self._hub.read()) is not None:
            if isinstance(item, bytes):
                if self._now is not None:
                    self._now.offer(decode_frame(item))
                continue
            key = item.get("reply_to") if item["type"] == "error" else item.get("id")
            answer = self._answers.pop(key, None) if isinstance(key, str) else None
            if answer is not None and not answer.done():
                answer.set_result(item)

    async def _ask(self, message: Configure | Generate) -> Message:
        """Return the hub's answer; raises ``DialectError`` (``refused``) with its reason."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[message["id"]] = answer
        await self._hub.say(message)
        item = await asyncio.shield(answer)
        if item["type"] == "error":
            raise DialectError("refused", item["message"])
        return item

    def _id(self) -> str:
        return f"inference-{next(self._numbers)}"

    # -- the clients' side -----------------------------------------------------------------------------------

    def _work(self, client: GatewayClient) -> list[Coroutine[Any, Any, None]]:
        self._requests[client] = asyncio.Queue(_MOST_WAITING)
        return [self._write(client, self._requests[client])]

    def _forget(self, client: GatewayClient) -> None:
        del self._requests[client]

    async def _take(self, client: GatewayClient, message: dict[str, Any]) -> None:
        requests = self._requests[client]
        if message["type"] != "generate":
            client.put(error_text(f"The type must be generate or ping, got {message['type']!r:.100}."))
        elif requests.full():
            client.put(
                error_text(f"{_MOST_WAITING} generations wait already. Ask again when some have ended.")
            )
        else:
            requests.put_nowait(message)

    async def _write(self, client: GatewayClient, requests: asyncio.Queue[dict[str, Any]]) -> None:
        while True:
            message = await requests.get()
            try:
                asked = read_generate(message)
                async with self._turn:
                    await self._generate(client, asked)
            except ProtocolError as error:
                client.put(refusal_text(error))
            except MegalensError as error:
                client.put(error_text(str(error)))

    async def _generate(self, client: GatewayClient, asked: ClientGeneration) -> None:
        model = self._hub.hello["model"]
        if model is None:
            raise DialectError(
                "refused", "No process that could write text is attached. Try again when one is."
            )
        known: dict[str, FlagInfo] = {}
        patch: dict[str, FlagSetting | None] = {}
        for flag in list(asked.tiles):
            info = self._traced(client, flag)
            if info is None:
                del asked.tiles[flag]
                continue
            known[flag] = info
            setting = self._setting(asked, info)
            if setting is not None:
                patch[flag] = setting
        turn = ClientTurn(
            asked,
            model["layers"],
            parts={flag: known[flag]["parts"] for flag in asked.tiles},
            traced={flag: known[flag]["layers"] for flag in asked.tiles},
            put=client.put,
        )
        if patch:
            await self._ask({"type": "configure", "id": self._id(), "patch": {"flags": patch}})
        # Rows may come before the answer does.
        self._now = turn
        asking = asyncio.create_task(
            self._ask({"type": "generate", "id": self._id(), "request": asked.request})
        )
        ended = False
        try:
            answer = await asyncio.shield(asking)
            assert answer["type"] == "generating"
            await turn.run(answer["generation"])
            ended = True
        finally:
            self._now = None
            if not ended:
                asking.add_done_callback(self._cancel)

    def _setting(self, asked: ClientGeneration, info: FlagInfo) -> FlagSetting | None:
        """Return how a flag is to be traced, or None where it is already."""
        flag, parts = info["name"], len(info["parts"])
        if 0 < asked.tiles[flag] < parts:
            # Such as the gate of an MLP, and what it gates.
            raise must_be(f"The pixels of {flag}", f"{parts} or more", asked.tiles[flag], "compressor_config")
        wanted = asked.compressor(flag, parts)
        now = self._hub.hello["config"]["flags"].get(flag)
        if now is None:
            return {"phases": _PHASES, "samples": None, "compressor": wanted}
        phases = now.get("phases") or _TRAIN
        everything = now.get("layers", "all") == "all" and now.get("every", 1) == 1
        everything = everything and now.get("samples", 1) is None and "generate" in phases
        if everything and compressor_from_setting(now["compressor"]) == compressor_from_setting(wanted):
            return None
        # What others trace in a training goes on to be traced.
        setting: FlagSetting = {**now, "layers": "all", "every": 1, "samples": None, "compressor": wanted}
        if "generate" not in phases:
            setting["phases"] = [*phases, *_PHASES]
        return setting

    def _cancel(self, asking: asyncio.Task[Message]) -> None:
        """Cancel the generation of a client that is gone."""
        if asking.cancelled() or asking.exception() is not None:
            return
        answer = asking.result()
        assert answer["type"] == "generating"
        for number in {answer.get("control", 0), answer["generation"]} - {0}:
            task = asyncio.create_task(self._say_cancel(number))
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)

    async def _say_cancel(self, number: int) -> None:
        cancel: Cancel = {"type": "cancel", "id": self._id(), "generation": number}
        await self._hub.say(cancel)
