"""What an announcement may not hold, beyond what the schema says."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol import ProtocolError
from ..protocol.messages_generated import Announce, FlagInfo, SiteInfo

__all__ = ["check_announcement"]

_MOST_FLAGS = 1000
_MOST_LAYER = 2**31 - 1


def check_announcement(message: Announce) -> None:
    """Refuse an announcement that no viewer could be shown.

    Raises
    ------
    ProtocolError
        ``bad-message`` for more flags than there can be, or a layer number that does not fit the ``tensors`` stream.
    """
    lists: dict[str, Sequence[FlagInfo | SiteInfo]] = {
        "flags": message["flags"],
        "sites": message.get("sites", ()),
    }
    for member, infos in lists.items():
        if len(infos) > _MOST_FLAGS:
            raise ProtocolError(
                "bad-message",
                f"An announcement has more {member} than a picker can show.",
                field=member,
                expected=f"at most {_MOST_FLAGS}",
                got=str(len(infos)),
            )
        for number, info in enumerate(infos):
            if info["layers"] and max(info["layers"]) > _MOST_LAYER:
                raise ProtocolError(
                    "bad-message",
                    f"A layer of {info['name']} has a number that does not fit 32 bits.",
                    field=f"{member}.{number}.layers",
                    expected=f"at most {_MOST_LAYER}",
                    got=str(max(info["layers"]))[:100],
                )
