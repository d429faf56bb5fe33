"""The arguments of ``run.configure`` as a ``ConfigPatch``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..protocol import Tile, read_flags, read_setting
from ..protocol.messages_generated import FlagInfo, FlagSetting
from .arguments import as_arguments
from .errors import ClientError

__all__ = ["build_patch"]


def build_patch(
    config: Mapping[str, FlagSetting],
    asked: Mapping[str, Any],
    *,
    infos: Mapping[str, FlagInfo] | None = None,
    **common: Any,
) -> dict[str, FlagSetting | None]:
    """Return the settings by flag name that ``run.configure(...)`` asks for.

    Parameters
    ----------
    config : mapping
        Settings in force, which ``True`` keeps.
    asked : mapping
        What was given for each flag.
    infos : mapping, optional
        What the run says of its flags: with which compressor each is switched on.
    **common
        Settings of every flag that is not switched off and does not say its own; None leaves one out.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the argument.
    """

    def suited(flag: str) -> Any:
        info = (infos or {}).get(flag)
        return (info and info.get("compressor")) or Tile().to_setting()

    with as_arguments():
        if not asked:
            raise ClientError(
                "No flag was named. Write run.configure(HiddenStates=Tile(96)), or HiddenStates=False to switch it off.",
                code="bad-parameter",
            )
        given = {name: value for name, value in common.items() if value is not None}
        return read_flags(
            asked, now=config, suited=suited, common=read_setting(given), spell="{}=…", prefix=""
        )
