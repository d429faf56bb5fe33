"""Attention probabilities of models of Hugging Face that compute attention with
``scaled_dot_product_attention``, which gives none: they are computed from what it was given, some queries at
a time, and what the model computes stays as it is.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ...tracer.first_pass import extra_pass
from ...tracer.graph_probes import is_compiled
from ...tracer.tensors import by_rows

IMPLEMENTATION = "sdpa"
_ATTENTION: Any = functional.scaled_dot_product_attention


class _Given(TorchFunctionMode):
    """Notes what the attention is given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _ATTENTION:
            self.calls.append((args, kwargs or {}))
        return func(*args, **(kwargs or {}))


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


@contextlib.contextmanager
def probabilities_seen(model: nn.Module, most: int | None = None) -> Iterator[set[nn.Module]]:
    """Have modules of a model return their attention probabilities inside of the context, though fused
    attention computes them.

    Of more than ``most`` bytes they return a :class:`TensorByRows`. Yields the modules that did.
    """
    most = by_rows.PIECE_BYTES if most is None else most
    interfaces: Any = getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", {})
    before: Any = interfaces[IMPLEMENTATION]
    own, seen, memory = set(model.modules()), set[nn.Module](), _Scratch()

    def attend(module: nn.Module, query: Tensor, *args: Any, **kwargs: Any) -> Any:
        if module not in own:
            return before(module, query, *args, **kwargs)
        with _Given() as given:
            output, probabilities = before(module, query, *args, **kwargs)
        if probabilities is None and len(given.calls) == 1:
            (arguments, named), seen_of = given.calls[0], query.shape
            probabilities = _probabilities(*arguments, like=seen_of, memory=memory, **named)
            seen.add(module)
            if probabilities.nbytes <= most:
                probabilities = probabilities.whole()
        return output, probabilities

    interfaces[IMPLEMENTATION] = attend
    try:
        yield seen
    finally:
        # The one of this instance: the library's own is another mapping.
        del interfaces[IMPLEMENTATION]


def _probabilities(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    like: torch.Size,
    memory: _Scratch,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> by_rows.TensorByRows:
    """Return ``softmax(Q Kᵀ scale + mask)``, as the documentation of torch defines it, ``[B, heads, queries,
    keys]``.

    The queries of one token may lie in another shape than ``like``, ``[B, heads, queries, features]``: the
    heads that share keys as queries of those.
    """
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    query, key = query.detach().float() * factor, key.detach().float()
    if query.shape[1] != key.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    packed = query.shape[1] != like[1]
    count, keys = query.shape[-2], key.shape[-2]

    def compute(heads: slice, queries: slice) -> Tensor:
        wanted = heads
        if packed:
            # A head of the model is one of these queries.
            heads, queries = slice(0, query.shape[1]), slice(0, count)
        # Later keys of a causal attention have nothing.
        width = min(keys, queries.stop) if is_causal else keys
        of, to = query[:, heads, queries], key[:, heads, :width]
        scores = torch.matmul(of, to.mT, out=memory.of("scores", of, width))
        if is_causal and width > queries.start:
            later = torch.ones(of.shape[2], width - queries.start, dtype=torch.bool, device=of.device).triu_(
                1
            )
            scores[..., queries.start :].masked_fill_(later, -math.inf)
        if attn_mask is not None:
            mask = attn_mask.expand(len(query), *query.shape[1:3], keys)[:, heads, queries]
            scores = scores.masked_fill_(~mask, -math.inf) if mask.dtype is torch.bool else scores.add_(mask)
        found = torch.softmax(scores, -1, out=memory.of("found", of, width))
        if attn_mask is not None:
            # What attends to nothing gets nothing.
            found.masked_fill_((scores == -math.inf).all(-1, keepdim=True), 0)
        if width < keys:
            part, found = found, memory.of("whole", of, keys)
            found[..., :width], found[..., width:] = part, 0
        return found.reshape(len(found), like[1], 1, keys)[:, wanted] if packed else found

    return by_rows.TensorByRows((len(query), like[1], like[2], keys), query.dtype, query.device, compute)


_seen_in: weakref.WeakKeyDictionary[nn.Module, set[nn.Module]] = weakref.WeakKeyDictionary()


def find_out(model: nn.Module) -> None:
    """Have a pass over a few tokens show which modules give their probabilities so; none of compiled code."""
    if is_compiled([model]):
        return
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    ids = torch.arange(10, device=device).reshape(2, 5)
    training = [each for each in model.modules() if each.training]
    # A pass that fails shows nothing.
    with contextlib.suppress(Exception), extra_pass(model), probabilities_seen(model, most=0) as seen:
        model.eval()
        try:
            # Also where a model does something with them: what comes by rows is no tensor.
            model(ids)
        finally:
            for each in training:
                each.training = True
        _seen_in[model] = seen


def can_be_seen(model: nn.Module, wanted: set[nn.Module]) -> bool:
    """Return whether all ``wanted`` modules give their probabilities so, as far as was found out."""
    return bool(wanted) and wanted <= _seen_in.get(model, set())
