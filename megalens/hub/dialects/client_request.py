"""What a client of the 3606 dialect asks for, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol import ProtocolError
from ...protocol.messages_generated import CompressorSetting, FlagSetting
from .dialect import DIALECTS
from .peer_reductions import reduction_of

__all__ = ["read_request"]

_FLAGS = DIALECTS["3606"].flags


def read_request(message: Mapping[str, Any]) -> dict[str, FlagSetting]:
    """Return the flags that a ``run_training_step`` switches on, each with its ``FlagSetting``.

    Flags are booleans or strings. A flag without an entry in ``compressor_config`` is asked for empty, as in the tracer itself.

    Raises
    ------
    ProtocolError
        When it is not to the dialect, with the dotted field. Nothing of it is run.
    """
    flags = message.get("visualization_flags", {})
    compressors = message.get("compressor_config", {})
    if not isinstance(flags, dict) or not isinstance(compressors, dict):
        raise ProtocolError(
            "bad-message", "visualization_flags and compressor_config must be objects.", field="type"
        )
    chosen: dict[str, FlagSetting] = {}
    for name, value in flags.items():
        if str(value).lower() != "true" or name not in _FLAGS:
            continue
        chosen[name] = {"samples": None, "compressor": _compressor(name, compressors.get(name))}
    return chosen


def _compressor(name: str, given: Any) -> CompressorSetting:
    field = f"compressor_config.{name}"[:300]
    if name == "InputTokens":
        return {"name": "NoOp", "params": {}}
    if given is None:
        return {"name": "Empty", "params": {}}
    kind = given.get("compressor_type") if isinstance(given, dict) else None
    params = given.get("compressor_configs", {}) if isinstance(given, dict) else None
    if not isinstance(kind, str) or not isinstance(params, dict):
        raise ProtocolError(
            "bad-parameter",
            "Expected {compressor_type, compressor_configs}.",
            field=field,
            got=repr(given)[:200],
        )
    if kind == "TileCompressor":
        method = params.get("method", "data.mean(dim=-1)")
        return {
            "name": "Tile",
            "params": {
                "tiles": params.get("tiles", 96),
                "reduction": reduction_of(method if isinstance(method, str) else "", f"{field}.method"),
            },
        }
    if kind in ("NoOpCompressor", "EmptyCompressor"):
        return {"name": kind.removesuffix("Compressor"), "params": {}}
    if kind == "ProjectionCompressor" and isinstance(params.get("vector_path"), str):
        return {"name": "Projection", "params": {"vectors": params["vector_path"]}}
    raise ProtocolError(
        "unknown-compressor", f"{kind!r:.100} is not known here.", field=f"{field}.compressor_type"
    )
