"""What each layer gave in the newest forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...tracer.graph_probes import end_of
from ...tracer.own_hooks import hook_after
from ...tracer.points import ModelPoints, Source
from ...tracer.tensors.window import Window

__all__ = ["HiddenStates"]


class HiddenStates:
    """Keeps the hidden states of the newest pass while it is entered. They are the model's own tensors: nothing is copied but what compiled code gives, which uses its memory again.

    A perturbation that is armed before or meanwhile is in them, as in what is traced.

    Parameters
    ----------
    points : ModelPoints
        Where the model's layers are.
    """

    def __init__(self, points: ModelPoints) -> None:
        flag = points.flags.get("HiddenStates")
        self._sources = {layer: found[0] for layer, found in flag.layers.items()} if flag else {}
        self._seen: dict[int, Tensor] = {}
        self._handles: list[Any] = []

    @property
    def layers(self) -> list[int]:
        """Layers that this process has, ascending."""
        return sorted(self._sources)

    def __enter__(self) -> HiddenStates:
        for layer, source in self._sources.items():
            self._handles.append(hook_after(source.module, self._keeps(layer, source)))
            if (graph := end_of(source.module, "output", source.item)) is not None:
                self._handles.append(graph.watch(self._copies(layer, source)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._seen.clear()

    def of(self, layer: int, window: Window | None = None) -> Tensor:
        """Return what a layer gave, ``[B, n, hidden]``; of the positions of a window.

        Raises
        ------
        LookupError
            When the layer was not called, or gave no such tensor.
        """
        state = self._seen.get(layer)
        if state is None:
            raise LookupError(f"layer {layer} was not called or gave no hidden states")
        return state if window is None else window.of(state)

    def _keeps(self, layer: int, source: Source) -> Callable[..., None]:
        def keep(module: nn.Module, given: Any, output: Any) -> None:
            self._keep(layer, source, output[source.item] if isinstance(output, (tuple, list)) else output)

        return keep

    def _copies(self, layer: int, source: Source) -> Callable[[Tensor], None]:
        return lambda tensor: self._keep(layer, source, tensor.clone())

    def _keep(self, layer: int, source: Source, state: Any) -> None:
        if isinstance(state, Tensor) and state.ndim == 3:
            state = state.detach()
            self._seen[layer] = state.transpose(0, 1) if source.sequence_first else state
