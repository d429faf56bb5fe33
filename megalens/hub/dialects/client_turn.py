"""One generation of our hub on its way to the client that asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...protocol import EMBEDDING, Frame
from .client_generate import ClientGeneration
from .errors import DialectError
from .gateway_client import error_text
from .generation_writer import GenerationWriter
from .written_passes import TensorKey, WrittenPass, WrittenPasses

__all__ = ["ClientTurn"]

_STREAMS = ("generations", "tokens", "tensors")
_MOST_WAITING = 256 << 20
_TENSOR_SECONDS = 2.0
_LARGE_VALUES = 1 << 16
_LOST_TOKENS = "Tokens are missing: this machine could not take them as fast as they came."


class ClientTurn:
    """Takes frames of our hub, and puts messages for the client.

    Parameters
    ----------
    asked : ClientGeneration
        What it asked for.
    layers : int
        Layers of the model.
    parts : mapping of str to sequence of str
        Names of the parts of each flag that is sent.
    traced : mapping of str to sequence of int
        Layers of which each flag comes.
    put : callable
        Takes a message.
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
        """Keep a frame until it is read. Never waits."""
        if frame.stream not in _STREAMS:
            return
        size = len(frame.body)
        if self._bytes + size > _MOST_WAITING and frame.stream == "tensors":
            self._lost = True
            return
        self._bytes += size
        self._frames.put_nowait(frame)

    async def run(self, generation: int) -> None:
        """Send everything of a generation, from ``start`` to ``finish``.

        Raises
        ------
        DialectError
            ``refused`` when the generation did not finish, with what the client is told.
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
            for done in passes.whole(give_up=late):
                await self._send(done)
        if not started:
            raise DialectError("refused", _LOST_TOKENS)
        for text in self._writer.projection():
            self._put(text)
        for sentence in self._sentences(passes):
            self._put(error_text(sentence))
        self._put(self._writer.finish())

    def _sentences(self, passes: WrittenPasses) -> Iterator[str]:
        """Yield what the client is told of what it was not sent."""
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
