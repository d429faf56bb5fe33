"""The baseline to beat: hooks that copy each tensor synchronously and send it as JSON text, one message a tensor."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle
from websockets.sync.client import connect
from websockets.sync.server import Server, ServerConnection, serve

__all__ = ["PeerTracer"]


class PeerTracer:
    """Traces QKV, MLP1 and MLP2 of the demo model the way that exists elsewhere, written small.

    Each hook reduces the tensor to tiles, copies it to the CPU and puts it on an unbounded queue; one thread turns each into a list, the list
    into JSON text, and sends it to the one viewer, which here is a thread that reads and forgets.

    Parameters
    ----------
    model : torch.nn.Module
        The demo's GPT.
    tiles : int
        Tiles over the features.
    samples : int, optional
        Only the first samples of the batch; all of them when absent, as the original does.
    evaluates : bool
        Whether passes in evaluation mode are traced too: those of a model that writes.
    """

    def __init__(
        self, model: nn.Module, tiles: int = 96, samples: int | None = None, *, evaluates: bool = False
    ) -> None:
        self._evaluates = evaluates
        self._tiles = tiles
        self._samples = samples
        self._queue: queue.Queue[tuple[int, int, Tensor] | str | None] = queue.Queue()
        self._connected = threading.Event()
        self._viewer: ServerConnection | None = None
        self._server: Server = serve(self._accept, "127.0.0.1", 0, max_size=None, ping_interval=None)
        port = self._server.socket.getsockname()[1]
        self._threads = [
            threading.Thread(target=self._server.serve_forever, daemon=True),
            threading.Thread(target=self._watch, args=(f"ws://127.0.0.1:{port}",), daemon=True),
            threading.Thread(target=self._send, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if not self._connected.wait(10):
            raise TimeoutError("The baseline's viewer did not connect within 10 s.")
        self._hooks = list(self._install(model))

    @property
    def backlog(self) -> int:
        """Tensors that wait to be sent: the queue has no bound."""
        return self._queue.qsize()

    def say(self, text: str) -> None:
        """Send a message after the tensors that wait."""
        self._queue.put(text)

    def step(self) -> AbstractContextManager[Any]:
        """Do nothing around a step: the hooks do it all."""
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Do nothing around a phase."""
        return nullcontext()

    def log(self, **values: Any) -> None:
        """Drop the values: this way has no scalars."""

    def close(self) -> None:
        """Remove the hooks, throw away what waits, and stop."""
        for hook in self._hooks:
            hook.remove()
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put(None)
        self._threads[2].join(30)
        self._server.shutdown()
        for thread in self._threads[:2]:
            thread.join(10)

    def _install(self, model: nn.Module) -> Iterator[RemovableHandle]:
        for layer, block in enumerate(model.get_submodule("blocks").children(), 1):
            for kind, name in ((1, "attention.qkv"), (4, "mlp.fc1"), (5, "mlp.fc2")):
                yield block.get_submodule(name).register_forward_hook(self._hook(kind, layer))

    def _hook(self, kind: int, layer: int) -> Any:
        def report(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            if not (module.training or self._evaluates):
                return
            with torch.no_grad():
                parts = output[: self._samples].chunk(3, dim=-1) if kind == 1 else (output[: self._samples],)
                for part in parts:
                    self._queue.put((kind, layer, self._tiled(part).to("cpu", copy=True)))

        return report

    def _tiled(self, tensor: Tensor) -> Tensor:
        batch, length, features = tensor.shape
        width = -(-features // self._tiles)
        padded = functional.pad(tensor, (0, -features % width))
        return padded.view(batch, length, -1, width).mean(-1)

    def _send(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, str):
                if self._viewer is not None:
                    self._viewer.send(item)
                continue
            kind, layer, tensor = item
            message = {
                "type": "update",
                "update_type": kind,
                "layer_id": layer,
                "args": list(tensor.shape),
                "result": tensor.flatten().tolist(),
            }
            if self._viewer is not None:
                self._viewer.send(json.dumps(message))

    def _accept(self, viewer: ServerConnection) -> None:
        self._viewer = viewer
        self._connected.set()
        for _ in viewer:
            pass

    def _watch(self, address: str) -> None:
        with connect(address, max_size=None, ping_interval=None) as socket:
            for _ in socket:
                pass
