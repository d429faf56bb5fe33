"""What the processes of a job announce, seen as one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from ..protocol.messages_generated import Announce, FlagInfo, SiteInfo

__all__ = ["Announcements"]

_Info = TypeVar("_Info", FlagInfo, SiteInfo)


class Announcements:
    """Announcements by rank. Each process may hold other layers of the model; rank 0 knows the layout of all."""

    def __init__(self) -> None:
        self._announced: dict[int, Announce] = {}
        self._merged: Announce | None = None

    def announce(self, message: Announce) -> None:
        """Take an announcement in place of the same rank's last one."""
        self._announced[message["rank"]] = message
        self._merged = None

    def clear(self) -> None:
        """Forget everything: another job begins."""
        self._announced.clear()
        self._merged = None

    @property
    def first(self) -> int | None:
        """The lowest rank that announced, which speaks for the job where only one can."""
        return min(self._announced, default=None)

    def known(self) -> Collection[int]:
        """Return the ranks that announced, those that went included."""
        return self._announced.keys()

    def leader(self, rank: int) -> int:
        """Return the rank that answers ``configure`` for ``rank``."""
        return self._announced[rank].get("leader", rank) if rank in self._announced else rank

    def merged(self) -> Announce | None:
        """Return the announcement of the whole job, None before the first. The same object until something is announced: not to be changed."""
        if self._merged is None and self._announced:
            self._merged = self._merge()
        return self._merged

    def is_other(self, message: Announce, attached: Collection[int]) -> str | None:
        """Return a sentence when an announcement is another job's than that of the ranks that are attached, else None.

        Processes of one job agree on its size, and one rank has one model.
        """
        for rank in sorted(attached)[:1]:
            ours = self._announced[rank]
            if _sizes(ours) != _sizes(message):
                return f"It has {_sizes_text(ours)}, and a process of a job with {_sizes_text(message)} came."
        ours = self._announced.get(message["rank"], message)
        if message["rank"] in attached and _model(ours) != _model(message):
            return f"Its rank {message['rank']} trains {_model_text(ours)}, and one with {_model_text(message)} came."
        return None

    def disagreement(self, message: Announce, attached: Collection[int]) -> str | None:
        """Return a sentence when an announcement names another model than the lowest rank that is attached, else None."""
        for rank in sorted(set(attached) - {message["rank"]})[:1]:
            ours = self._announced[rank]
            if _model(ours) != _model(message):
                return (
                    f"Rank {message['rank']} announces {_model_text(message)} and rank {rank} {_model_text(ours)}: "
                    "they do not train the same model."
                )
        return None

    def _merge(self) -> Announce:
        every = [self._announced[rank] for rank in sorted(self._announced)]
        layouts = [announce["layout"] for announce in every]
        merged: Announce = {
            **every[0],
            "layout": next((layout for layout in layouts if "ranks" in layout), layouts[0]),
            "flags": _union(info for announce in every for info in announce["flags"]),
            "sites": _union(info for announce in every for info in announce.get("sites", ())),
            "versions": {},
        }
        for announce in reversed(every):
            merged["versions"].update(announce["versions"])
        return merged


def _union(infos: Iterable[_Info]) -> list[_Info]:
    """Return the entries of all ranks by name, each with all the layers where it exists."""
    found: dict[str, _Info] = {}
    layers: dict[str, set[int]] = {}
    for info in infos:
        name = info["name"]
        known = layers.setdefault(name, set())
        if name not in found or (info["layers"] and not known):
            # The first that has it says more than one that has it not.
            found[name] = info.copy()
        known.update(info["layers"])
    for name, info in found.items():
        info["layers"] = sorted(layers[name])
        if info["layers"]:
            info.pop("reason", None)
    return list(found.values())


def _sizes(message: Announce) -> tuple[int, int, int, int]:
    layout = message["layout"]
    return layout["world_size"], layout["tp"], layout["pp"], layout["dp"]


def _model(message: Announce) -> tuple[str, int, int | None]:
    model = message["model"]
    return model["name"], model["layers"], model.get("hidden")


def _sizes_text(message: Announce) -> str:
    size, *groups = _sizes(message)
    return f"{size} processes (tp {groups[0]}, pp {groups[1]}, dp {groups[2]})"


def _model_text(message: Announce) -> str:
    name, layers, hidden = _model(message)
    return f"{name} of {layers} layers" + (f" and hidden size {hidden}" if hidden else "")
