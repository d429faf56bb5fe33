"""What the hub can check of a patch before a producer sees it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..protocol import (
    COMPRESSORS,
    ProtocolError,
    check_settings_size,
    compressor_from_setting,
    must_be,
    no_such,
    parse_layers,
)
from ..protocol.messages_generated import (
    CompressorInfo,
    CompressorSetting,
    ConfigPatch,
    FlagInfo,
    KindInfo,
    Perturb,
    SiteInfo,
)

_WORDS = {
    "pause": "pause, resume or step it",
    "watched": "let it train only while somebody watches",
    "perturb": "perturb it",
    "generate": "have the model write text",
}


def check_patch(
    patch: ConfigPatch,
    flags: list[FlagInfo],
    compressors: list[CompressorInfo],
    instruments: Collection[str] = (),
) -> None:
    """Check names of flags, layers, compressors and instruments, and parameters of known compressors.

    ``flags`` and ``compressors`` are those of ``hello``, ``instruments`` those that can be set.

    Raises
    ------
    ProtocolError
        ``unknown-flag``, ``unavailable-flag``, ``unknown-layer``, ``unknown-compressor`` or
        ``bad-parameter``, with the dotted field.
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


def check_allowed(control: str, controls: Collection[str], field: str) -> None:
    """Raise ``ProtocolError`` (``refused``) unless the training script allows a control.

    ``field`` is what of the message asks for it.
    """
    if control not in controls:
        raise ProtocolError(
            "refused",
            f"The training script does not let viewers {_WORDS[control]}. "
            f"To allow it, name {control!r} in allow=… of megalens.trace().",
            field=field,
            expected=f"{control} among controls",
            got=", ".join(sorted(controls)) or "none",
        )


def check_controls(patch: ConfigPatch, controls: Collection[str], sites: list[SiteInfo]) -> None:
    """Check that the script allows a patch, and that its sites, kinds, layers and parameters exist.

    ``controls`` and ``sites`` are those of ``hello``.

    Raises
    ------
    ProtocolError
        ``refused``, ``bad-parameter`` or ``unknown-layer``, with the dotted field.
    """
    mode = patch.get("mode", {})
    for control, member, wanted in (
        ("perturb", "perturb", "perturb" in patch),
        ("pause", "mode.paused" if "paused" in mode else "mode.steps", "paused" in mode or "steps" in mode),
        ("watched", "mode.while_watched", "while_watched" in mode),
    ):
        if wanted:
            check_allowed(control, controls, member)
    if perturb := patch.get("perturb"):
        _check_perturb(perturb, sites)


def _check_perturb(perturb: Perturb, sites: list[SiteInfo]) -> None:
    if "until" in perturb:
        raise ProtocolError(
            "bad-parameter",
            "until is told by the training and cannot be asked for. Give steps.",
            field="perturb.until",
            expected="steps",
            got="until",
        )
    known = {site["name"]: site for site in sites}
    for name, wanted in perturb["sites"].items():
        field = f"perturb.sites.{name}"
        site = known.get(name)
        if site is None:
            raise _unknown(f"There is no site {name!r:.100} in this run.", field, known, name)
        if not site["layers"]:
            reason = site.get("reason") or "The model has no such place."
            raise ProtocolError("refused", f"{name} cannot be perturbed here. {reason}", field=field)
        parse_layers(wanted.get("layers", "all"), site["layers"], f"{field}.layers")
        kinds = {kind["name"]: kind for kind in site["kinds"]}
        kind = kinds.get(wanted["kind"]["name"])
        if kind is None:
            called = wanted["kind"]["name"]
            raise _unknown(f"{name} has no kind {called!r:.100}.", f"{field}.kind.name", kinds, called)
        _check_params(kind, wanted["kind"].get("params", {}), f"{field}.kind.params")


def _check_params(kind: KindInfo, params: dict[str, Any], field: str) -> None:
    properties = kind["schema"].get("properties", {})
    for name in kind["schema"].get("required", ()):
        if name not in params and "default" not in properties.get(name, {}):
            raise ProtocolError(
                "bad-parameter", f"{kind['name']} needs {name}.", field=f"{field}.{name}", expected=name
            )
    for name, value in params.items():
        if name not in properties:
            raise _unknown(
                f"{kind['name']} has no parameter {name!r:.100}.", f"{field}.{name}", properties, name
            )
        wrong = _misfit(value, properties[name])
        if wrong:
            raise must_be(f"{kind['name']}({name}=…)", wrong, value, f"{field}.{name}")


def _misfit(value: Any, schema: dict[str, Any]) -> str | None:
    """Return what was expected when a number is none or out of range; a producer checks everything else."""
    kind = schema.get("type")
    if kind not in ("number", "integer"):
        return None
    low, high, above = (schema.get(word) for word in ("minimum", "maximum", "exclusiveMinimum"))
    expected = ("a whole number" if kind == "integer" else "a number") + "".join(
        f" {word} {bound}"
        for word, bound in (("from", low), ("above", above), ("up to", high))
        if bound is not None
    )
    right = isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)
    if not right:
        return expected
    outside = (low is not None and value < low) or (high is not None and value > high)
    return expected if outside or (above is not None and value <= above) else None


def _unknown(text: str, field: str, known: Collection[str], got: str) -> ProtocolError:
    names = ", ".join(known) or "none"
    return ProtocolError(
        "bad-parameter", f"{text} Choose from {names}.", field=field, expected=names, got=got[:200]
    )
