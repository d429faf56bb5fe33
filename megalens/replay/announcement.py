"""What a replay tells its hub about the run: what the recording says of it, and that it is a replay."""

from __future__ import annotations

from typing import Any

from ..client import RunFolder

__all__ = ["announcement"]


def announcement(folder: RunFolder, config: dict[str, Any], speed: float | None) -> dict[str, Any]:
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
    origin: dict[str, Any] = {
        "kind": "replay",
        "name": folder.name[:200],
        "steps": "inferred" if steps == "inferred" else "counted",
    }
    if speed is not None:
        origin["speed"] = speed
    told: dict[str, Any] = {"statistics": hello["statistics"]} if "statistics" in hello else {}
    if announced := folder.streams.announced():
        told["streams"] = announced
    return {
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
        **told,
    }
