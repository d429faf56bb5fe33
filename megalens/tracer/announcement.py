"""The ``announce`` message, and what rank 0 reports of other processes."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import torch

from ..protocol import compressor_infos
from ..protocol.messages_generated import (
    Announce,
    Config,
    Control,
    FlagInfo,
    Layout,
    Phase,
    RankPlace,
    Status,
)
from ..protocol.version import own_version
from .coordinates import RankCoordinates
from .errors import plain_text
from .perturb import site_infos
from .points import FLAGS, ModelPoints
from .sending.peers import Peers
from .tensors.compressors import suited_compressor


def add_members(
    peers: Peers, places: Sequence[RankPlace], own: int, status: Status, notes: list[str]
) -> None:
    """Add the ranks of a job to rank 0's ``status``, and to ``notes`` what they alone warn of.

    Lost rows of ranks without a connection of their own to the hub are added as well.
    """
    status["ranks"] = peers.members.states()
    own_words = {*status.get("warnings", ()), *notes}
    for rank, heartbeat in peers.members.heartbeats().items():
        place = next((p for p in places if p["rank"] == rank), None)
        if rank == own or place is None or place["tp"] == 0:
            continue
        # Ranks that hold pieces of the same tensors mostly have the same to say.
        others = [text for text in heartbeat.get("warnings", []) if text not in own_words]
        notes += [f"{peers.members.name(rank)}: {text}"[:500] for text in others]
        dropped = heartbeat["dropped"]["producer"] if "dropped" in heartbeat else 0
        if dropped:
            status["dropped"] = {**status["dropped"], "producer": status["dropped"]["producer"] + dropped}


def job_notes(untraced_steps: int, peers: Peers | None) -> list[str]:
    """Return what the other processes have cost this one."""
    notes = []
    if untraced_steps:
        notes.append(
            f"{untraced_steps} steps were not traced while a change was being agreed on by all processes."
        )
    if peers is not None and peers.refused:
        notes.append(f"{peers.refused} messages of instruments to other processes could not be sent.")
    return notes


def parts_notes(coords: RankCoordinates) -> list[str]:
    """Return what rows of a context-parallel job are, which no view could tell by itself."""
    parts = coords.cp_size
    return (
        [
            f"Each sequence is cut over {parts} context-parallel ranks. What they trace is not joined: "
            "each rank's rows hold its own positions, counted from 0, "
            "and the ranks are shown as replicas of the data-parallel axis. Trace every replica to have "
            "all positions."
        ]
        if parts > 1
        else []
    )


def announcement(
    points: ModelPoints,
    *,
    config: Config,
    positions: int | None,
    name: str | None,
    controls: Sequence[Control] = (),
    phase: Phase = "train",
    places: Sequence[RankPlace] = (),
) -> Announce:
    """Return the ``announce`` message.

    Parameters
    ----------
    positions : int or None
        Length of the sequences; None before the first forward pass, when sizes are unknown.
    places : sequence of dict
        ``RankPlace`` objects of all processes that are known.
    """
    evidence = points.evidence()
    message: Announce = {
        "type": "announce",
        "rank": points.place.rank,
        "model": points.model,
        "layout": _layout(points.place, places),
        "flags": [
            _flag_info(points, flag, positions, evidence.get(flag)) for flag in FLAGS if flag in points.flags
        ],
        "compressors": compressor_infos(),
        "config": config,
        "versions": {
            "megalens": own_version(),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }
    if points.place.rank:
        message["leader"] = 0
    if controls:
        message["controls"] = list(controls)
    if "perturb" in controls:
        message["sites"] = site_infos(points)
    if phase != "train":
        message["phase"] = phase
    if name:
        message["run_name"] = plain_text(name)[:200]
    return message


def _flag_info(points: ModelPoints, name: str, positions: int | None, evidence: str | None) -> FlagInfo:
    kind, here = FLAGS[name], points.flags[name]
    nbytes: int | None = None
    if positions is not None and here.layers:
        if kind.axes[0] == "head":
            heads = points.model.get("heads")
            nbytes = None if heads is None else 4 * heads * positions * positions
        elif kind.exact:
            nbytes = 4 * positions * len(here.parts)
        elif here.features is not None and kind.axes[0] == "position":
            nbytes = 4 * positions * here.features
    info: FlagInfo = {
        "name": name,
        "title": kind.title,
        "layers": sorted(here.layers),
        "parts": list(here.parts or kind.parts),
        "axes": list(kind.axes),
        "features": here.features,
        "bytes_per_layer": nbytes,
        "compressor": suited_compressor(name, here).to_setting(),
    }
    if here.widths is not None:
        info["widths"] = list(here.widths)
    if not here.layers:
        info["reason"] = (here.reason or "This model has no such point.")[:500]
    if evidence is not None:
        info["evidence"] = plain_text(evidence, 2000)
    return info


def _layout(coords: RankCoordinates, places: Sequence[RankPlace]) -> Layout:
    layout: Layout = {
        "world_size": coords.world_size,
        "tp": coords.tp_size,
        "pp": coords.pp_size,
        "dp": coords.dp_size,
    }
    if coords.vpp_size > 1:
        layout["vpp"] = coords.vpp_size
    if coords.ep_size > 1:
        layout["ep"] = coords.ep_size
    if coords.cp_size > 1:
        layout["cp"] = coords.cp_size
    if coords.world_size > 1 and places:
        layout["ranks"] = list(places)
    return layout
