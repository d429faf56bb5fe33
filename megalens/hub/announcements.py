"""What the processes of a job announce, seen as one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..protocol import compressor_infos

__all__ = ["Announcements"]

_SIZES = ("world_size", "tp", "pp", "dp")
_MODEL = ("name", "layers", "hidden")


class Announcements:
    """Announcements by rank. Each process may hold other layers of the model; rank 0 knows the layout of all."""

    def __init__(self) -> None:
        self._announced: dict[int, dict[str, Any]] = {}
        self._merged: dict[str, Any] | None = None

    def announce(self, message: dict[str, Any]) -> None:
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
        return int(self._announced.get(rank, {}).get("leader", rank))

    def merged(self) -> dict[str, Any]:
        """Return the members of ``hello`` that announcements fill. The same object until something is announced: not to be changed."""
        if self._merged is None:
            self._merged = self._merge()
        return self._merged

    def is_other(self, message: dict[str, Any], attached: Collection[int]) -> str | None:
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

    def disagreement(self, message: dict[str, Any], attached: Collection[int]) -> str | None:
        """Return a sentence when an announcement names another model than the lowest rank that is attached, else None."""
        for rank in sorted(set(attached) - {message["rank"]})[:1]:
            ours = self._announced[rank]
            if _model(ours) != _model(message):
                return (
                    f"Rank {message['rank']} announces {_model_text(message)} and rank {rank} {_model_text(ours)}: "
                    "they do not train the same model."
                )
        return None

    def _merge(self) -> dict[str, Any]:
        ranks = sorted(self._announced)
        first = self._announced[ranks[0]] if ranks else None
        layouts = [self._announced[rank]["layout"] for rank in ranks]
        versions: dict[str, str] = {}
        for rank in reversed(ranks):
            versions.update(self._announced[rank]["versions"])
        merged: dict[str, Any] = {
            "model": first["model"] if first else None,
            "layout": next(
                (layout for layout in layouts if "ranks" in layout), layouts[0] if first else None
            ),
            "flags": self._union("flags"),
            "compressors": first["compressors"] if first else compressor_infos(),
            "versions": versions,
        }
        if first:
            merged.update(
                {name: first[name] for name in ("controls", "statistics", "origin") if name in first}
            )
        sites = self._union("sites")
        if sites:
            merged["sites"] = sites
        return merged

    def _union(self, member: str) -> list[dict[str, Any]]:
        """Return the entries of all ranks by name, each with all the layers where it exists."""
        found: dict[str, dict[str, Any]] = {}
        layers: dict[str, set[int]] = {}
        for rank in sorted(self._announced):
            for info in self._announced[rank].get(member, ()):
                name = info["name"]
                known = found.get(name)
                if known is None:
                    found[name], layers[name] = dict(info), set(info["layers"])
                    continue
                if info["layers"] and not layers[name]:
                    # The first that has it says more than one that has it not.
                    found[name] = dict(info)
                layers[name].update(info["layers"])
        for name, info in found.items():
            info["layers"] = sorted(layers[name])
            if info["layers"]:
                info.pop("reason", None)
        return list(found.values())


def _sizes(message: dict[str, Any]) -> tuple[int, ...]:
    return tuple(message["layout"][name] for name in _SIZES)


def _model(message: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(message["model"].get(name) for name in _MODEL)


def _sizes_text(message: dict[str, Any]) -> str:
    size, *groups = _sizes(message)
    return f"{size} processes (tp {groups[0]}, pp {groups[1]}, dp {groups[2]})"


def _model_text(message: dict[str, Any]) -> str:
    name, layers, hidden = _model(message)
    return f"{name} of {layers} layers" + (f" and hidden size {hidden}" if hidden else "")
