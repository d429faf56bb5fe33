"""The loop over forward passes: read the prompts, then draw and read a token of each sequence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .language_model import LanguageModel, PaddedPrompts, Reading, Sampler
from .texts import ITextStream


@dataclass(frozen=True, eq=False)
class Candidates:
    """Some rows of logits with a token of each, on the host.

    Attributes
    ----------
    logit, probability, entropy : torch.Tensor
        Of the token, at temperature 1 over the complete vocabulary, ``[N]``; entropy of the row in nats.
    rank : torch.Tensor
        int64 ``[N]``: tokens with a higher logit.
    sampled : torch.Tensor or None
        Probability of the token in the filtered distribution, ``[N]``.
    ids, logits, probabilities : torch.Tensor
        The most probable tokens, most probable first, ``[N, count]``.
    candidates_sampled : torch.Tensor or None
        Their probabilities in the filtered distribution.
    """

    logit: Tensor
    probability: Tensor
    entropy: Tensor
    rank: Tensor
    ids: Tensor
    logits: Tensor
    probabilities: Tensor
    sampled: Tensor | None = None
    candidates_sampled: Tensor | None = None


def candidates_of(logits: Tensor, tokens: Tensor, count: int, filtered: Tensor | None = None) -> Candidates:
    """Return ``count`` candidates of each row of logits ``[N, V]``, and the numbers of its token, int64
    ``[N]``.

    The token was drawn, or follows in the prompt. ``filtered`` is that of :meth:`Sampler.filtered`.
    """
    scores = logits.float()
    log_chances = scores.log_softmax(-1)
    chances = log_chances.exp()
    # A chance of 0 adds nothing, where 0 times minus infinity would be NaN.
    entropy = -(chances * log_chances.clamp(min=torch.finfo(torch.float32).min)).sum(-1)
    at = tokens[:, None]
    logit = scores.gather(1, at)
    best, ids = scores.topk(min(count, scores.shape[-1]))
    sampled = None if filtered is None else filtered.softmax(-1)
    found = Candidates(
        logit[:, 0],
        chances.gather(1, at)[:, 0],
        entropy,
        (scores > logit).sum(-1),
        ids,
        best,
        chances.gather(1, ids),
        None if sampled is None else sampled.gather(1, at)[:, 0],
        None if sampled is None else sampled.gather(1, ids),
    )
    return found if logits.device.type == "cpu" else _on_host(found)


def _on_host(found: Candidates) -> Candidates:
    moved: Any = (None if each is None else each.cpu() for each in vars(found).values())
    return Candidates(*moved)


@dataclass(frozen=True, eq=False)
class GenerationPass:
    """One forward pass, and what was drawn from it.

    Attributes
    ----------
    number : int
        0 for the pass that read the prompts.
    offset : int
        Index in the padded batch of the first position that it read.
    ids : torch.Tensor
        int64 ``[B, n]``: the tokens that it read, with padding.
    pads : torch.Tensor
        int64 ``[B]``: padding before each prompt; an index minus this is a position.
    logits : torch.Tensor
        ``[B, n, V]``, the model's output.
    filtered : torch.Tensor or None
        float32 ``[B, V]``: the distribution of the next tokens. None where none was drawn.
    tokens : torch.Tensor or None
        int64 ``[B]``: the next tokens; undefined for sequences that have ended.
    wrote : tuple of bool
        Which sequences have a next token.
    goes_on : tuple of bool
        Which of them will read it.
    """

    number: int
    offset: int
    ids: Tensor
    pads: Tensor
    logits: Tensor
    filtered: Tensor | None
    tokens: Tensor | None
    wrote: tuple[bool, ...]
    goes_on: tuple[bool, ...]


class IPassHook(Protocol):
    """What looks at every pass, such as the logit lens."""

    def after_pass(self, done: GenerationPass) -> None: ...


class Decoding:
    """Writes one batch. Iteration yields each pass at its end; between two the caller may do anything, also
    stop.

    ``prompts`` are token ids, none empty, repeated for each sample; at most ``tokens`` are written. A
    sequence ends after one of ``stop_tokens``, or once its new text has one of ``stop`` in it. ``pass_scope``
    returns the context in which a forward pass and its ``hooks`` run; ``before`` takes the model's state
    before each pass; ``ends`` says whether the current pass is the last.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        sampler: Sampler,
        tokens: int,
        *,
        stop: Sequence[str] = (),
        stop_tokens: Sequence[int] | frozenset[int] = (),
        pass_scope: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
        hooks: Sequence[IPassHook] = (),
        ends: Callable[[], bool] = lambda: False,
        before: Callable[[Reading], None] = lambda reading: None,
    ) -> None:
        self._model, self._prompts, self._sampler = model, prompts, sampler
        self._tokens = tokens
        self._stop, self._stop_tokens = tuple(stop), frozenset(stop_tokens)
        self._scope, self._hooks, self._ends, self._before = pass_scope, hooks, ends, before
        padded = PaddedPrompts.of(prompts, model.device, model.pad)
        self._padded, self._pads, self._ids = padded.padded, padded.pads, padded.ids
        self._processors = model.processors(padded, sampler, tokens, self._stop_tokens) if tokens else None
        self._going = [True] * len(prompts)
        self._written = 0
        self._ending = [_Ending(model.texts.stream(), prompt, self._stop) for prompt in prompts if self._stop]

    def __iter__(self) -> Iterator[GenerationPass]:
        reading = self._model.begin(self._prompts, self._tokens)
        done = self._pass(0, 0, self._ids, reading, reading.prompts)
        yield done
        while any(done.goes_on):
            tokens = done.tokens
            assert tokens is not None
            offset = self._padded + done.number
            done = self._pass(
                done.number + 1,
                offset,
                tokens[:, None],
                reading,
                lambda tokens=tokens: reading.next(tokens),  # type: ignore[misc]
            )
            yield done

    def _pass(
        self, number: int, offset: int, ids: Tensor, reading: Reading, read: Callable[[], Tensor]
    ) -> GenerationPass:
        self._before(reading)
        # Gradients are enabled for the caller between passes, not only at the end.
        with torch.no_grad(), self._scope():
            logits = read()
            filtered = tokens = None
            wrote = tuple(self._going)
            if self._written < self._tokens:
                # Sequences that have ended draw along, so that the others draw what they would without them.
                filtered = self._sampler.filtered(logits[:, -1], self._ids, self._processors)
                tokens = self._model.agreed(self._sampler.draw(filtered))
                if self._processors is not None:
                    self._ids = torch.cat([self._ids, tokens[:, None]], dim=1)
                self._written += 1
                self._end(tokens)
            else:
                wrote = (False,) * len(wrote)
                self._going = list(wrote)
            done = GenerationPass(
                number, offset, ids, self._pads, logits, filtered, tokens, wrote, tuple(self._going)
            )
            for hook in self._hooks:
                hook.after_pass(done)
        return done

    def _end(self, tokens: Tensor) -> None:
        """Note which sequences continue after their new tokens."""
        over = self._written >= self._tokens or self._ends()
        for row, token in enumerate(tokens.tolist()):
            if self._going[row]:
                stopped = token in self._stop_tokens or (self._stop and self._ending[row].push(token))
                self._going[row] = not (over or stopped)


class _Ending:
    """Looks for stop texts in what one sequence writes."""

    def __init__(self, stream: ITextStream, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._stream, self._stop = stream, stop
        self._tail = ""
        self._longest = max(map(len, stop))
        for token in prompt:
            stream.push(token)

    def push(self, token: int) -> bool:
        """Return whether the text is over with this token."""
        text = self._tail + self._stream.push(token)
        # A stop text from before that ends now is in the retained part.
        self._tail = text[-self._longest :]
        return any(each in text for each in self._stop)
