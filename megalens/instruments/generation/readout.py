"""A model's own way from hidden states to logits: its final norm and its output layer, found by their names or by where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters.sizes import input_features, text_config
from ...adapters.unwrap import INNER_NAMES, unwrapped
from ...tracer.points import ModelPoints
from .errors import GenerationError

__all__ = ["Readout", "no_lens"]

_NORMS = ("norm", "ln_f", "norm_f", "final_layer_norm", "final_layernorm", "final_norm", "ln_final")
_HEADS = ("lm_head", "output_layer", "embed_out", "head", "output", "unembed")


class Readout:
    """Reads hidden states as the model reads those of its last layer.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    points : ModelPoints
        Where its layers are.

    Raises
    ------
    GenerationError
        When this process holds a part of the model only, or the two modules cannot be told; says why.
    """

    def __init__(self, model: nn.Module, points: ModelPoints) -> None:
        place, flag = points.place, points.flags.get("HiddenStates")
        if place.pp_size > 1 or place.tp_size > 1:
            raise GenerationError(
                "The model is spread over several processes, of which none can read hidden states by itself."
            )
        layers = {} if flag is None else flag.layers
        if sorted(layers) != list(range(points.layers)):
            raise GenerationError("The hidden states of its layers are not all known.")
        self._body = unwrapped(model)
        owner = _owner(self._body, layers[0][0].module)
        hidden = points.model.get("hidden")
        self._norm = _norm(owner)
        self._head = _head(self._body, owner, hidden)
        self._after = _after(text_config(self._body))

    def __call__(self, states: Tensor) -> Tensor:
        """Return the logits ``[..., vocabulary]`` of hidden states ``[..., hidden]``."""
        if self._norm is not None:
            states = self._norm(states)
        return self._after(self._head(states))

    def differs(self, states: Tensor, logits: Tensor) -> bool:
        """Return whether the last layer's hidden states give other logits than the model did."""
        found = self(states).float()
        if found.shape != logits.shape:
            return True
        size = logits.float().abs().amax()
        bound = max(1e-4, 8 * torch.finfo(logits.dtype).eps) * size
        # What is not finite is in both, or it is another.
        return bool(((found - logits.float()).nan_to_num(nan=0.0).abs() > bound).any())


def no_lens(model: nn.Module, points: ModelPoints) -> str | None:
    """Return why hidden states cannot be read, or None where they can."""
    try:
        Readout(model, points)
    except GenerationError as error:
        return str(error)
    return None


def _owner(body: nn.Module, layer: nn.Module) -> nn.Module:
    """Return the module that has the list of layers."""
    path = next((name for name, module in body.named_modules() if module is layer), "")
    parts = path.split(".")
    while parts and parts[-1] in INNER_NAMES:
        parts.pop()
    # A layer's number, the list, and what has it.
    return body.get_submodule(".".join(parts[:-2]))


def _norm(owner: nn.Module) -> nn.Module | None:
    """Return the norm behind the layers; None where the owner has none."""
    children = dict(owner.named_children())
    named = next((children[name] for name in _NORMS if name in children), None)
    if named is not None:
        return named
    norms = [child for child in children.values() if "norm" in type(child).__name__.lower()]
    return norms[-1] if norms else None


def _head(body: Any, owner: nn.Module, hidden: int | None) -> Callable[[Tensor], Tensor]:
    """Return the output layer."""
    give = getattr(body, "get_output_embeddings", None)
    found = give() if callable(give) else None
    if not isinstance(found, nn.Module):
        found = next(_named_heads(body, owner, hidden), None)
    if found is None:
        raise GenerationError(
            f"The output layer of {type(body).__name__} was not found. It is looked for as one of {', '.join(_HEADS)}."
        )
    head: nn.Module = found
    if getattr(body, "share_embeddings_and_output_weights", False):
        # Megatron-Core's output layer is given the embedding's weight.
        return lambda states: _first(head(states, weight=body.shared_embedding_or_output_weight()))
    return lambda states: _first(head(states))


def _named_heads(body: nn.Module, owner: nn.Module, hidden: int | None) -> Iterator[nn.Module]:
    for holder in (body, owner):
        for name in _HEADS:
            child = getattr(holder, name, None)
            if isinstance(child, nn.Module) and (hidden is None or input_features(child) in (None, hidden)):
                yield child


def _after(config: Any) -> Callable[[Tensor], Tensor]:
    """Return what some models of Hugging Face do with their logits: scale them, or bound them softly."""
    factor = float(getattr(config, "logit_scale", None) or 1) / float(
        getattr(config, "logits_scaling", None) or 1
    )
    bound = getattr(config, "final_logit_softcapping", None)

    def after(logits: Tensor) -> Tensor:
        logits = logits if factor == 1 else logits * factor
        return logits if not bound else torch.tanh(logits / bound) * bound

    return after


def _first(output: Any) -> Tensor:
    logits: Tensor = output[0] if isinstance(output, (tuple, list)) else output
    return logits
