"""The logit lens: what each layer's hidden states would predict, as rows of the stream ``lens``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..tracer.tensors.window import Window
from .columns import lists_column
from .decoding import GenerationPass
from .errors import GenerationError
from .hidden import HiddenStates
from .readout import Readout
from .sampling import Candidates, candidates_of
from .texts import Texts

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

    @torch.no_grad()
    def rows(self, done: GenerationPass, step: int, window: Window | None = None) -> Iterator[dict[str, Any]]:
        """Give what the layers predicted at the positions that a pass read, as columns by name, before the next pass begins.

        Parameters
        ----------
        done : GenerationPass
            The pass.
        step : int
            The step that it was.
        window : Window, optional
            Which of the positions that were computed are new.

        Raises
        ------
        GenerationError
            When the last layer's hidden states, read so, do not give the model's logits.
        """
        layers = self._hidden.layers
        states = [self._hidden.of(layer, window) for layer in layers]
        if done.number == 0 and self._readout.differs(states[-1][:, -1:], done.logits[:, -1:]):
            raise GenerationError(
                "The logit lens cannot read this model: its last hidden states, through its final norm and output layer, give other logits than its own."
            )
        sequence, place, token = self._read(done)
        pads, many = done.pads.cpu().numpy(), len(sequence)
        size = max(1, _MOST_LOGITS // done.logits.shape[-1])
        for start in range(0, len(layers) * many, size):
            layer, pair = np.divmod(np.arange(start, min(start + size, len(layers) * many)), many)
            rows, places, tokens = sequence[pair], place[pair], token[pair]

            def of(data: Tensor, chosen: Any, rows: Any = rows, places: Any = places) -> Tensor:
                return data[torch.from_numpy(rows[chosen]), torch.from_numpy(places[chosen])]

            inner = [of(states[each], layer == each) for each in np.unique(layer) if each < len(layers) - 1]
            logits = torch.cat(
                [
                    *([self._readout(torch.cat(inner))] if inner else []),
                    of(done.logits, layer == len(layers) - 1),
                ]
            )
            asked = torch.from_numpy(np.maximum(tokens, 0)).to(logits.device)
            found = candidates_of(logits, asked, self._count)
            positions = places + done.offset - pads[rows]
            yield self._columns(found, rows, positions, tokens, np.array(layers)[layer], step)

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
        step: int,
    ) -> dict[str, Any]:
        n, known = len(tokens), tokens >= 0
        lengths = [found.ids.shape[1]] * n
        return {
            "step": np.full(n, step),
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
