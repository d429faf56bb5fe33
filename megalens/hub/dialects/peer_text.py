"""The text of one sequence of an inference hub, put together from its tokens."""

from __future__ import annotations

import codecs
import functools
from collections.abc import Iterator, Sequence

__all__ = ["PeerText"]


class PeerText:
    """Says of each token whether it is of the prompt, and what it adds to the text.

    A peer names the tokens of each prompt up to the length of the shortest one. The others of a longer prompt come like generated ones, and are told
    by going on with the prompt's text.

    Parameters
    ----------
    prompt : str
        What was asked to go on from.
    tokens : sequence of str
        Its first tokens, as the peer writes them: decoded, or as a byte-level vocabulary has them.
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
        """Keep what is left of the prompt after a text; None where the text is not how it goes on."""
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
    """Return the byte that each character of a byte-level vocabulary stands for: printable ones for themselves, the others for what follows 255."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    signs = [*map(chr, kept), *(chr(256 + number) for number in range(len(others)))]
    return {sign: bytes([byte]) for sign, byte in zip(signs, [*kept, *others], strict=True)}
