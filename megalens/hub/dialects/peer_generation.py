"""An inference hub's text as rows of ``generations`` and ``tokens``; what is unknown is NaN, -1 or empty."""

from __future__ import annotations

import codecs
import functools
import json
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ...protocol import GenerationRequest, stream_schema
from ...protocol.arrow_columns import arrow_batch
from .peer_message import PADDING, PeerToken

_NUMBER = 1
_FRAME_ROWS = 1000
_SEEDLESS = (
    "The peer draws without a seed, and says neither the entropy nor what temperature, top-k and top-p "
    "made of the probabilities."
)
_Row = dict[str, Any]
_PassNumber = tuple[int, int]
"""Step and micro-batch of a forward pass."""


class PeerText:
    """Decides of each token whether it is of the prompt, and what it adds to the text.

    A peer names the tokens of each prompt up to the length of the shortest one (``tokens``, decoded or as a
    byte-level vocabulary has them). The others of a longer prompt come like generated ones, and are
    recognised because they continue the prompt's text.
    """

    def __init__(self, prompt: str, tokens: Sequence[str]) -> None:
        self._signs = [sign for sign in "ĠĊ" if sign not in prompt]
        self._raw = self._shows_bytes("".join(tokens))
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._first: Iterator[str] = iter(tokens)
        self._left: str | None = prompt

    def begin(self) -> tuple[str, str]:
        """Return ``prompt`` and the text of the next of the first tokens."""
        text = self._text(next(self._first))
        self._follow(text)
        return "prompt", text

    def push(self, token: str) -> tuple[str, str]:
        """Return ``prompt`` or ``generated``, and what a token that came later adds to the text."""
        text = self._text(token)
        there = bool(self._left)
        self._follow(text)
        return "prompt" if there and self._left is not None else "generated", text

    def _follow(self, text: str) -> None:
        """Remove a text from what is left of the prompt; None where that does not begin with it."""
        if self._left is not None:
            self._left = self._left[len(text) :] if self._left.startswith(text) else None

    def _shows_bytes(self, text: str) -> bool:
        """Whether a text has the space or the end of line of a byte-level vocabulary."""
        return any(sign in text for sign in self._signs)

    def _text(self, token: str) -> str:
        self._raw = self._raw or self._shows_bytes(token)
        if not self._raw:
            return token
        known = _alphabet()
        return self._decoder.decode(
            b"".join(known.get(sign) or sign.encode("utf-8", "replace") for sign in token)
        )


