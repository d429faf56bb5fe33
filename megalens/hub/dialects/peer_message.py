"""Reads what a peer sends: JSON with ``NaN`` and ``Infinity``, and updates whose shape must be inferred.

Connects to a foreign hub, and detects its dialect.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from ..connections import DirectConnect
from .dialect import DIALECTS, Dialect, DialectError

MOST_BYTES = 256 * 1024 * 1024
"""Largest message of a foreign hub."""
_OPEN_SECONDS = 10
_PROBE_SECONDS = 3.0


async def open_peer(address: str) -> ClientConnection | None:
    """Connect to a foreign hub. None when it cannot be reached now.

    Raises ``DialectError``: ``bad-parameter`` for no address, ``dialect`` when the answer is no such hub's.
    """
    try:
        return await DirectConnect(
            address,
            compression=None,
            proxy=None,
            max_size=MOST_BYTES,
            max_queue=4,
            open_timeout=_OPEN_SECONDS,
            close_timeout=2,
            # A peer that computes for long is still there; the pings find out when the machine is not.
            ping_interval=20,
            ping_timeout=None,
        )
    except InvalidURI as error:
        raise DialectError(
            "bad-parameter", f"{address!r:.200} is no address such as ws://host:5000."
        ) from error
    except InvalidStatus as error:
        status = error.response.status_code
        hint = " A Megalens hub is connected to with its token." if status in (401, 403) else ""
        raise DialectError(
            "dialect", f"{address} answers with HTTP status {status}, which none of these hubs does.{hint}"
        ) from error
    except (InvalidHandshake, OSError, asyncio.TimeoutError, EOFError):
        return None


async def detect(connection: ClientConnection) -> tuple[Dialect, list[str | bytes]]:
    """Return the hub's dialect, and what else it sent meanwhile; raises ``DialectError`` (``dialect``).

    It shows in the answers to ``ping`` and to a message that none of them knows.
    """
    await connection.send(json.dumps({"type": "ping"}))
    await connection.send(json.dumps({"type": "megalens-who-are-you"}))
    ponged = False
    others: list[str | bytes] = []
    received = 0
    deadline = time.monotonic() + _PROBE_SECONDS
    try:
        # A hub may send its steps meanwhile, and none is left out; one that sends more than this says nothing
        # else.
        while time.monotonic() < deadline and received <= MOST_BYTES:
            data = await asyncio.wait_for(connection.recv(), deadline - time.monotonic())
            if data == "Value Error!":
                return DIALECTS["inference"], others
            if isinstance(data, str) and data.replace(" ", "") == '{"type":"pong"}':
                ponged = True
                # The training hub prints the other message and says nothing, so there is no need to wait as
                # long.
                deadline = time.monotonic() + _PROBE_SECONDS / 3
            else:
                others.append(data)
                received += len(data)
    except (asyncio.TimeoutError, ConnectionClosed):
        pass
    if ponged:
        return DIALECTS["T1"], others
    names = ", ".join(f"{dialect.name} ({dialect.title})" for dialect in DIALECTS.values())
    raise DialectError(
        "dialect",
        "What this hub speaks cannot be told: it answers no ping, and the hubs that do not are alike "
        f"until they start. Say it with --dialect: {names}.",
    )


MOST_LAYERS = 10_000
_MOST_VALUES = 12_000_000
_MOST_AXES = 8
_Values = np.ndarray[Any, np.dtype[np.float32]]

PADDING = -1
"""Id of what is no token. Our own gateway pads shorter prompts with it; no peer sends it."""
_MOST_ID = (1 << 31) - 1
_MOST_TOKENS = 1_000_000
_MOST_CANDIDATES = 100
_MOST_TEXT = 200


@dataclass(frozen=True)
class PeerToken:
    """One token.

    ``id`` is :data:`PADDING` for none, ``text`` is as the peer writes it (decoded, or as the vocabulary has
    it), ``logit`` and ``probability`` are NaN where the peer does not say.
    """

    id: int
    text: str
    logit: float = math.nan
    probability: float = math.nan


def read_prompts(prompts: Any, sequences: int) -> list[list[PeerToken]]:
    """Return the first positions of each prompt, which come as one flat list; raises ``BadMessage``."""
    if not isinstance(prompts, list) or not prompts or len(prompts) % sequences:
        raise BadMessage("start messages whose prompts fit no batch size")
    if len(prompts) > _MOST_TOKENS:
        raise BadMessage(f"start messages of more than {_MOST_TOKENS} tokens")
    tokens = _tokens(prompts, "start messages whose prompts have no token")
    return _rows(tokens, sequences)


def read_candidates(
    message: Mapping[str, Any], sequences: int
) -> tuple[list[list[PeerToken]], list[PeerToken]]:
    """Return each sequence's candidates, most probable first, and sampled token; raises ``BadMessage``."""
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


class BadMessage(ValueError):
    """A message is left out, and counted under this reason."""


@dataclass(frozen=True)
class TensorRow:
    """One row of ``tensors``, but for step and compressor; ``values`` are float32, samples first."""

    flag: str
    part: str
    layer: int
    values: _Values
    labels: list[str] = field(default_factory=list)


