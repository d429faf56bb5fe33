"""Tokens as an inference hub sends them: of the prompts, and twenty candidates for the next one with the one that was taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .peer_message import BadMessage

__all__ = ["PADDING", "PeerToken", "read_candidates", "read_prompts"]

PADDING = -1
"""Id of what is no token. Our own gateway pads shorter prompts with it; no peer sends it."""
_MOST_ID = (1 << 31) - 1
_MOST_TOKENS = 1_000_000
_MOST_CANDIDATES = 100
_MOST_TEXT = 200


@dataclass(frozen=True)
class PeerToken:
    """One token.

    Attributes
    ----------
    id : int
        In the peer's vocabulary; :data:`PADDING` for none.
    text : str
        As the peer writes it: decoded, or as the vocabulary has it.
    logit, probability : float
        NaN where the peer does not say.
    """

    id: int
    text: str
    logit: float = math.nan
    probability: float = math.nan


def read_prompts(prompts: Any, sequences: int) -> list[list[PeerToken]]:
    """Return the first positions of each prompt, which come as one flat list.

    Raises
    ------
    BadMessage
        When it is none, or of another number of sequences.
    """
    if not isinstance(prompts, list) or not prompts or len(prompts) % sequences:
        raise BadMessage("start messages whose prompts fit no batch size")
    if len(prompts) > _MOST_TOKENS:
        raise BadMessage(f"start messages of more than {_MOST_TOKENS} tokens")
    tokens = _tokens(prompts, "start messages whose prompts have no token")
    return _rows(tokens, sequences)


def read_candidates(
    message: Mapping[str, Any], sequences: int
) -> tuple[list[list[PeerToken]], list[PeerToken]]:
    """Return of an update with candidates those of each sequence, most probable first, and the token that each took.

    Raises
    ------
    BadMessage
        When it has none, or they are of another number of sequences.
    """
    result, sampled = message.get("result"), message.get("sampled")
    if not isinstance(result, list) or not isinstance(sampled, list):
        raise BadMessage("updates of candidates that are no lists")
    if len(sampled) != sequences or not result or len(result) % sequences:
        raise BadMessage("updates of candidates that fit no batch size")
    reason = "updates of candidates that have no token"
    found = _rows(_tokens(result, reason), sequences)
    return [each[:_MOST_CANDIDATES] for each in found], _tokens(sampled, reason)


def _rows(tokens: list[PeerToken], sequences: int) -> list[list[PeerToken]]:
    length = len(tokens) // sequences
    return [tokens[at : at + length] for at in range(0, len(tokens), length)]


def _tokens(given: list[Any], reason: str) -> list[PeerToken]:
    return [_token(each, reason) for each in given]


def _token(given: Any, reason: str) -> PeerToken:
    if not isinstance(given, dict) or not isinstance(given.get("token"), str):
        raise BadMessage(reason)
    number = given.get("id")
    if type(number) is not int or not PADDING <= number <= _MOST_ID:
        raise BadMessage(reason)
    logit, probability = (_number(given.get(name), reason) for name in ("logit", "probability"))
    return PeerToken(number, given["token"][:_MOST_TEXT], logit, probability)


def _number(value: Any, reason: str) -> float:
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        raise BadMessage(reason)
    try:
        return float(value)
    except OverflowError as error:
        raise BadMessage(reason) from error
