"""Windows of text as token ids."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Windows"]


class Windows:
    """Windows of ``sequence + 1`` bytes out of one text, random for training and evenly spaced for measuring.

    Parameters
    ----------
    text : bytes
        The text.
    sequence : int
        Tokens a model reads; a window has one more, the last target.
    seed : int
        Seed of the random windows.
    """

    def __init__(self, text: bytes, sequence: int, seed: int = 0) -> None:
        if len(text) <= sequence:
            raise ValueError(f"Expected a text of more than {sequence} bytes, got {len(text)}.")
        self._ids = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._window = torch.arange(sequence + 1)
        self._generator = torch.Generator().manual_seed(seed)

    def random(self, batch: int) -> Tensor:
        """Return ``[batch, sequence + 1]`` int64 ids of random windows."""
        starts = torch.randint(len(self._ids) - len(self._window) + 1, (batch, 1), generator=self._generator)
        return self._at(starts)

    def spaced(self, count: int) -> Tensor:
        """Return ``[n, sequence + 1]`` int64 ids of at most ``count`` windows, evenly spaced and not overlapping."""
        stride = len(self._window) - 1
        available = (len(self._ids) - 1) // stride
        chosen = torch.linspace(0, available - 1, min(count, available)).long()
        return self._at(chosen[:, None] * stride)

    def _at(self, starts: Tensor) -> Tensor:
        return self._ids[starts + self._window].long()