@functools.cache
def _alphabet() -> dict[str, bytes]:
    """Return the byte of each character of a byte-level vocabulary.

    Printable ones stand for themselves, the others are numbered from 256.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    signs = [*map(chr, printable), *(chr(256 + number) for number in range(len(others)))]
    return {sign: bytes([byte]) for sign, byte in zip(signs, [*printable, *others], strict=True)}


_START = (1, 0)


class PeerGeneration:
    """The one generation of a translation. It has the number 1.

    A row of a generated token waits for what comes next: only then is it known whether the peer read the
    token, and where its tensors are.
    """

    def __init__(self, request: GenerationRequest, who: str) -> None:
        self._request, self._who = request, who
        self._began = 0.0
        self._padded = self._sequences = 0
        self._texts: list[PeerText] = []
        self._positions: list[int] = []
        self._waiting: tuple[_PassNumber, list[tuple[int, PeerToken, list[PeerToken]]]] = (_START, [])
        self._rows: list[_Row] = []
        self._states: list[_Row] = []
        self._asked = self._over = False
        self.tokens = self.step = 0

    @property
    def started(self) -> bool:
        """Whether the prompts came."""
        return self._sequences > 0

    # -- what happens ----------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Note that it was asked for."""
        self._asked = True
        self._state("queued", 0, request=json.dumps(self._request.to_message(), ensure_ascii=False))

    def start(self, prompts: list[list[PeerToken]]) -> None:
        """Take the prompts as far as the peer sends them: up to the length of the shortest."""
        self._began, self.step = time.monotonic(), 1
        self._sequences, self._padded = len(prompts), len(prompts[0])
        self._texts = [
            PeerText(prompt, [token.text for token in tokens if token.id != PADDING])
            for prompt, tokens in zip(self._request.prompts, prompts, strict=True)
        ]
        self._positions = [0] * len(prompts)
        for at in range(self._padded):
            for sequence, tokens in enumerate(prompts):
                if tokens[at].id != PADDING:
                    self._put(sequence, tokens[at], None, _START, (_START, at))
        self._state("running", 1, message=_SEEDLESS)

    def take(
        self, candidates: Sequence[Sequence[PeerToken]], sampled: Sequence[PeerToken], number: _PassNumber
    ) -> None:
        """Take the end of a forward pass: each sequence's candidates, and the token that was sampled."""
        self.go_on(number)
        for sequence, (token, others) in enumerate(zip(sampled, candidates, strict=True)):
            if token.id != PADDING:
                self._waiting[1].append((sequence, token, [each for each in others if each.id != PADDING]))
        self._waiting, self.step = (number, self._waiting[1]), number[0]
        self.tokens += len(self._waiting[1])

    def go_on(self, number: _PassNumber | None) -> None:
        """Note in which forward pass the peer reads the tokens that it sampled last; None if in none."""
        at, waiting = self._waiting
        if number is not None and number <= at:
            return
        self._waiting = (_START, [])
        for sequence, token, candidates in waiting:
            self._put(sequence, token, candidates, at, None if number is None else (number, 0))

    def end(self, state: str, step: int, message: str = "") -> None:
        """Note once that it is over: ``finished``, ``failed`` or ``cancelled``."""
        self.go_on(None)
        if self._asked and not self._over:
            self._over = True
            self._state(state, step, message=message)

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows since the last call, by stream and in pieces that fit a frame."""
        waiting = (("generations", self._states), ("tokens", self._rows))
        self._states, self._rows = [], []
        for name, rows in waiting:
            for at in range(0, len(rows), _FRAME_ROWS):
                piece = rows[at : at + _FRAME_ROWS]
                columns = {column: [row[column] for row in piece] for column in piece[0]}
                yield name, pa.Table.from_batches([arrow_batch(columns, stream_schema(name))])

    # -- rows ------------------------------------------------------------------------------------------------

    def _state(self, state: str, step: int, *, request: str = "", message: str = "") -> None:
        runs = self._began > 0
        self._states.append(
            {
                "step": step,
                "time": time.time(),
                "generation": _NUMBER,
                "state": state,
                "who": self._who,
                "place": 0,
                "control": 0,
                "sequences": self._sequences,
                "padded": self._padded,
                "first_step": 1 if runs else -1,
                "last_step": step if runs else -1,
                "tokens": self.tokens,
                "seconds": time.monotonic() - self._began if runs else 0.0,
                "request": request,
                "message": message,
            }
        )

    def _put(
        self,
        sequence: int,
        token: PeerToken,
        candidates: Sequence[PeerToken] | None,
        number: _PassNumber,
        read: tuple[_PassNumber, int] | None,
    ) -> None:
        texts = self._texts[sequence]
        kind, text = texts.begin() if candidates is None else texts.push(token.text)
        candidates = candidates or ()
        ids = [each.id for each in candidates]
        (tensor_step, tensor_pass), offset = read or ((-1, -1), -1)
        self._rows.append(
            {
                "step": number[0],
                "generation": _NUMBER,
                "sequence": sequence,
                "position": self._positions[sequence],
                "kind": kind,
                "id": token.id,
                "text": text,
                "piece": token.text,
                "logit": token.logit,
                "probability": token.probability,
                "sampled_probability": math.nan,
                # Candidates are sorted, so one of them has as many above it as stand before it.
                "rank": ids.index(token.id) if token.id in ids else -1,
                "entropy": math.nan,
                "candidate_ids": ids,
                "candidate_texts": [each.text for each in candidates],
                "candidate_logits": [each.logit for each in candidates],
                "candidate_probabilities": [each.probability for each in candidates],
                "candidate_sampled": [],
                "tensor_step": tensor_step,
                "tensor_pass": tensor_pass,
                "tensor_offset": offset,
            }
        )
        self._positions[sequence] += 1
