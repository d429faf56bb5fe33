"""The baseline to beat: hooks that copy each tensor synchronously and send it as JSON text, one message a tensor."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle
from websockets.sync.client import connect
from websockets.sync.server import Server, ServerConnection, serve

from megalens.demo.train import Untraced

__all__ = ["GatheringPeer", "PeerTracer"]

TILES = 96


class _Sender:
    """An unbounded queue, of which one thread sends everything as text to the one viewer, which here is a thread that reads and forgets."""

    def __init__(self, text: Callable[[Any], str]) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()
        self.put: Callable[[Any], None] = self._queue.put
        self._text = text
        self._connected = threading.Event()
        self._viewer: ServerConnection | None = None
        self._server: Server = serve(self._accept, "127.0.0.1", 0, max_size=None, ping_interval=None)
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._server.serve_forever, self._watch, self._send)
        ]
        for thread in self._threads:
            thread.start()
        if not self._connected.wait(20):
            raise TimeoutError("The baseline's viewer did not connect within 20 s.")

    def close(self) -> None:
        """Throw away what waits, and stop."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put(None)
        self._threads[2].join(30)
        self._server.shutdown()
        for thread in self._threads[:2]:
            thread.join(10)

    def _send(self) -> None:
        while (item := self._queue.get()) is not None:
            text = self._text(item)
            if self._viewer is not None:
                self._viewer.send(text)

    def _accept(self, viewer: ServerConnection) -> None:
        self._viewer = viewer
        self._connected.set()
        for _ in viewer:
            pass

    def _watch(self) -> None:
        address = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        with connect(address, max_size=None, ping_interval=None) as socket:
            for _ in socket:
                pass


class PeerTracer(Untraced):
    """Traces QKV, MLP1 and MLP2 of the demo model the way that exists elsewhere, written small.

    Each hook reduces the tensor to tiles over the features, copies it to the CPU and puts it on the queue; the sender turns each into a list, and the list into JSON text.

    Parameters
    ----------
    model : torch.nn.Module
        The demo's GPT.
    samples : int, optional
        Only the first samples of the batch; all of them when absent, as the original does.
    evaluates : bool
        Whether passes in evaluation mode are traced too: those of a model that writes.
    """

    def __init__(self, model: nn.Module, samples: int | None = None, *, evaluates: bool = False) -> None:
        self._evaluates = evaluates
        self._samples = samples
        self._sender = _Sender(_text)
        self.say: Callable[[str], None] = self._sender.put
        """Sends a message after the tensors that wait."""
        self._hooks = list(self._install(model))

    def close(self) -> None:
        """Remove the hooks, throw away what waits, and stop."""
        for hook in self._hooks:
            hook.remove()
        self._sender.close()

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
                    self._sender.put((kind, layer, _tiled(part).to("cpu", copy=True)))

        return report


def _text(item: tuple[int, int, Tensor] | str) -> str:
    if isinstance(item, str):
        return item
    kind, layer, tensor = item
    return _update(tensor, update_type=kind, layer_id=layer)


def _update(values: Tensor, **of: Any) -> str:
    return json.dumps(
        {"type": "update", **of, "args": list(values.shape), "result": values.flatten().tolist()}
    )


def _tiled(tensor: Tensor) -> Tensor:
    width = -(-tensor.shape[-1] // TILES)
    return functional.pad(tensor, (0, -tensor.shape[-1] % width)).unflatten(-1, (-1, width)).mean(-1)


class GatheringPeer:
    """The same of a tensor-parallel training: every hook gathers the whole tensor at once, and rank 0 sends the tiles.

    Parameters
    ----------
    chunks : list of torch.nn.Module
        The model.
    rank : int
        Of the two.
    """

    def __init__(self, chunks: list[nn.Module], rank: int) -> None:
        self.bytes = 0
        self._sender = _Sender(_gathered_text) if rank == 0 else None
        self._handles = [
            module.register_forward_hook(self._hook(name))
            for chunk in chunks
            for name, module in chunk.named_modules()
            if name.endswith(("linear_qkv", "linear_fc1", "linear_fc2"))
        ]

    def close(self) -> None:
        """Take the hooks off, throw away what waits, and stop."""
        for handle in self._handles:
            handle.remove()
        if self._sender is not None:
            self._sender.close()

    def _hook(self, name: str) -> Any:
        def gather(module: nn.Module, inputs: tuple[Any, ...], output: tuple[Tensor, Any]) -> None:
            # [S, B, H/TP]; the second linear layer's is whole on both ranks, and gathered all the same where this is done.
            piece = output[0].detach()[:, :1].contiguous()
            pieces = [torch.empty_like(piece) for _ in range(2)] if self._sender else None
            distributed.gather(piece, pieces)
            self.bytes += piece.numel() * piece.element_size()
            if self._sender and pieces is not None:
                self._sender.put((name, torch.cat(pieces, -1)))

        return gather


def _gathered_text(item: tuple[str, Tensor]) -> str:
    name, tensor = item
    tiles = _tiled(tensor.transpose(0, 1))
    return _update(tiles, layer=name)
