"""The loop over forward passes: read the prompts, then draw a token of each sequence and read it, until all have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from .language_model import LanguageModel, Reading
from .sampling import Sampler
from .texts import ITextStream

__all__ = ["Decoding", "GenerationPass", "IPassHook", "evaluating"]


@dataclass(frozen=True, eq=False)
class GenerationPass:
    """One forward pass, and what was drawn from it.

    Attributes
    ----------
    number : int
        Counted from 0, the one that read the prompts.
    offset : int
        Place in the padded batch of the first position that it read.
    ids : torch.Tensor
        int64 ``[B, n]``: the tokens that it read, padding included.
    pads : torch.Tensor
        int64 ``[B]``: padding before each prompt, so that a place less this is a position.
    logits : torch.Tensor
        ``[B, n, V]``, as the model gave them.
    filtered : torch.Tensor or None
        float32 ``[B, V]``: what the next tokens were drawn from. None where none was drawn.
    tokens : torch.Tensor or None
        int64 ``[B]``: the next tokens; of sequences that have ended they mean nothing.
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

    def after_pass(self, done: GenerationPass) -> None:
        """Look at a pass that is over, inside of its step."""
        ...


class Decoding:
    """Writes one batch. Iterating gives each pass when it is over; between two of them the caller may do anything, also stop.

    Parameters
    ----------
    model : LanguageModel
        Who writes, in evaluation mode.
    prompts : sequence of list of int
        Token ids, of which none is empty; a prompt with several samples stands there as often.
    sampler : Sampler
        How tokens are drawn.
    tokens : int
        Tokens to write at most.
    stop : sequence of str
        A sequence ends once its new text has one of these in it.
    stop_tokens : iterable of int
        A sequence ends after one of these.
    pass_scope : callable
        Gives the context in which a forward pass runs.
    hooks : sequence of IPassHook
        Called after each pass, in its context.
    ends : callable
        Whether to write nothing after the pass that is going on.
    before : callable
        Told what the model keeps, before each pass.
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
        self._padded = max(len(prompt) for prompt in prompts)
        self._pads = torch.tensor([self._padded - len(prompt) for prompt in prompts], device=model.device)
        self._going = [True] * len(prompts)
        self._written = 0
        self._ending = [_Ending(model.texts.stream(), prompt, self._stop) for prompt in prompts if self._stop]

    def __iter__(self) -> Iterator[GenerationPass]:
        reading = self._model.begin(self._prompts, self._tokens)
        ids = torch.tensor(
            [[0] * (self._padded - len(prompt)) + list(prompt) for prompt in self._prompts],
            device=self._model.device,
        )
        done = self._pass(0, 0, ids, reading, reading.prompts)
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
        # The caller's own gradients are on again when this is over, and not only when all is.
        with torch.no_grad(), self._scope():
            logits = read()
            filtered = tokens = None
            wrote = tuple(self._going)
            if self._written < self._tokens:
                # Sequences that have ended draw along, so that the others draw what they would without them.
                filtered = self._sampler.filtered(logits[:, -1])
                tokens = self._model.agreed(self._sampler.draw(filtered))
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
        """Note which sequences go on after their new tokens."""
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
        # One that began before and ends now begins in what is kept.
        self._tail = text[-self._longest :]
        return any(each in text for each in self._stop)


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Have a model in evaluation mode inside, and afterwards each of its modules in the mode that it was in."""
    training = [each for each in module.modules() if each.training]
    module.eval()
    try:
        yield
    finally:
        for each in training:
            each.training = True
