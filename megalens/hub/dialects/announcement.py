"""What a translation tells its hub about the run: the ``announce`` message."""

from __future__ import annotations

from ...protocol import EMBEDDING, compressor_infos
from ...protocol.messages_generated import Announce, Config, FlagInfo
from ...protocol.version import own_version
from .dialect import Dialect

__all__ = ["announcement"]

_WAITING = "The peer has not said yet how many layers its model has."


def announcement(name: str, dialect: Dialect | None, *, layers: int, config: Config) -> Announce:
    """Return the ``announce`` message.

    Parameters
    ----------
    name : str
        Name of the run.
    dialect : Dialect or None
        What the peer speaks, once that is known.
    layers : int
        Transformer layers; 0 while they are not known.
    config : dict
        The ``Config`` in force.
    """
    flags: list[FlagInfo] = []
    for flag, facts in (dialect.flags if dialect else {}).items():
        there = list(range(layers)) if layers and not facts.never else []
        if flag == "InputTokens" and there:
            there = [EMBEDDING]
        info: FlagInfo = {
            "name": flag,
            "title": facts.title,
            "layers": there,
            "parts": list(facts.parts),
            "axes": list(facts.axes),
            "bytes_per_layer": None,
        }
        if not there:
            info["reason"] = facts.never or _WAITING
        flags.append(info)
    return {
        "type": "announce",
        "rank": 0,
        "run_name": name[:200],
        "model": {"name": "model of a foreign hub", "layers": layers},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": flags,
        "compressors": compressor_infos(),
        "config": config,
        "versions": {"megalens": own_version()},
        "origin": {
            "kind": "foreign",
            "name": dialect.name if dialect else "not known yet",
            "steps": "inferred",
        },
    }
