"""A ``generate`` of a client of an inference hub, in our words."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...protocol import GenerationRequest, ProtocolError, perturb_from_disturbance
from ...protocol.errors import must_be
from ...protocol.messages_generated import CompressorSetting, GenerateRequest
from .dialect import GROUP_TILES
from .peer_request import reduction_of

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
