"""The logit lens: what each layer's hidden states would predict, as rows of the stream ``lens``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...tracer.tensors.window import Window
from .columns import lists_column
from .decoding import GenerationPass
from .errors import GenerationError
from .hidden import HiddenStates
from .readout import Readout
from .sampling import Candidates, candidates_of
from .texts import Texts
from .token_rows import PlacedPass

__all__ = ["LensReader"]

_MOST_LOGITS = 1 << 24
"""Logits that are looked at together."""


class LensReader:
    """Reads the hidden states of each pass of one generation.

    Of the last layer the model's own logits are read: they are what its hidden states give. That they are is checked at the first pass.

    Parameters
    ----------
    readout : Readout
        The model's final norm and output layer.
    hidden : HiddenStates
        Entered while the model runs.
    generation : int
        Its number.
    texts : Texts
        The tokenizer.
    sequences : sequence of list of int
        Token ids of each sequence's prompt.
    count : int
        Candidates to keep.
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
        """Return what each layer gave in the newest pass, ``[B, n, hidden]``, of the positions of a window: the model's own tensors."""
        return [self._hidden.of(layer, window) for layer in self._hidden.layers]

    @torch.no_grad()
    def rows(
        self, passes: Sequence[PlacedPass], states: Sequence[Sequence[Tensor]]
    ) -> Iterator[dict[str, Any]]:
        """Give what the layers predicted at the positions that passes read, as columns by name.

        Parameters
        ----------
        passes : sequence of PlacedPass
            In their order, all having read as many positions.
        states : sequence of sequence of torch.Tensor
            Of each pass, as :meth:`states` gives them.

        Raises
        ------
        GenerationError
            When the last layer's hidden states, read so, do not give the model's logits.
        """
        first = passes[0].done
        if first.number == 0 and self._readout.differs(states[0][-1][:, -1:], first.logits[:, -1:]):
            raise GenerationError(
                "The logit lens cannot read this model: its last hidden states, through its final norm and output layer, give other logits than its own."
            )
        # All passes side by side are but a larger batch.
        hidden = [_side_by_side(of_layer) for of_layer in zip(*states, strict=True)]
        given = _side_by_side([each.done.logits for each in passes])
        layers = np.array(self._hidden.layers)
        read = [self._read(each.done) for each in passes]
        sequence, place, token = (np.concatenate(columns) for columns in zip(*read, strict=True))
        of_pass = np.repeat(np.arange(len(passes)), [len(each[0]) for each in read])
        row = sequence + of_pass * len(self._sequences)
        step = np.array([each.here.step for each in passes])[of_pass]
        offset = np.array([each.done.offset for each in passes])[of_pass]
        position = place + offset - first.pads.cpu().numpy()[sequence]
        many = len(sequence)
        size = max(1, _MOST_LOGITS // given.shape[-1])
        for start in range(0, len(layers) * many, size):
            layer, pair = np.divmod(np.arange(start, min(start + size, len(layers) * many)), many)
            rows, places = torch.from_numpy(row[pair]), torch.from_numpy(place[pair])

            def of(data: Tensor, chosen: Any, rows: Tensor = rows, places: Tensor = places) -> Tensor:
                return data[rows[chosen], places[chosen]]

            inner = [of(hidden[each], layer == each) for each in np.unique(layer) if each < len(layers) - 1]
            logits = of(given, layer == len(layers) - 1)
            if inner:
                logits = torch.cat([self._readout(torch.cat(inner)), logits])
            asked = torch.from_numpy(np.maximum(token[pair], 0)).to(logits.device)
            found = candidates_of(logits, asked, self._count)
            yield self._columns(found, sequence[pair], position[pair], token[pair], layers[layer], step[pair])

    def _read(self, done: GenerationPass) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return of each position that was read its sequence, its place in the pass, and the token that follows it; -1 where none does."""
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
