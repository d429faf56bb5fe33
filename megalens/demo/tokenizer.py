"""The demo's vocabulary: one token per byte."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["ByteTokenizer"]


class ByteTokenizer:
    """Text to byte ids and back. It has the ``decode`` that the tracer asks a tokenizer for."""

    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        """Return the ids of the UTF-8 bytes of ``text``."""
        return list(text.encode("utf-8"))

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Return the text of some ids; bytes that are no UTF-8 by themselves become U+FFFD."""
        numbers = ids.tolist() if isinstance(ids, Tensor) else [int(i) for i in ids]
        return bytes(numbers).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the byte that an id stands for."""
        return bytes([token])

    def tensor(self, text: str) -> Tensor:
        """Return the ids of ``text`` as ``[1, S]`` int64."""
        return torch.tensor([self.encode(text)], dtype=torch.long)
