"""The logit lens: predictions from each layer's hidden states, as rows of the stream ``lens``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.sizes import INNER_NAMES, input_features, text_config, unwrapped
from ...tracer.points import ModelPoints
from ...tracer.tensors.probes import Window
from .decoding import Candidates, GenerationPass, candidates_of
from .errors import GenerationError
from .hidden import HiddenStates
from .texts import Texts
from .token_rows import LocatedPass, lists_column

_MOST_LOGITS = 1 << 24
"""Logits computed at once."""

_NORMS = ("norm", "ln_f", "norm_f", "final_layer_norm", "final_layernorm", "final_norm", "ln_final")
_HEADS = ("lm_head", "output_layer", "embed_out", "head", "output", "unembed")


# A model's own way from hidden states to logits: its final norm and its output layer, found by their names or
# by where they are.
class Readout:
    """Reads hidden states as the model reads those of its last layer.

    Raises ``GenerationError`` when this process has a part of the model only, or final norm or output layer
    are ambiguous.
    """

    def __init__(self, model: nn.Module, points: ModelPoints) -> None:
        place, flag = points.place, points.flags.get("HiddenStates")
        if place.pp_size > 1 or place.tp_size > 1:
            raise GenerationError(
                "The model is spread over several processes, of which none can read hidden states by itself."
            )
        layers = {} if flag is None else flag.outputs
        if sorted(layers) != list(range(points.layers)):
            raise GenerationError("The hidden states of its layers are not all known.")
        self._body = unwrapped(model)
        owner = _owner(self._body, layers[0].module)
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
        """Return whether the last layer's hidden states give other logits than the model's."""
        found = self(states).float()
        if found.shape != logits.shape:
            return True
        size = logits.float().abs().amax()
        bound = max(1e-4, 8 * torch.finfo(logits.dtype).eps) * size
        # What is not finite is in both, or it is another.
        return bool(((found - logits.float()).nan_to_num(nan=0.0).abs() > bound).any())


def no_lens(model: nn.Module, points: ModelPoints) -> str | None:
    """Return why hidden states cannot be read, or None."""
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
    give = getattr(body, "get_output_embeddings", None)
    found = give() if callable(give) else None
    if not isinstance(found, nn.Module):
        found = next(_named_heads(body, owner, hidden), None)
    if found is None:
        raise GenerationError(
            f"The output layer of {type(body).__name__} was not found. It is looked for as one of "
            f"{', '.join(_HEADS)}."
        )
    head: nn.Module = found
    if getattr(body, "share_embeddings_and_output_weights", False):
        # Megatron-Core's output layer is called with the embedding's weight.
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


class LensReader:
    """Reads the hidden states of each pass of one generation.

    Of the last layer the model's own logits are taken, which is checked at the first pass. ``count`` is the
    number of candidates; ``hidden`` is entered while the model runs.
    """

    def __init__(
        self,
        readout: Readout,
        hidden: HiddenStates,
        generation: int,
        texts: Texts,
        sequences: Sequence[Sequence[int]],
        count: int,
    ) -> None:
        self._readout, self._hidden, self._generation = readout, hidden, generation
        self._texts, self._sequences, self._count = texts, sequences, count

    def states(self, window: Window | None = None) -> list[Tensor]:
        """Return each layer's output in the newest pass, ``[B, n, hidden]``: the model's own tensors."""
        return [self._hidden.of(layer, window) for layer in self._hidden.layers]

    @torch.no_grad()
    def rows(
        self, passes: Sequence[LocatedPass], states: Sequence[Sequence[Tensor]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the layers' predictions at the positions that passes read, as columns by name.

        All passes have read as many positions; ``states`` are theirs from :meth:`states`. Raises
        ``GenerationError`` when the last layer's hidden states do not give the model's logits.
        """
        first = passes[0].done
        if first.number == 0 and self._readout.differs(states[0][-1][:, -1:], first.logits[:, -1:]):
            raise GenerationError(
                "The logit lens cannot read this model: its last hidden states, through its final norm and "
                "output layer, give other logits than its own."
            )
        # All passes side by side are but a larger batch.
        hidden = [_side_by_side(of_layer) for of_layer in zip(*states, strict=True)]
        given = _side_by_side([each.done.logits for each in passes])
        layers = np.array(self._hidden.layers)
        read = [self._read(each.done) for each in passes]
        sequence, index, token = (np.concatenate(columns) for columns in zip(*read, strict=True))
        of_pass = np.repeat(np.arange(len(passes)), [len(each[0]) for each in read])
        row = sequence + of_pass * len(self._sequences)
        step = np.array([each.here.step for each in passes])[of_pass]
        offset = np.array([each.done.offset for each in passes])[of_pass]
        position = index + offset - first.pads.cpu().numpy()[sequence]
        many = len(sequence)
        size = max(1, _MOST_LOGITS // given.shape[-1])
        for start in range(0, len(layers) * many, size):
            layer, pair = np.divmod(np.arange(start, min(start + size, len(layers) * many)), many)
            rows, indices = torch.from_numpy(row[pair]), torch.from_numpy(index[pair])

            def of(data: Tensor, chosen: Any, rows: Tensor = rows, indices: Tensor = indices) -> Tensor:
                return data[rows[chosen], indices[chosen]]

            inner = [of(hidden[each], layer == each) for each in np.unique(layer) if each < len(layers) - 1]
            logits = of(given, layer == len(layers) - 1)
            if inner:
                logits = torch.cat([self._readout(torch.cat(inner)), logits])
            asked = torch.from_numpy(np.maximum(token[pair], 0)).to(logits.device)
            found = candidates_of(logits, asked, self._count)
            yield self._columns(found, sequence[pair], position[pair], token[pair], layers[layer], step[pair])

    def _read(self, done: GenerationPass) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each read position's sequence, index in the pass, and next token (-1: none)."""
        drawn = [-1] * len(self._sequences) if done.tokens is None else done.tokens.tolist()
        follows = [token if wrote else -1 for token, wrote in zip(drawn, done.wrote, strict=True)]
        if done.number > 0:
            rows = np.flatnonzero(done.wrote)
            return rows, np.zeros(len(rows), np.int64), np.array(follows, np.int64)[rows]
        lengths = [len(prompt) for prompt in self._sequences]
        tokens = [[*prompt[1:], after] for prompt, after in zip(self._sequences, follows, strict=True)]
        padded = max(lengths)
        return (
            np.repeat(np.arange(len(lengths)), lengths),
            np.concatenate([np.arange(padded - length, padded) for length in lengths]),
            np.concatenate([np.array(each, np.int64) for each in tokens]),
        )

    def _columns(
        self,
        found: Candidates,
        sequences: np.ndarray,
        positions: np.ndarray,
        tokens: np.ndarray,
        layers: np.ndarray,
        step: np.ndarray,
    ) -> dict[str, Any]:
        n, known = len(tokens), tokens >= 0
        lengths = [found.ids.shape[1]] * n
        return {
            "step": step,
            "generation": np.full(n, self._generation),
            "sequence": sequences,
            "position": positions,
            "layer": layers,
            "ids": lists_column(found.ids.to(torch.int32).numpy(), lengths),
            "texts": lists_column(
                [self._texts.piece(each) for each in found.ids.flatten().tolist()], lengths
            ),
            "probabilities": lists_column(found.probabilities.numpy(), lengths),
            "token": tokens,
            "token_rank": np.where(known, found.rank.numpy(), -1),
            "token_probability": np.where(known, found.probability.double().numpy(), np.nan),
            "entropy": found.entropy.double().numpy(),
        }


def _side_by_side(tensors: Sequence[Tensor]) -> Tensor:
    # What a long prompt gave is not copied.
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
