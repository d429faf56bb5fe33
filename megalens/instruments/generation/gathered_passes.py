"""What was written in several passes, told together: every frame wakes the hub and each viewer, and passes are short."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...tracer.tensors.window import Window
from .errors import GenerationError
from .lens import LensReader
from .token_rows import PlacedPass, TokenRows

__all__ = ["GatheredPasses"]

_SECONDS = 0.05
"""Less than an eye notices."""
_APART = 0.03
"""Passes that are further apart are told one by one: to tell costs some 6 ms, and nobody waits for a word."""
_MOST_BYTES = 16 << 20


class GatheredPasses:
    """Gathers passes, makes their rows together, and sends them about 20 times a second.

    Parameters
    ----------
    send : callable
        Takes a stream, columns by name and the newest step among them.
    rows : TokenRows
        Makes rows of tokens.
    lens : LensReader or None
        Makes rows of the logit lens.
    say : callable
        Takes a sentence for the user.
    tensors : callable
        Hands over what the passes' tensors gave.
    """

    def __init__(
        self,
        send: Callable[[str, Mapping[str, Any], int], None],
        rows: TokenRows,
        lens: LensReader | None,
        say: Callable[[str], None],
        tensors: Callable[[], None],
    ) -> None:
        self._send, self._rows, self._lens, self._say, self._tensors = send, rows, lens, say, tensors
        self._passes: list[PlacedPass] = []
        self._states: list[Sequence[Tensor]] = []
        self._nbytes = 0
        self._sent = self._passed = 0.0

    def add(self, done: PlacedPass, window: Window | None) -> None:
        """Take a pass that is over, and send what waits where that is due: at once after the prompts were read."""
        kept = done.done
        now = time.monotonic()
        due = kept.number == 0 or now - self._sent >= _SECONDS or now - self._passed >= _APART
        if not due:
            # The next pass may write over what this one gave.
            kept = replace(kept, logits=kept.logits[:, -1:].clone())
            self._nbytes += kept.logits.nbytes
        self._passes.append(done._replace(done=kept))
        if self._lens is not None:
            states: Sequence[Tensor] = self._lens.states(window)
            if not due:
                copied = torch.stack(list(states))
                states = list(copied)
                self._nbytes += copied.nbytes
            self._states.append(states)
        if due or self._nbytes > _MOST_BYTES:
            self.flush()
        self._passed = time.monotonic()

    def flush(self) -> None:
        """Send what waits."""
        passes, states, self._passes, self._states, self._nbytes = self._passes, self._states, [], [], 0
        # What is sent wakes the thread that sends, which then takes the interpreter: so all is made before.
        made = [*self._made(passes, states)] if passes else []
        self._tensors()
        for stream, columns in made:
            self._send(stream, columns, passes[-1].here.step)
        self._sent = time.monotonic()

    def _made(
        self, passes: Sequence[PlacedPass], states: Sequence[Sequence[Tensor]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Give what there is to send: the stream, and its columns by name."""
        yield from (("tokens", each) for each in _together(self._rows.of(passes)))
        if self._lens is not None:
            try:
                yield from (("lens", each) for each in _together(self._lens.rows(passes, states)))
            except GenerationError as error:
                # The text goes on without.
                self._lens = None
                self._say(str(error))


def _together(several: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Give the columns of all, where there are any."""
    found = list(several)
    if len(found) > 1:
        yield {name: _joined([columns[name] for columns in found]) for name in found[0]}
    else:
        yield from found


def _joined(columns: list[Any]) -> Any:
    if isinstance(columns[0], pa.Array):
        return pa.concat_arrays(columns)
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return [value for column in columns for value in column]
