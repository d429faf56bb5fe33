"""What a replay tells its hub about the run: what the recording says of it, and that it is a replay."""

from __future__ import annotations

from ...protocol.messages_generated import Announce, Config, Origin
from ...runs import RunFolder

__all__ = ["announcement"]


def announcement(folder: RunFolder, config: Config, speed: float | None) -> Announce:
    """Return the ``announce`` message.

    Parameters
    ----------
    folder : RunFolder
        The recording.
    config : dict
        The ``Config`` in force.
    speed : float or None
        As fast as possible when None.
    """
    hello = folder.hello()
    before = folder.header.get("origin")
    # Steps that were inferred stay so.
    steps = before.get("steps") if isinstance(before, dict) else None
    origin: Origin = {
        "kind": "replay",
        "name": folder.name[:200],
        "steps": "inferred" if steps == "inferred" else "counted",
    }
    if speed is not None:
        origin["speed"] = speed
    announce: Announce = {
        "type": "announce",
        "rank": 0,
        "run_name": f"{folder.name[:180]} (replay)",
        "model": hello["model"] or {"name": "unknown", "layers": 0},
        "layout": hello["layout"] or {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": hello["flags"],
        "compressors": hello["compressors"],
        "config": config,
        "versions": hello["versions"],
        "controls": ["pause"],
        "origin": origin,
    }
    if "statistics" in hello:
        announce["statistics"] = hello["statistics"]
    if announced := folder.streams.announced():
        announce["streams"] = announced
    return announce
