"""The keyword arguments of ``run.configure`` as a ``ConfigPatch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol import Compressor, Tile, ranges_text
from ..protocol.messages_generated import FlagInfo, FlagSetting
from .errors import ClientError
from .query import LayerChoice, chosen_ranges

__all__ = ["build_patch", "check_phases", "layers_text"]

_PHASES = ("train", "eval", "generate")
_PASSES = ("forward", "backward")
_REPLICAS = ("first", "all")


def build_patch(
    config: Mapping[str, FlagSetting],
    flags: Mapping[str, Compressor | Mapping[str, Any] | bool | None],
    *,
    infos: Mapping[str, FlagInfo] | None = None,
    layers: LayerChoice = None,
    every: int | None = None,
    samples: int | str | None = None,
    phases: str | Sequence[str] | None = None,
    passes: str | Sequence[str] | None = None,
    replicas: str | None = None,
) -> dict[str, FlagSetting | None]:
    """Return the settings by flag name that ``run.configure(...)`` asks for.

    Parameters
    ----------
    config : mapping
        Settings in force, which ``True`` keeps.
    flags : mapping
        What was given for each flag.
    infos : mapping, optional
        What the run says of its flags: with which compressor each is switched on.
    layers, every, samples, phases, passes, replicas
        Put on every flag that is not switched off.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the argument.
    """
    if not flags:
        raise ClientError(
            "No flag was named. Write run.configure(HiddenStates=Tile(96)), or HiddenStates=False to switch it off.",
            code="bad-parameter",
        )
    extras = _extras(layers, every, samples)
    if phases is not None:
        extras["phases"] = check_phases(phases)
    if passes is not None:
        extras["passes"] = _some("passes", passes, _PASSES)
    if replicas is not None:
        if replicas not in _REPLICAS:
            raise _bad("replicas", "first or all", replicas)
        extras["replicas"] = replicas
    # What a person gives is checked by the tracer, which answers with the field at fault.
    patch: dict[str, Any] = {}
    for flag, choice in flags.items():
        info = (infos or {}).get(flag)
        suited = (info and info.get("compressor")) or Tile().to_setting()
        if choice is None or choice is False:
            patch[flag] = None
        elif choice is True:
            patch[flag] = {**config.get(flag, {"compressor": suited}), **extras}
        elif isinstance(choice, Compressor):
            patch[flag] = {"compressor": choice.to_setting(), **extras}
        elif isinstance(choice, Mapping):
            setting = {**config.get(flag, {"compressor": suited}), **choice, **extras}
            if isinstance(setting["compressor"], Compressor):
                setting["compressor"] = setting["compressor"].to_setting()
            patch[flag] = setting
        else:
            raise _bad(flag, "a compressor such as Tile(96), True, False, None or a setting", choice)
    return patch


def _extras(layers: LayerChoice, every: int | None, samples: int | str | None) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if layers is not None:
        extras["layers"] = layers_text(layers)
    if every is not None:
        extras["every"] = _positive("every", every)
    if samples is not None:
        extras["samples"] = None if samples == "all" else _positive("samples", samples, " or 'all'")
    return extras


def check_phases(phases: str | Sequence[str]) -> list[str]:
    """Return phases as a message has them.

    Raises
    ------
    ClientError
        ``bad-parameter`` with the field ``phases``.
    """
    return _some("phases", phases, _PHASES)


def _some(argument: str, chosen: str | Sequence[str], known: tuple[str, ...]) -> list[str]:
    expected = f"one or more of {', '.join(known)}"
    try:
        wanted = [chosen] if isinstance(chosen, str) else list(chosen)
    except TypeError as error:
        raise _bad(argument, expected, chosen) from error
    if not wanted or any(entry not in known for entry in wanted):
        raise _bad(argument, expected, chosen)
    return list(dict.fromkeys(wanted))


def layers_text(layers: LayerChoice) -> str:
    """Return a choice of layers as the range text of a message.

    Raises
    ------
    ClientError
        ``bad-parameter`` with the field ``layers``.
    """
    ranges = chosen_ranges(layers, "layers")
    if ranges is None and layers == "all":
        return "all"
    if not ranges or any(low < 0 for low, _ in ranges):
        raise _bad("layers", "a layer, several layers, 'all' or ranges such as '0-3,7'", layers)
    return ranges_text(ranges)


def _positive(argument: str, value: object, more: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _bad(argument, f"a whole number from 1{more}", value)
    return value


def _bad(argument: str, expected: str, got: object) -> ClientError:
    return ClientError(
        f"{argument}=… must be {expected}, got {got!r:.100}.", code="bad-parameter", field=argument
    )
