"""Rows of the stream ``tokens``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from ...protocol.arrow_columns import arrow_column
from .decoding import Candidates, GenerationPass, candidates_of
from .texts import Texts

_MOST_ROWS = 2048
"""Rows of one batch."""


def lists_column(values: Any, lengths: Sequence[int]) -> pa.Array:
    """Return a column of lists from their concatenated items."""
    texts = isinstance(values, list)
    flat = (
        arrow_column(values, pa.utf8()) if texts else arrow_column(np.ascontiguousarray(values).reshape(-1))
    )
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(arrow_column(offsets), flat)


_MOST_LOGITS = 1 << 24
"""Logits processed at once."""
_NUMBERS = ("logit", "probability", "entropy")


class PassCoordinates(NamedTuple):
    """The ``step`` and ``micro_batch`` of a forward pass's tensor rows."""

    step: int
    number: int


class LocatedPass(NamedTuple):
    """A pass with its coordinates, and those of the next pass, which reads what was drawn."""

    done: GenerationPass
    here: PassCoordinates
    following: PassCoordinates


class TokenRows:
    """Makes the rows of one generation, pass by pass.

    ``samples`` is the number of sequences of each prompt, ``candidates`` that of candidates at each position.
    """

    def __init__(
        self, generation: int, texts: Texts, prompts: Sequence[Sequence[int]], samples: int, candidates: int
    ) -> None:
        self._generation, self._texts = generation, texts
        self._prompts, self._samples, self._count = prompts, samples, candidates
        self._streams = [texts.stream() for _ in range(len(prompts) * samples)]

    def of(self, passes: Sequence[LocatedPass]) -> Iterator[dict[str, Any]]:
        """Yield the rows that passes made possible: the read prompts of the first, then drawn tokens.

        ``passes`` are in order, the one that read the prompts by itself.
        """
        if passes[0].done.number == 0:
            for number, prompt in enumerate(self._prompts):
                yield from self._prompt(number, prompt, passes[0].done, passes[0].here)
        wrote = [each for each in passes if any(each.done.wrote)]
        if wrote:
            yield self._written(wrote)

    def _prompt(
        self, number: int, prompt: Sequence[int], done: GenerationPass, here: PassCoordinates
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
                yield self._complete(columns, np.full(len(ids), row), "prompt", here.step, here)

    def _written(self, passes: Sequence[LocatedPass]) -> dict[str, Any]:
        """Return the rows of the tokens drawn in some passes, each with a row of logits."""
        wrote = np.array([each.done.wrote for each in passes])
        drawn, rows = wrote.nonzero()
        at = torch.from_numpy(wrote.ravel().nonzero()[0]).to(passes[0].done.logits.device)
        tokens = torch.cat([each.done.tokens for each in passes if each.done.tokens is not None])[at]
        filtered = [each.done.filtered for each in passes if each.done.filtered is not None]
        found = candidates_of(
            torch.cat([each.done.logits[:, -1] for each in passes])[at],
            tokens,
            self._count,
            torch.cat(filtered)[at] if filtered else None,
        )
        ids = tokens.tolist()
        lengths = np.array([len(prompt) for prompt in self._prompts]).repeat(self._samples)
        numbers = np.array([each.done.number for each in passes])
        columns = {
            **self._described(ids, found, 0),
            "position": lengths[rows] + numbers[drawn],
            "text": [self._streams[row].push(token) for row, token in zip(rows.tolist(), ids, strict=True)],
            "tensor_offset": np.zeros(len(rows), np.int64),
        }
        steps = np.array([each.here.step for each in passes])[drawn]
        read = PassCoordinates(*np.array([each.following for each in passes])[drawn].T)
        complete = self._complete(columns, rows, "generated", steps, read)
        ended = ~np.array([each.done.goes_on for each in passes])[drawn, rows]
        for name in ("tensor_step", "tensor_pass", "tensor_offset"):
            complete[name] = np.where(ended, -1, complete[name])
        return complete

    def _described(self, ids: Sequence[int], found: Candidates, unknown: int) -> dict[str, Any]:
        """Return the columns of each token, the first ``unknown`` of which nothing predicts."""
        before = np.full(unknown, math.nan)
        flat = found.ids.flatten().tolist()
        count = found.ids.shape[1]
        lengths = [0] * unknown + [count] * len(found.ids)
        sampled = np.full(len(ids), math.nan) if found.sampled is None else found.sampled.double().numpy()
        of_candidates = (
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
            "candidate_sampled": lists_column(
                of_candidates, lengths if of_candidates.size else [0] * len(ids)
            ),
        }

    def _complete(
        self, columns: dict[str, Any], sequences: np.ndarray, kind: str, step: Any, read: PassCoordinates
    ) -> dict[str, Any]:
        """Add the common columns; ``step`` and ``read`` are constants or arrays."""
        n = len(sequences)
        return {
            **columns,
            "step": np.full(n, step),
            "generation": np.full(n, self._generation),
            "sequence": sequences,
            "kind": [kind] * n,
            "tensor_step": np.full(n, read.step),
            "tensor_pass": np.full(n, read.number),
        }
