"""What the hub can check of a configuration patch before a producer sees it."""

from __future__ import annotations

from collections.abc import Collection

from ..protocol import (
    COMPRESSORS,
    ProtocolError,
    check_settings_size,
    compressor_from_setting,
    no_such,
    parse_layers,
)
from ..protocol.messages_generated import CompressorInfo, CompressorSetting, ConfigPatch, FlagInfo

__all__ = ["check_patch"]


def check_patch(
    patch: ConfigPatch,
    flags: list[FlagInfo],
    compressors: list[CompressorInfo],
    instruments: Collection[str] = (),
) -> None:
    """Check flag names, layer ranges, compressor names, the parameters of the compressors that everybody knows, and names and bounds of instruments' settings.

    Parameters
    ----------
    patch : dict
        A ``ConfigPatch`` that fits the schema.
    flags, compressors : list of dict
        The ``FlagInfo`` and ``CompressorInfo`` lists of ``hello``.
    instruments : collection of str
        Names of the instruments that can be set.

    Raises
    ------
    ProtocolError
        ``unknown-flag``, ``unavailable-flag``, ``unknown-layer``, ``unknown-compressor`` or ``bad-parameter``, with the dotted field.
    """
    known = {info["name"]: info for info in flags}
    for name, setting in patch["flags"].items():
        field = f"flags.{name}"
        info = known.get(name)
        if info is None:
            names = ", ".join(known) or "none"
            raise ProtocolError(
                "unknown-flag",
                f"There is no flag {name!r:.100}. This run has {names}.",
                field=field,
                expected=names,
                got=repr(name)[:200],
            )
        if setting is None:
            continue
        if not info["layers"]:
            reason = info.get("reason") or "The model has no such point."
            raise ProtocolError("unavailable-flag", f"{name} cannot be traced here. {reason}", field=field)
        parse_layers(setting.get("layers", "all"), info["layers"], f"{field}.layers")
        _check_compressor(setting["compressor"], compressors, f"{field}.compressor")
    if settings := patch.get("instruments"):
        check_settings_size(settings)
        for name in settings:
            if name not in instruments:
                raise no_such(
                    "instrument that can be set", name, instruments, f"instruments.{name}", "bad-parameter"
                )


def _check_compressor(setting: CompressorSetting, compressors: list[CompressorInfo], field: str) -> None:
    names = [info["name"] for info in compressors]
    if setting["name"] not in names:
        raise no_such("compressor", setting["name"], names, f"{field}.name", "unknown-compressor")
    if setting["name"] in COMPRESSORS:
        compressor_from_setting(setting, field)
