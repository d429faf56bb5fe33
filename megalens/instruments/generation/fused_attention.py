"""Attention probabilities of models that compute attention with ``scaled_dot_product_attention``, which gives
none: they are computed from what it was given, some queries at a time, and what the model computes stays as
it is.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ...tracer.graph_probes import is_compiled
from ...tracer.own_hooks import OwnHook, remove_all
from ...tracer.points import FlagPoints, Source
from ...tracer.tensors import by_rows
from .language_model import short_pass

_ATTENTION: Any = functional.scaled_dot_product_attention


class _Calls(TorchFunctionMode):
    """Notes what each attention is given, with the module that called it."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[nn.Module] = []
        self.noted: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _ATTENTION and self.running:
            self.noted.append((self.running[-1], args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _hooked(modules: set[nn.Module], begins: Any, ends: Any) -> Iterator[None]:
    handles: list[Any] = []
    try:
        for module in modules:
            handles.append(module.register_forward_pre_hook(OwnHook(begins), prepend=True))
            handles.append(module.register_forward_hook(OwnHook(ends), prepend=True, always_call=True))
        yield
    finally:
        remove_all(handles)


class FusedAttention:
    """The fused attentions of a model that a pass over a few tokens has shown.

    Attributes
    ----------
    flag : FlagPoints
        Where the probabilities are seen while :meth:`seen` is entered; nowhere if a layer has several.
    """

    def __init__(self, model: nn.Module, layers: Mapping[int, nn.Module]) -> None:
        found = {} if is_compiled([model]) else _calling(model, layers)
        self._heads = dict(found.values())
        self._given: dict[nn.Module, by_rows.TensorByRows] = {}
        sources = {
            layer: (Source(module, computed=functools.partial(self._taken, module)),)
            for layer, (module, _) in found.items()
        }
        words = "computed from what the fused attention is given"
        self.flag = FlagPoints(sources, evidence=dict.fromkeys(sources, words))

    @contextlib.contextmanager
    def seen(self) -> Iterator[None]:
        """Compute the probabilities of each pass inside of the context."""
        calls, scratch = _Calls(), _Scratch()

        def begins(module: nn.Module, *_: Any) -> None:
            calls.running.append(module)
            calls.noted.clear()
            calls.__enter__()  # type: ignore[no-untyped-call]

        def ends(module: nn.Module, args: Any, output: Any) -> None:
            calls.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            calls.running.pop()
            if len(calls.noted) == 1 and output is not None:
                _, given, named = calls.noted.pop()
                how = {**named, "model_heads": self._heads[module], "scratch": scratch}
                self._given[module] = _probabilities(*given, **how)

        with _hooked({*self._heads}, begins, ends):
            try:
                yield
            finally:
                self._given.clear()
                # What was interrupted, such as by a person, is not ended by its hooks.
                for _ in calls.running:
                    calls.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _taken(self, module: nn.Module, output: Any) -> Any:
        data = self._given.pop(module, None)
        return data if data is None or data.nbytes > by_rows.PIECE_BYTES else data.whole()


def _calling(model: nn.Module, layers: Mapping[int, nn.Module]) -> dict[int, tuple[nn.Module, int]]:
    """Return by layer the module that calls a fused attention, where there is one and it calls one."""
    calls = _Calls()
    hooked = _hooked(
        {*model.modules()},
        lambda module, *_: calls.running.append(module),
        lambda *_: calls.running.pop() and None,
    )
    # A pass that fails shows nothing.
    try:
        with hooked:
            ids = short_pass(model, calls)
    except Exception:
        return {}
    found = {}
    for layer, module in layers.items():
        own = {*module.modules()} - {module}
        of_layer = [(caller, args, kwargs) for caller, args, kwargs in calls.noted if caller in own]
        if not of_layer:
            continue
        caller, args, kwargs = of_layer[0]
        query = args[0] if args else kwargs["query"]
        if len(of_layer) > 1 or query.ndim != 4 or (len(query), query.shape[2]) != ids.shape:
            return {}
        found[layer] = caller, query.shape[1]
    return found if len({*found.values()}) == len(found) else {}


class _Scratch:
    """What pieces are computed in, one after another: an allocator does not find room for pieces of many
    sizes in what it has.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def of(self, name: str, queries: Tensor, keys: int) -> Tensor:
        shape = (*queries.shape[:-1], keys)
        kept, size = self._kept.get(name), math.prod(shape)
        if kept is None or len(kept) < size or kept.device != queries.device:
            kept = self._kept[name] = queries.new_empty(size)
        return kept[:size].view(shape)


def _probabilities(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    model_heads: int,
    scratch: _Scratch,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> by_rows.TensorByRows:
    """Return ``softmax(Q Kᵀ scale + mask)``, as the documentation of torch defines it, ``[B, heads, queries,
    keys]``.

    Heads of a model that share keys may be given as queries of these: then there are fewer heads than
    ``model_heads``.
    """
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    query, key, shared = query.detach(), key.detach(), query.shape[1] // key.shape[1]
    packed = query.shape[1] != model_heads
    count, keys = query.shape[2], key.shape[2]
    shape = (len(query), model_heads, query.shape[1] * count // model_heads, keys)

    def compute(heads: slice, queries: slice) -> Tensor:
        wanted = heads
        if packed:
            # A head of the model is one of these queries.
            heads, queries = slice(0, query.shape[1]), slice(0, count)
        # Later keys of a causal attention have nothing.
        width = min(keys, queries.stop) if is_causal else keys
        of, to = query[:, heads, queries].float() * factor, key[:, :, :width]
        if shared > 1:
            to = to[:, torch.arange(heads.start, heads.stop, device=key.device) // shared].float()
        else:
            to = to[:, heads].float()
        scores = torch.matmul(of, to.mT, out=scratch.of("scores", of, width))
        if is_causal and width > queries.start:
            block = scores[..., queries.start :]
            later = torch.ones(block.shape[-2:], dtype=torch.bool, device=of.device).triu_(1)
            block.masked_fill_(later, -math.inf)
        if attn_mask is not None:
            mask = attn_mask.expand(len(query), *query.shape[1:3], keys)[:, heads, queries]
            scores = scores.masked_fill_(~mask, -math.inf) if mask.dtype is torch.bool else scores.add_(mask)
        found = torch.softmax(scores, -1, out=scratch.of("found", of, width))
        if attn_mask is not None:
            # What attends to nothing gets nothing.
            found.masked_fill_((scores == -math.inf).all(-1, keepdim=True), 0)
        if width < keys:
            part, found = found, scratch.of("whole", of, keys)
            found[..., :width], found[..., width:] = part, 0
        return found.reshape(shape)[:, wanted] if packed else found

    return by_rows.TensorByRows(shape, torch.float32, query.device, compute)
