"""A ``generate`` of a client of an inference hub, in our words.

A generation of our hub, reassembled from its rows: forward pass by forward pass.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import GENERATION_ENDED, GenerationRequest, ProtocolError, perturb_from_disturbance
from ...protocol.errors import must_be
from ...protocol.messages_generated import CompressorSetting, GenerateRequest
from .dialect import GROUP_TILES
from .peer_message import is_shape
from .peer_request import reduction_of

TensorKey = tuple[int, str, str]
"""Layer, flag and part."""
_PassNumber = tuple[int, int]
_TOKEN = ("generation", "sequence", "position", "kind", "id", "text", "piece", "logit", "probability")
_READ = ("tensor_step", "tensor_pass")
_CANDIDATES = ("candidate_ids", "candidate_texts", "candidate_logits", "candidate_probabilities")
_Row = dict[str, Any]


@dataclass
class WrittenPass:
    """One forward pass.

    ``number`` counts from 0, the one that read the prompts. ``tokens`` are by sequence the rows of ``tokens``
    that were drawn from it, ``tensors`` float32 arrays by layer, flag and part.
    """

    number: int
    tokens: dict[int, _Row] = field(default_factory=dict)
    tensors: dict[TensorKey, np.ndarray[Any, Any]] = field(default_factory=dict)


class WrittenPasses:
    """Takes rows as they come, and gives the passes in order once all of their tensors are there.

    A tensor is waited for until the same one of a later pass has come: each process sends its own in order,
    and slow viewers are spared the oldest.

    Attributes
    ----------
    state, message : str
        Of the newest row of ``generations``.
    prompts : list of list of dict
        Rows of the prompts' tokens by sequence.
    padded : int
        Positions of the longest prompt.
    missing : set of TensorKey
        What was absent when its pass was given.
    broken : bool
        Whether rows of tokens are missing, as when the hub gave them up for a slow viewer.
    """

    def __init__(self, generation: int, expected: Collection[TensorKey]) -> None:
        self._generation = generation
        self._expected = set(expected)
        self._wanted = frozenset(expected)
        self._numbers: list[_PassNumber] = []
        self._passes: list[WrittenPass] = []
        self._tensors: dict[_PassNumber, dict[TensorKey, np.ndarray[Any, Any]]] = {}
        self._newest: dict[TensorKey, _PassNumber] = {}
        self._given = 0
        self._first_step = math.inf
        self.state = self.message = ""
        self.prompts: list[list[_Row]] = []
        self.padded = 0
        self.missing: set[TensorKey] = set()
        self.broken = False

    @property
    def started(self) -> bool:
        """Whether the prompts are complete."""
        return bool(self._passes) or (self.ended and all(self.prompts) and bool(self.prompts))

    @property
    def ended(self) -> bool:
        """Whether no more tokens come."""
        return self.state in GENERATION_ENDED

    @property
    def done(self) -> bool:
        """Whether every pass was given."""
        return self.ended and (self._given >= len(self._numbers) or not self.started)

    def take(self, stream: str, table: pa.Table) -> None:
        if stream == "generations":
            for row in table.to_pylist():
                if row["generation"] == self._generation:
                    self._state(row)
        elif stream == "tokens":
            lists = table.select(_CANDIDATES)
            for at, row in enumerate(table.select([*_TOKEN, *_READ]).to_pylist()):
                if row["generation"] != self._generation:
                    continue
                if row["kind"] != "prompt":
                    # Those of prompts are many, and not asked for.
                    row.update({name: lists.column(name)[at].as_py() for name in _CANDIDATES})
                self._token(row)
        elif stream == "tensors":
            self._take_tensors(table)

    def complete(self, *, give_up: bool = False) -> Iterator[WrittenPass]:
        """Yield the complete passes; with ``give_up`` the next one also without what has not come.

        Nothing waits for the missing tensors any more.
        """
        while self.started and self._given < len(self._numbers):
            number = self._numbers[self._given]
            there = self._tensors.get(number, {})
            late = {
                key for key in self._expected if key not in there and self._newest.get(key, number) <= number
            }
            # Tokens that were drawn from a pass come after it; a pass from which none was drawn is the last.
            drawn = self._given < len(self._passes) or self.ended
            if not drawn or (late and not give_up):
                return
            if late:
                self._expected -= late
                give_up = False
            self.missing |= self._wanted - there.keys()
            index, self._given = self._given, self._given + 1
            done = self._passes[index] if index < len(self._passes) else WrittenPass(index)
            done.tensors = there
            for old in [each for each in self._tensors if each <= number]:
                del self._tensors[old]
            yield done

    def _state(self, row: _Row) -> None:
        self.state, self.message = row["state"], row["message"]
        # It is said again as the text grows.
        if row["state"] == "running" and not self.prompts:
            self.padded, self._first_step = row["padded"], row["first_step"]
            self.prompts = [[] for _ in range(row["sequences"])]

    def _token(self, row: _Row) -> None:
        sequence = row["sequence"]
        if not 0 <= sequence < len(self.prompts):
            return
        prompt = self.prompts[sequence]
        read = (row["tensor_step"], row["tensor_pass"])
        if row["kind"] == "prompt":
            prompt.append(row)
            self._note_pass(0, read)
            return
        number = row["position"] - len(prompt)
        if not 0 <= number <= len(self._passes):
            self.broken = True
            return
        if number == len(self._passes):
            self._passes.append(WrittenPass(number))
        self._passes[number].tokens[sequence] = row
        if read[0] >= 0:
            self._note_pass(number + 1, read)

    def _note_pass(self, index: int, number: _PassNumber) -> None:
        if index == len(self._numbers):
            self._numbers.append(number)

    def _take_tensors(self, table: pa.Table) -> None:
        names = ("step", "micro_batch", "phase", "pass", "layer", "flag", "part", "shape")
        columns = {name: table.column(name).to_pylist() for name in names}
        lists = table.column("values").combine_chunks()
        oldest = self._numbers[self._given] if self._given < len(self._numbers) else (self._first_step, 0)
        for at in range(table.num_rows):
            row = {name: column[at] for name, column in columns.items()}
            number, key = (row["step"], row["micro_batch"]), (row["layer"], row["flag"], row["part"])
            if key not in self._wanted or (row["phase"], row["pass"]) != ("generate", "forward"):
                continue
            self._newest[key] = max(self._newest.get(key, number), number)
            values, shape = lists[at].values.to_numpy(zero_copy_only=False), row["shape"]
            if number < oldest or not is_shape(shape) or math.prod(shape) != values.size:
                continue
            self._tensors.setdefault(number, {})[key] = values.reshape(shape)


CANDIDATES = 20
"""Candidates a sequence in every update of them."""
_MOST_TILES = 65536
_MOST_TOP_K = 1000
# What the peer traces of itself when a flag is not named, and the tiles that it makes then.
_FLAGS = {
    "QKV_mat_mul": False,
    "RawAttentionScore_mat_mul": False,
    "MLP1_mat_mul": True,
    "MLP2_mat_mul": True,
}
_REFUSED = {
    "beam_width": "Beam search is not offered here. Leave beam_width out.",
    "max_len": "max_len is not known any more. Say tokens_to_generate.",
    "sentences": "sentences is not known any more. Say prompts.",
}
_SWITCHES = (
    "logprobs",
    "add_BOS",
    "stop_on_double_eol",
    "stop_on_eol",
    "prevent_newline_after_colon",
    "no_log",
)


@dataclass(frozen=True)
class ClientGeneration:
    """One ``generate`` of a client.

    Attributes
    ----------
    tiles : dict of str to int
        The flags that are sent, with the values a position that the client expects; 0 where it is sent whole.
    methods : dict of str to str
        Reduction of each tiled flag.
    plot : bool
        Whether the projection of MLP2 is sent at the end.
    """

    request: GenerateRequest
    tiles: dict[str, int]
    methods: dict[str, str]
    plot: bool
    logprobs: bool

    def compressor(self, flag: str, parts: int) -> CompressorSetting:
        """Return how a flag is to be traced whose tensor has so many parts, which share the tiles."""
        tiles = self.tiles[flag]
        if not tiles:
            return {"name": "NoOp", "params": {}}
        return {
            "name": "Tile",
            "params": {"tiles": max(1, tiles // max(1, parts)), "reduction": self.methods[flag]},
        }


def read_generate(message: Mapping[str, Any]) -> ClientGeneration:
    """Return what a ``generate`` asks for; raises ``ProtocolError`` with the dotted field.

    Members that have no effect in the peer (``top_p_decay``, ``stop_token``, …) have none here. Without
    ``random_seed`` each request draws other tokens, as there. Nothing of it is run.
    """
    for name, why in _REFUSED.items():
        if message.get(name) is not None:
            raise ProtocolError("bad-parameter", why, field=name)
    switches = {name: message.get(name, False) for name in _SWITCHES}
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise must_be(name, "true or false", value, name)
    tokens = _whole(message, "tokens_to_generate", 64, 0, None)
    if tokens == 0 and not switches["logprobs"]:
        raise ProtocolError(
            "bad-parameter",
            "tokens_to_generate must be 1 or more where logprobs is false, got 0.",
            field="tokens_to_generate",
        )
    temperature = _number(message, "temperature", 1.0, 100.0)
    if temperature == 0:
        raise must_be("temperature", "more than 0 and at most 100", 0, "temperature")
    top_k, top_p = _whole(message, "top_k", 0, 0, _MOST_TOP_K), _number(message, "top_p", 0.0, 1.0)
    if top_k and top_p:
        raise ProtocolError("bad-parameter", "top_k and top_p cannot both be set.", field="top_p")
    seed = _whole(message, "random_seed", -1, -1, (1 << 53) - 1)
    flags = _flags(message.get("visualization_flags", {}))
    asked = {
        "prompts": message.get("prompts"),
        "tokens": tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p or 1.0,
        # Written down with the request, so that the run can be made again.
        "seed": random.SystemRandom().getrandbits(32) if seed < 0 else seed,
        "candidates": CANDIDATES,
        "attention": flags["RawAttentionScore_mat_mul"],
    }
    perturb = perturb_from_disturbance(message.get("disturbance_configs", {}), phases=("generate",))
    if perturb is not None:
        asked["perturb"] = {**perturb, "seed": asked["seed"]}
    GenerationRequest.from_message(asked, "generate")
    tiles, methods = _compressors(message.get("compressor_config", {}))
    chosen = [name for name in _FLAGS if flags[name]]
    return ClientGeneration(
        request=asked,  # type: ignore[arg-type]
        tiles={name: tiles.get(_group(name), 0) for name in chosen},
        methods={name: methods[_group(name)] for name in chosen if _group(name)},
        plot=flags["MLP2_mat_mul"] and flags["MLP2_Plot"],
        logprobs=switches["logprobs"],
    )


def _group(flag: str) -> str:
    return {"QKV_mat_mul": "QKV", "RawAttentionScore_mat_mul": ""}.get(flag, "MLP")


def _flags(given: Any) -> dict[str, bool]:
    if not isinstance(given, dict):
        raise must_be("visualization_flags", "an object", given, "visualization_flags")
    found = {**_FLAGS, "MLP2_Plot": False}
    for name in found:
        if name in given:
            found[name] = _switch(given[name], f"visualization_flags.{name}")
    return found


def _switch(value: Any, field: str) -> bool:
    text = str(value).lower() if isinstance(value, (bool, str)) else ""
    if text not in ("true", "false"):
        raise must_be(field, "'True' or 'False'", value, field)
    return text == "true"


def _compressors(given: Any) -> tuple[dict[str, int], dict[str, str]]:
    if not isinstance(given, dict):
        raise must_be("compressor_config", "an object", given, "compressor_config")
    tiles, methods = {}, {}
    for group, usual in GROUP_TILES.items():
        entry, field = given.get(group, {}), f"compressor_config.{group}"
        if not isinstance(entry, dict):
            raise must_be(field, "an object", entry, field)
        tiles[group] = _whole(entry, "pixels", usual, 1, _MOST_TILES, field)
        if group == "QKV" and tiles[group] % 3:
            raise must_be(f"{field}.pixels", "a multiple of 3", tiles[group], f"{field}.pixels")
        method = entry.get("method", "data.mean(dim=-1)")
        methods[group] = reduction_of(method if isinstance(method, str) else "", f"{field}.method")
    return tiles, methods


def _whole(
    message: Mapping[str, Any], name: str, usual: int, least: int, most: int | None, within: str = ""
) -> int:
    value, field = message.get(name, usual), f"{within}.{name}".removeprefix(".")
    if type(value) is not int or value < least or (most is not None and value > most):
        expected = (
            f"a whole number from {least}" if most is None else f"a whole number from {least} to {most}"
        )
        raise must_be(field, expected, value, field)
    return value


def _number(message: Mapping[str, Any], name: str, usual: float, most: float) -> float:
    value = message.get(name, usual)
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise must_be(name, f"a number from 0 to {most:g}", value, name)
    return float(value)