def is_shape(sizes: Sequence[int]) -> bool:
    """Whether whole numbers are a shape that an array can have.

    An axis of length 0, which ``Empty`` sends, hides no other's length.
    """
    # Each is looked at first: the product of thousands of long numbers takes long.
    return (
        len(sizes) <= _MOST_AXES
        and all(0 <= size <= _MOST_VALUES for size in sizes)
        and math.prod(max(size, 1) for size in sizes) <= _MOST_VALUES
    )


def read_message(data: str | bytes) -> dict[str, Any]:
    """Return the message in one frame; raises ``BadMessage``.

    Python's JSON, which is the peers', takes the bare words NaN and Infinity.
    """
    if isinstance(data, bytes):
        raise BadMessage("binary messages")
    try:
        message = json.loads(data)
        if "\\u" in data:
            # Half a surrogate pair is no text: neither a recording nor a viewer could be given it.
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise BadMessage("messages that are not JSON") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise BadMessage("messages that are no JSON object with a type")
    return message


def read_update(
    dialect: Dialect, message: Mapping[str, Any], pixels: Mapping[str, int], batch: int | None = None
) -> list[TensorRow]:
    """Return the rows of an ``update``; raises ``BadMessage`` when it is not what the dialect says.

    ``pixels`` are the values a position that were asked for, by flag: with them the length gives the batch
    size, which no update has. ``batch`` is that of ``start``; what does not fit it was not asked for.
    """
    number = message.get("update_type")
    flag = dialect.numbers.get(number) if type(number) is int else None
    if flag is None:
        raise BadMessage(f"updates with update_type {str(number)[:20]}, which {dialect.name} does not have")
    result = message.get("result")
    if not isinstance(result, list):
        raise BadMessage("updates without a list of results")
    layer = message.get("layer_id")
    if type(layer) is not int or not 0 <= layer <= MOST_LAYERS:
        raise BadMessage("updates without a layer_id")
    # Every dialect counts layers from 1, and calls what is no layer's 0.
    layer -= 1
    args = message.get("args")
    if not isinstance(args, list) or not all(type(size) is int for size in args) or not is_shape(args):
        raise BadMessage(f"updates whose args are no list of at most {_MOST_AXES} sizes")
    if len(result) > _MOST_VALUES:
        raise BadMessage(f"tensors of more than {_MOST_VALUES} values")
    values = _numbers(result)
    if dialect.full_shape:
        return _whole(flag, layer, args, values)
    shape = _inferred(flag, args, values.size, pixels.get(flag), batch)
    return [TensorRow(flag, "", layer, values.reshape(shape))]


def _numbers(result: list[Any]) -> _Values:
    """Return numbers as float32; null is NaN, which is how a browser writes it."""
    try:
        # The types are looked at first: NumPy would take "1.5" and True too.
        if not set(map(type, result)) <= {float, int}:
            if not set(map(type, result)) <= {float, int, type(None)}:
                raise BadMessage("updates whose results are not numbers")
            result = [math.nan if value is None else value for value in result]
        with np.errstate(over="ignore"):
            return np.asarray(result, dtype=np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadMessage("updates whose results are not numbers") from error


def _whole(flag: str, layer: int, args: list[int], values: _Values) -> list[TensorRow]:
    if len(args) < 2:
        raise BadMessage("updates whose args are not a whole shape, as if from another dialect")
    if math.prod(args) != values.size:
        raise BadMessage("updates whose args and results disagree")
    if flag == "InputTokens":
        if len(args) != 3 or args[0] != 2:
            raise BadMessage("updates of InputTokens that are not [2, B, S]")
        ids, positions = values.reshape(args)
        return [TensorRow(flag, "ids", layer, ids), TensorRow(flag, "positions", layer, positions)]
    return [TensorRow(flag, "", layer, values.reshape(args))]


def _inferred(
    flag: str, args: list[int], length: int, pixels: int | None, batch: int | None
) -> tuple[int, ...]:
    """Return the shape with the batch axis that the peer leaves out."""
    if flag == "RawAttentionScore_mat_mul":
        if len(args) != 3:
            raise BadMessage("updates of attention whose args are not [H, Sq, Sk]")
        return (_divided(flag, length, math.prod(args), batch), *args)
    if flag == "MLP2_Plot":
        if len(args) != 2 or math.prod(args) * 2 != length:
            raise BadMessage("updates whose args and results disagree")
        return (args[0], args[1], 2)
    if len(args) != 1:
        raise BadMessage("updates whose args are not [S], as if from another dialect")
    if pixels is None:
        raise BadMessage(f"updates of {flag} that were not asked for, so that their batch size is not known")
    return (_divided(flag, length, args[0] * pixels, batch), args[0], pixels)


def _divided(flag: str, length: int, size: int, batch: int | None) -> int:
    if size == 0 or length == 0 or length % size:
        raise BadMessage(
            "updates whose length fits no batch size, as if someone else's request were in force"
        )
    if batch not in (None, length // size):
        raise BadMessage(
            f"updates of {flag} with {length} values where {batch * size} were expected at the batch size "
            f"{batch} that start said, as if someone else's request were in force"
        )
    return length // size
