"""Texts of token ids, for any tokenizer."""

from __future__ import annotations

import codecs
import functools
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .errors import GenerationError

_KNOWN = 1 << 17
_LOOKED_AT = 16
"""Most tokens of one character, with those that join it to the text before."""
_CUT = "\ufffd"


class ITextStream(Protocol):
    """The text of one sequence as its tokens come."""

    def push(self, token: int) -> str:
        """Return what a token adds to the text: nothing until its bytes complete a character."""
        ...


class Texts:
    """Text to ids and back. Unknown ids have a piece that says so, and no text.

    Parameters
    ----------
    tokenizer : Any
        With ``encode(text)`` and ``decode([id, …])``: of Hugging Face or of the library tokenizers, or one's
        own, which may have ``token_bytes(id)``.

    Raises
    ------
    GenerationError
        When it has not.
    """

    def __init__(self, tokenizer: Any) -> None:
        for name in ("encode", "decode"):
            if not callable(getattr(tokenizer, name, None)):
                raise GenerationError(
                    f"A tokenizer must have encode(text) and decode(ids), got a {type(tokenizer).__name__} "
                    f"without {name}."
                )
        self._tokenizer = tokenizer
        # Those of Hugging Face can fail where two threads use them at once.
        self._alone = threading.RLock()
        ends = [getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "pad")]
        self._silent = frozenset(each for each in ends if isinstance(each, int))
        end = getattr(tokenizer, "eos_token_id", None)
        self.end_tokens: frozenset[int] = frozenset([end] if isinstance(end, int) else [])
        """The tokenizer's own ends of text."""
        self._bytes = _bytes_of(tokenizer)
        self._drops_space = _drops_space(tokenizer)
        self.piece: Callable[[int], str] = functools.lru_cache(_KNOWN)(self._piece)
        """Text of one id by itself; incomplete characters as ``<0xE2>``."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, with the tokenizer's special tokens at the beginning.

        Raises ``GenerationError`` for half a character, and where the tokenizer returns nothing.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = text[error.start].encode("utf-8", "backslashreplace").decode()
            raise GenerationError(
                f"The text has half a character ({half}) at {error.start}, which no tokenizer can read. Take "
                "it out."
            ) from None
        try:
            with self._alone:
                found = self._tokenizer.encode(text)
            ids = [int(each) for each in _flat(getattr(found, "ids", found))]
        except Exception as error:  # The tokenizer is the user's.
            raise GenerationError(
                f"The tokenizer ({type(self._tokenizer).__name__}) could not read the text: "
                f"{str(error)[:200] or type(error).__name__}."
            ) from error
        if not ids:
            raise GenerationError(
                f"The tokenizer ({type(self._tokenizer).__name__}) makes no token of the text {text!r:.60}."
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a sequence as it streams, without an incomplete character at its end."""
        stream = self.stream()
        return "".join(stream.push(token) for token in ids)

    def stream(self) -> ITextStream:
        if self._bytes is not None:
            return _ByteStream(self._bytes, self._silent, self._drops_space)
        return _WindowStream(self._decode, self._silent)

    def _piece(self, token: int) -> str:
        with self._alone:
            if self._bytes is None:
                return self._decode([token]) or _unknown(self._tokenizer, token)
            found = self._bytes(token)
        return f"<unknown {token}>" if found is None else _shown(found)

    def _decode(self, ids: Sequence[int]) -> str:
        try:
            with self._alone:
                return str(self._tokenizer.decode(list(ids)))
        except Exception:  # An id that it does not know: it may raise what it likes.
            return ""


class _ByteStream:
    """The text of a tokenizer whose tokens are bytes."""

    def __init__(
        self, bytes_of: Callable[[int], bytes | None], silent: frozenset[int], drops_space: bool
    ) -> None:
        self._bytes, self._silent = bytes_of, silent
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drops_space = drops_space

    def push(self, token: int) -> str:
        if token in self._silent:
            return ""
        text = self._decoder.decode(self._bytes(token) or b"")
        if self._drops_space and text:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


