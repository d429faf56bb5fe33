"""What each layer gave in the newest forward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from ...tracer.graph_probes import end_of
from ...tracer.own_hooks import hook_after
from ...tracer.points import ModelPoints, Source
from ...tracer.tensors.values import Window
from .token_rows import PassPlace

__all__ = ["HiddenStates", "Passes"]


class Passes:
    """Gives the context of each forward pass, and counts them: every pass of a generation, and what is computed beside, runs in one.

    Parameters
    ----------
    step : callable
        Returns the step that began last.
    scope : callable, optional
        Gives a context which is a step of its own. When absent all passes belong to the step that began last, and are numbered.
    """

    def __init__(
        self, step: Callable[[], int], scope: Callable[[], AbstractContextManager[object]] | None = None
    ) -> None:
        self._step, self._scope = step, scope
        self._begun = 0
        self.here = PassPlace(-1, -1)
        """Where the tensors of the newest pass are."""

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Run one pass."""
        with contextlib.nullcontext() if self._scope is None else self._scope():
            self.here = PassPlace(self._step(), 0 if self._scope is not None else self._begun)
            self._begun += 1
            yield

    @property
    def following(self) -> PassPlace:
        """Where those of the next pass will be."""
        step = self._step()
        return PassPlace(step, self._begun) if self._scope is None else PassPlace(step + 1, 0)


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
