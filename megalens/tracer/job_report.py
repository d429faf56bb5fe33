"""What rank 0 tells of the other processes of its job."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.messages_generated import RankPlace, Status
from .place import Place
from .sending.peers import Peers

__all__ = ["add_members", "job_notes", "parts_notes"]


def add_members(
    peers: Peers, places: Sequence[RankPlace], own: int, status: Status, notes: list[str]
) -> None:
    """Add to a ``status`` the ranks, and of those that have no hub of their own the lost rows; to the sentences theirs.

    Parameters
    ----------
    peers : Peers
        The connections of rank 0.
    places : sequence of dict
        ``RankPlace`` objects of all that are known.
    own : int
        Rank of this process.
    status : dict
        The message so far.
    notes : list of str
        Sentences for people.
    """
    status["ranks"] = peers.members.states()
    for rank, told in peers.members.statuses().items():
        place = next((p for p in places if p["rank"] == rank), None)
        if rank == own or place is None or place["tp"] == 0:
            continue
        notes += [f"{peers.members.name(rank)}: {text}"[:500] for text in told.get("warnings", [])]
        dropped = told.get("dropped", {}).get("producer", 0)
        if dropped:
            status["dropped"] = {**status["dropped"], "producer": status["dropped"]["producer"] + dropped}


def job_notes(held_steps: int, peers: Peers | None) -> list[str]:
    """Return what the other processes have cost this one: steps that were not traced for them, and messages that they did not take."""
    notes = []
    if held_steps:
        notes.append(
            f"{held_steps} steps were not traced while a change was being agreed on by all processes."
        )
    if peers is not None and peers.refused:
        notes.append(f"{peers.refused} messages of instruments to other processes could not be sent.")
    return notes


def parts_notes(place: Place) -> list[str]:
    """Return what the rows of a context-parallel job are, which no view could tell by itself."""
    parts = place.cp_size
    return (
        [
            f"Each sequence is cut over {parts} context-parallel ranks. What they trace is not joined: each rank's rows hold its own positions, counted from 0, "
            "and the ranks are shown as replicas of the data-parallel axis. Trace every replica to have all positions."
        ]
        if parts > 1
        else []
    )
