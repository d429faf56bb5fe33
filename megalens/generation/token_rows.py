"""Rows of the stream ``tokens``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .columns import lists_column
from .decoding import GenerationPass
from .sampling import Candidates, candidates_of
from .texts import Texts

__all__ = ["PassPlace", "TokenRows"]

_MOST_ROWS = 2048
"""Of one batch."""
_MOST_LOGITS = 1 << 24
"""Logits that are looked at together."""
_NUMBERS = ("logit", "probability", "entropy")


class PassPlace(NamedTuple):
    """Where the tensors of a forward pass are: ``step`` and ``micro_batch`` of their rows."""

    step: int
    number: int


class TokenRows:
    """Makes the rows of one generation, pass by pass.

    Parameters
    ----------
    generation : int
        Its number.
    texts : Texts
        The tokenizer.
    prompts : sequence of list of int
        Token ids of each prompt.
    samples : int
        Sequences of each prompt.
    candidates : int
        Candidates to keep of each position.
    """

    def __init__(
        self, generation: int, texts: Texts, prompts: Sequence[Sequence[int]], samples: int, candidates: int
    ) -> None:
        self._generation, self._texts = generation, texts
        self._prompts, self._samples, self._count = prompts, samples, candidates
        self._streams = [texts.stream() for _ in range(len(prompts) * samples)]

    def of(self, done: GenerationPass, here: PassPlace, following: PassPlace) -> Iterator[dict[str, Any]]:
        """Give the rows that a pass made possible, as columns by name: of the prompts that it read, and of the tokens that were drawn from it.

        Parameters
        ----------
        done : GenerationPass
            The pass.
        here, following : PassPlace
            Where its tensors are, and where those of the next pass will be, which reads what was drawn.
        """
        if done.number == 0:
            for number, prompt in enumerate(self._prompts):
                yield from self._prompt(number, prompt, done, here)
        if any(done.wrote):
            yield self._written(done, here, following)

    def _prompt(
        self, number: int, prompt: Sequence[int], done: GenerationPass, here: PassPlace
    ) -> Iterator[dict[str, Any]]:
        # Samples of one prompt read the same.
        rows = range(number * self._samples, (number + 1) * self._samples)
        pad = int(done.pads[rows[0]])
        every = [[self._streams[row].push(token) for token in prompt] for row in rows]
        texts = every[0]
        logits = done.logits[rows[0], pad:]
        size = max(1, min(_MOST_ROWS, _MOST_LOGITS // logits.shape[-1]))
        for start in range(0, len(prompt), size):
            ids = prompt[start : start + size]
            first = max(start, 1)
            asked = torch.tensor(prompt[first : start + len(ids)], dtype=torch.int64, device=logits.device)
            found = candidates_of(logits[first - 1 : first - 1 + len(asked)], asked, self._count)
            positions = np.arange(start, start + len(ids))
            columns = {
                **self._described(ids, found, first - start),
                "position": positions,
                "text": texts[start : start + len(ids)],
                "tensor_offset": positions + pad,
            }
            for row in rows:
                yield self._complete(columns, np.full(len(ids), row), "prompt", here, here)

    def _written(self, done: GenerationPass, here: PassPlace, following: PassPlace) -> dict[str, Any]:
        assert done.tokens is not None
        rows = [row for row, wrote in enumerate(done.wrote) if wrote]
        at = torch.tensor(rows, device=done.logits.device)
        filtered = None if done.filtered is None else done.filtered[at]
        found = candidates_of(done.logits[at, -1], done.tokens[at], self._count, filtered)
        ids = done.tokens[at].tolist()
        lengths = [len(self._prompts[row // self._samples]) for row in rows]
        columns = {
            **self._described(ids, found, 0),
            "position": np.array(lengths) + done.number,
            "text": [self._streams[row].push(token) for row, token in zip(rows, ids, strict=True)],
            "tensor_offset": np.zeros(len(rows), np.int64),
        }
        complete = self._complete(columns, np.array(rows), "generated", here, following)
        ended = ~np.array(done.goes_on)[rows]
        for name in ("tensor_step", "tensor_pass", "tensor_offset"):
            complete[name] = np.where(ended, -1, complete[name])
        return complete

    def _described(self, ids: Sequence[int], found: Candidates, unknown: int) -> dict[str, Any]:
        """Return what is said of each token, the first ``unknown`` of which nothing predicts."""
        before = np.full(unknown, math.nan)
        flat = found.ids.flatten().tolist()
        count = found.ids.shape[1]
        lengths = [0] * unknown + [count] * len(found.ids)
        sampled = np.full(len(ids), math.nan) if found.sampled is None else found.sampled.double().numpy()
        kept = (
            np.empty(0, np.float32) if found.candidates_sampled is None else found.candidates_sampled.numpy()
        )
        return {
            **{name: np.concatenate([before, getattr(found, name).double().numpy()]) for name in _NUMBERS},
            "id": np.array(ids),
            "piece": [self._texts.piece(token) for token in ids],
            "sampled_probability": sampled,
            "rank": np.concatenate([np.full(unknown, -1), found.rank.numpy()]),
            "candidate_ids": lists_column(found.ids.to(torch.int32).numpy(), lengths),
            "candidate_texts": lists_column([self._texts.piece(token) for token in flat], lengths),
            "candidate_logits": lists_column(found.logits.numpy(), lengths),
            "candidate_probabilities": lists_column(found.probabilities.numpy(), lengths),
            "candidate_sampled": lists_column(kept, lengths if kept.size else [0] * len(ids)),
        }

    def _complete(
        self, columns: dict[str, Any], sequences: np.ndarray, kind: str, here: PassPlace, read: PassPlace
    ) -> dict[str, Any]:
        n = len(sequences)
        return {
            **columns,
            "step": np.full(n, here.step),
            "generation": np.full(n, self._generation),
            "sequence": sequences,
            "kind": [kind] * n,
            "tensor_step": np.full(n, read.step),
            "tensor_pass": np.full(n, read.number),
        }
