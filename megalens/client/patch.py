"""The keyword arguments of ``run.configure`` as a ``ConfigPatch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol import Compressor, Tile
from .errors import ClientError
from .query import LayerChoice, Query

__all__ = ["FlagChoice", "build_patch"]

FlagChoice = dict[str, Any] | None
"""A ``FlagSetting``, or ``None`` for off."""

_PHASES = ("train", "eval", "generate")


def build_patch(
    config: Mapping[str, Mapping[str, Any]],
    flags: Mapping[str, Compressor | Mapping[str, Any] | bool | None],
    *,
    layers: LayerChoice = None,
    every: int | None = None,
    samples: int | str | None = None,
    phases: str | Sequence[str] | None = None,
) -> dict[str, FlagChoice]:
    """Return the settings by flag name that ``run.configure(...)`` asks for.

    Parameters
    ----------
    config : mapping
        Settings in force, which ``True`` keeps.
    flags : mapping
        What was given for each flag.
    layers, every, samples, phases
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
    extras = _extras(layers, every, samples, phases)
    patch: dict[str, FlagChoice] = {}
    for flag, choice in flags.items():
        if choice is None or choice is False:
            patch[flag] = None
        elif choice is True:
            patch[flag] = {**config.get(flag, {"compressor": Tile().to_setting()}), **extras}
        elif isinstance(choice, Compressor):
            patch[flag] = {"compressor": choice.to_setting(), **extras}
        elif isinstance(choice, Mapping):
            setting = {**config.get(flag, {"compressor": Tile().to_setting()}), **choice, **extras}
            if isinstance(setting["compressor"], Compressor):
                setting["compressor"] = setting["compressor"].to_setting()
            patch[flag] = setting
        else:
            raise _bad(flag, "a compressor such as Tile(96), True, False, None or a setting", choice)
    return patch


def _extras(
    layers: LayerChoice, every: int | None, samples: int | str | None, phases: str | Sequence[str] | None
) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if layers is not None:
        extras["layers"] = _layers_text(layers)
    if every is not None:
        extras["every"] = _positive("every", every)
    if samples is not None:
        extras["samples"] = None if samples == "all" else _positive("samples", samples, " or 'all'")
    if phases is not None:
        wanted = [phases] if isinstance(phases, str) else list(phases)
        if not wanted or any(phase not in _PHASES for phase in wanted):
            raise _bad("phases", "one or more of train, eval, generate", phases)
        extras["phases"] = list(dict.fromkeys(wanted))
    return extras


def _layers_text(layers: LayerChoice) -> str:
    if layers == "all":
        return "all"
    try:
        ranges = Query.of(layer=layers).layers
    except ClientError:
        ranges = None
    if not ranges or any(low < 0 for low, _ in ranges):
        raise _bad("layers", "a layer, several layers, or a range text such as '1-4,7' or 'all'", layers)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _positive(argument: str, value: object, more: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _bad(argument, f"a whole number from 1{more}", value)
    return value


def _bad(argument: str, expected: str, got: object) -> ClientError:
    return ClientError(
        f"{argument}=… must be {expected}, and {got!r:.100} came.", code="bad-parameter", field=argument
    )