class _WindowStream:
    """The text of other tokenizers: the decoded last tokens with the new one, minus those without it."""

    def __init__(self, decode: Callable[[Sequence[int]], str], silent: frozenset[int]) -> None:
        self._decode, self._silent = decode, silent
        self._ids: list[int] = []
        self._reported = 0
        """How many of them are reported."""

    def push(self, token: int) -> str:
        if token in self._silent:
            return ""
        self._ids.append(token)
        before, now = self._decode(self._ids[: self._reported]), self._decode(self._ids)
        waits = len(self._ids) - self._reported
        if now.endswith(_CUT) and waits < _LOOKED_AT:
            return ""
        # Reported tokens stay as context, since tokens at the beginning of a text may decode differently.
        self._ids = self._ids[-_LOOKED_AT:] if len(self._ids) > 2 * _LOOKED_AT else self._ids
        self._reported = len(self._ids)
        return now[len(before) :]


def _flat(ids: Any) -> Any:
    """Return ids without the batch axis that some tokenizers give."""
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    return ids[0] if ids and isinstance(ids[0], (list, tuple)) else ids


def _shown(data: bytes) -> str:
    """Return bytes as text, invalid ones as ``<0xE2>``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "megalens.instruments.generation.hex")


def _hex(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<0x{each:02X}>" for each in error.object[error.start : error.end]), error.end


codecs.register_error("megalens.instruments.generation.hex", _hex)


def _unknown(tokenizer: Any, token: int) -> str:
    """Return the piece of an id that is decoded to nothing."""
    named = getattr(tokenizer, "convert_ids_to_tokens", None)
    try:
        name = named(token) if callable(named) else None
    except Exception:  # As above.
        name = None
    return name if isinstance(name, str) else f"<unknown {token}>"


def _bytes_of(tokenizer: Any) -> Callable[[int], bytes | None] | None:
    """Return the function from an id to its bytes (None: unknown), or None where it does not exist."""
    own = getattr(tokenizer, "token_bytes", None)
    if callable(own):
        return lambda token: _own_bytes(own, token)
    kinds = {each["type"] for each in _decoders(tokenizer)}
    backend = _backend(tokenizer)
    added = (
        {token: each.content for token, each in backend.get_added_tokens_decoder().items()} if kinds else {}
    )
    if "ByteLevel" in kinds:
        alphabet = _alphabet()

        def read(name: str) -> bytes:
            return b"".join(bytes([alphabet[each]]) if each in alphabet else each.encode() for each in name)

    elif "ByteFallback" in kinds:

        def read(name: str) -> bytes:
            if len(name) == 6 and name.startswith("<0x"):
                return bytes([int(name[3:5], 16)])
            return name.replace("\u2581", " ").encode()

    else:
        return None

    def bytes_of(token: int) -> bytes | None:
        if token in added:
            return str(added[token]).encode()
        name = backend.id_to_token(token) if 0 <= token < 1 << 31 else None
        return None if name is None else read(name)

    return functools.lru_cache(_KNOWN)(bytes_of)


def _own_bytes(own: Callable[[int], bytes], token: int) -> bytes | None:
    try:
        return bytes(own(token))
    except Exception:  # An id that it does not know.
        return None


def _backend(tokenizer: Any) -> Any:
    """Return the ``tokenizers.Tokenizer`` inside, or the tokenizer itself."""
    return getattr(tokenizer, "backend_tokenizer", tokenizer)


def _decoders(tokenizer: Any) -> list[dict[str, Any]]:
    """Return the library tokenizers' decoder steps; nothing of other tokenizers."""
    backend = _backend(tokenizer)
    if not (hasattr(backend, "to_str") and hasattr(backend, "get_added_tokens_decoder")):
        return []
    decoder = getattr(backend, "decoder", None)
    if decoder is None:
        return []
    # The tokenizer's complete JSON would include its vocabulary.
    state = json.loads(decoder.__getstate__())
    steps = state.get("decoders", [state])
    return [each for each in steps if isinstance(each, dict) and "type" in each]


def _drops_space(tokenizer: Any) -> bool:
    """Return whether the space before the first word is no part of the text."""
    return any(
        each["type"] == "Strip" and each.get("content") == " " and each.get("start")
        for each in _decoders(tokenizer)
    )


@functools.cache
def _alphabet() -> dict[str, int]:
    """Return each byte-level character's byte: printable ones are their own, others follow 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    found = {chr(each): each for each in printable}
    others = (each for each in range(256) if each not in printable)
    found.update({chr(256 + number): each for number, each in enumerate(others)})
    return found
