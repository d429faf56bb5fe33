"""Texts that travel with token ids."""

from __future__ import annotations

import functools
from collections.abc import Callable

from .batch import Row

__all__ = ["TokenTexts"]

_KNOWN = 65536


class TokenTexts:
    """Decodes the ids of ``InputTokens``. A tokenizer that fails is asked no more.

    Parameters
    ----------
    decode : callable
        Text of one token id.
    warn : callable
        Takes a sentence for the user.
    """

    def __init__(self, decode: Callable[[int], str], warn: Callable[[str], None]) -> None:
        self._decode: Callable[[int], str] | None = functools.lru_cache(_KNOWN)(decode)
        self._warn = warn

    def __call__(self, row: Row) -> list[str]:
        """Return the text of each value of ``row``; nothing where it holds no ids."""
        if row.meta.flag != "InputTokens" or row.meta.part != "ids" or self._decode is None:
            return []
        try:
            return [self._decode(int(number)) for number in row.values.reshape(-1).tolist()]
        except Exception as error:  # The tokenizer is the user's.
            self._warn(
                f"The tokenizer could not decode ids ({type(error).__name__}). Tokens are shown without text."
            )
            self._decode = None
            return []
