"""A generation of ours in the words of an inference hub.

Its client cuts everything by one rule: the vector of token ``t`` of prompt ``b`` begins at
``(b * S + t) * tiles``, ``S`` being the positions of the pass. The peer makes that so by cutting all prompts
to the length of the shortest. Here none is cut: the shorter ones begin with padding, which has an entry in
``start.prompts``, zeros where vectors are, and no point in the projection.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .client_generate import CANDIDATES, ClientGeneration, TensorKey, WrittenPass
from .dialect import DIALECTS
from .peer_message import PADDING

_DIALECT = DIALECTS["inference"]
_NUMBERS = {name: number for number, name in _DIALECT.numbers.items()}
_MLP2, _PLOT, _ATTENTION = "MLP2_mat_mul", "MLP2_Plot", "RawAttentionScore_mat_mul"
_NO_TOKEN = {"id": PADDING, "token": ""}
_MOST_ATTENTION = 4 << 20
_MOST_PLOTTED = 32 << 20
_Values = np.ndarray[Any, Any]

_ValuesPlane = np.ndarray[Any, np.dtype[np.float32]]


def numbers_json(values: np.ndarray[Any, Any]) -> str:
    """Return a list of all values; NaN is ``null``, as browsers write it, infinity is ``1e999``.

    That is JSON, and is read as infinity.
    """
    flat = values.ravel().tolist()
    if np.isfinite(values).all():
        return json.dumps(flat, separators=(",", ":"))
    return f"[{','.join(map(number_json, flat))}]"


def number_json(value: float) -> str:
    """Return one number, as :func:`numbers_json` writes it."""
    if math.isnan(value):
        return "null"
    if math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def plane(vectors: _ValuesPlane) -> _ValuesPlane:
    """Return standardised vectors on their two principal axes.

    Parameters
    ----------
    vectors : numpy.ndarray
        float32 ``[n, features]``, one or more.

    Returns
    -------
    numpy.ndarray
        float32 ``[n, 2]``, 0 on an axis that they do not have. The largest weight of each axis is positive.
        NaN where a value is not finite.
    """
    points = np.zeros((len(vectors), 2), np.float32)
    if not np.isfinite(vectors).all():
        return np.full_like(points, np.nan)
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    deviation = centred.std(axis=0)
    # Of what is the same in all of them, rounding is all that deviates.
    constant = deviation <= 10 * np.finfo(np.float32).eps * np.abs(vectors).max(axis=0)
    centred[:, constant] = 0
    centred /= np.where(constant, 1, deviation)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    points[:, : len(axes)] = centred @ (axes * np.where(largest < 0, -1, 1)).T
    return points


class GenerationWriter:
    """Writes the messages of one generation.

    ``parts`` are the names of the parts of each flag, in order. ``left_out`` has sentences about what could
    not be sent, by flag.
    """

    def __init__(self, asked: ClientGeneration, layers: int, parts: Mapping[str, Sequence[str]]) -> None:
        self._asked, self._layers, self._parts = asked, layers, parts
        self._prompts: list[list[dict[str, Any]]] = []
        self._written: list[list[dict[str, Any]]] = []
        self._pads: list[int] = []
        self._padded = self._total = 0
        self._plotted: dict[int, list[_Values]] = {}
        self._plotted_values = 0
        self.left_out: dict[str, str] = {}

    def start(self, prompts: Sequence[list[dict[str, Any]]], padded: int) -> str:
        """Return ``start``: the tokens of every prompt, the shorter ones after padding."""
        self._prompts = list(prompts)
        self._written = [[] for _ in prompts]
        self._padded = padded
        self._pads = [max(padded - len(each), 0) for each in prompts]
        flat = [
            token
            for pad, each in zip(self._pads, prompts, strict=True)
            for token in (*[_NO_TOKEN] * pad, *({"id": row["id"], "token": row["piece"]} for row in each))
        ]
        return json.dumps({"type": "start", "prompts": flat, "num_layers": self._layers})

    def updates(self, done: WrittenPass) -> Iterator[str]:
        """Yield the updates of one forward pass: its tensors layer by layer, then the candidates."""
        first = done.number == 0
        positions = self._padded if first else 1
        self._total += positions
        for layer in range(self._layers):
            for flag in self._asked.tiles:
                values = self._values(flag, layer, done.tensors, positions)
                if values is None:
                    continue
                if first:
                    self._blank_padding(flag, values)
                if flag == _MLP2 and self._asked.plot:
                    self._keep(layer, values)
                args = values.shape[1:] if flag == _ATTENTION else (positions,)
                yield update_text(_NUMBERS[flag], layer, args, values)
        if done.tokens:
            yield self._candidates(done.tokens)

    def projection(self) -> Iterator[str]:
        """Yield every token of all prompts on the two principal axes of each layer's MLP2 output."""
        for layer, pieces in sorted(self._plotted.items()):
            values = np.concatenate(pieces, axis=1)
            if values.shape[1] != self._total:
                self.left_out[_PLOT] = "The projection lacks what did not come of MLP2_mat_mul."
                continue
            real = self._real(values.shape[1])
            points = np.full((*real.shape, 2), np.nan, np.float32)
            if real.any():
                points[real] = plane(values[real])
            yield update_text(_NUMBERS[_PLOT], layer, real.shape, points)

    def finish(self) -> str:
        every = [[*prompt, *written] for prompt, written in zip(self._prompts, self._written, strict=True)]
        message: dict[str, Any] = {
            "type": "finish",
            "text": ["".join(row["text"] for row in rows) for rows in every],
            "segments": [[row["piece"] for row in rows] for rows in every],
        }
        text = json.dumps(message)
        if not self._asked.logprobs:
            return text
        # Nothing predicts the first token.
        lists = [f"[{','.join(number_json(_log(row['probability'])) for row in rows[1:])}]" for rows in every]
        return f'{text[:-1]}, "logprobs": [{",".join(lists)}]}}'

    # -- tensors ---------------------------------------------------------------------------------------------

    def _values(
        self, flag: str, layer: int, tensors: Mapping[TensorKey, _Values], positions: int
    ) -> _Values | None:
        """Return a flag's tensor as the client cuts it, as a copy; None where it has another size."""
        sequences = len(self._prompts)
        parts = [tensors.get((layer, flag, part)) for part in self._parts[flag]]
        there = [part for part in parts if part is not None]
        if len(there) != len(parts) or not parts:
            return None
        if flag == _ATTENTION:
            return self._attention(there[0], positions)
        tiles = self._asked.tiles[flag]
        share = max(1, tiles // len(parts))
        if any(part.ndim != 3 or part.shape[:2] != (sequences, positions) for part in there) or any(
            part.shape[2] > share for part in there
        ):
            self.left_out[flag] = f"{flag} is traced otherwise than was asked for: somebody else changed it."
            return None
        values = np.zeros((sequences, positions, tiles), np.float32)
        for at, part in enumerate(there):
            # Of fewer features than tiles each is one, and the rest is zero, as in the peer.
            values[:, :, at * share : at * share + part.shape[2]] = part
        return values

    def _attention(self, given: _Values, positions: int) -> _Values | None:
        if given.ndim != 4 or given.shape[0] != len(self._prompts) or given.shape[2] != positions:
            self.left_out[_ATTENTION] = (
                "Attention probabilities are traced otherwise than was asked for: somebody else changed it."
            )
            return None
        heads, keys = given.shape[1], given.shape[3]
        size = len(given) * heads * positions * self._total
        if size > _MOST_ATTENTION or keys > self._total:
            self.left_out[_ATTENTION] = (
                f"Attention of more than {_MOST_ATTENTION} probabilities a layer is not sent. Ask for "
                "fewer or shorter prompts."
            )
            return None
        values = np.zeros((len(given), heads, positions, self._total), np.float32)
        # A model that reads its newest positions only has none for the others.
        values[..., self._total - keys :] = given
        return values

    def _blank_padding(self, flag: str, values: _Values) -> None:
        """Set what was computed of padding to 0."""
        for sequence, pad in enumerate(self._pads):
            if flag == _ATTENTION:
                values[sequence, :, :pad] = 0
            else:
                values[sequence, :pad] = 0

    def _keep(self, layer: int, values: _Values) -> None:
        self._plotted_values += values.size
        if self._plotted_values > _MOST_PLOTTED:
            self.left_out[_PLOT] = (
                f"The projection needs more than {_MOST_PLOTTED} values of MLP2_mat_mul. Ask for fewer "
                "tokens or tiles."
            )
            self._plotted.clear()
        elif _PLOT not in self.left_out:
            self._plotted.setdefault(layer, []).append(values)

    def _real(self, length: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which positions are tokens that were read, bool ``[B, length]``."""
        real = np.zeros((len(self._prompts), length), np.bool_)
        for sequence, (pad, prompt) in enumerate(zip(self._pads, self._prompts, strict=True)):
            # Nobody read the last one.
            real[sequence, pad : pad + len(prompt) + max(len(self._written[sequence]) - 1, 0)] = True
        return real

    # -- tokens ----------------------------------------------------------------------------------------------

    def _candidates(self, tokens: Mapping[int, dict[str, Any]]) -> str:
        result: list[dict[str, Any]] = []
        sampled: list[dict[str, Any]] = []
        for sequence, written in enumerate(self._written):
            row = tokens.get(sequence)
            found: list[dict[str, Any]] = []
            if row is None:
                # A text that is over; the client counts on one entry a prompt.
                sampled.append(_info(PADDING, "", 0, 0))
            else:
                written.append(row)
                sampled.append(_info(row["id"], row["piece"], row["logit"], row["probability"]))
                found = [
                    _info(*each)
                    for each in zip(
                        row["candidate_ids"],
                        row["candidate_texts"],
                        row["candidate_logits"],
                        row["candidate_probabilities"],
                        strict=True,
                    )
                ][:CANDIDATES]
            result += found + [_info(PADDING, "", 0, 0)] * (CANDIDATES - len(found))
        message = {
            "type": "update",
            "update_type": _DIALECT.candidates,
            "result": result,
            "sampled": sampled,
        }
        return json.dumps(message, separators=(",", ":"))


def _info(number: int, text: str, logit: float, probability: float) -> dict[str, Any]:
    values = {"logit": logit, "probability": probability}
    return {
        "id": number,
        "token": text,
        **{name: value if math.isfinite(value) else None for name, value in values.items()},
    }


def update_text(number: int, layer: int, args: Sequence[int], values: _Values) -> str:
    """Return an ``update`` of values, in the words of every dialect: layers count from 1."""
    return (
        f'{{"type":"update","update_type":{number},"layer_id":{layer + 1},'
        f'"args":[{",".join(map(str, args))}],"result":{numbers_json(values)}}}'
    )


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf if probability == 0 else math.nan
