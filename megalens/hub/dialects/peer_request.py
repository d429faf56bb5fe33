"""What is asked of a peer: our configuration in its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol import Compressor, ProtocolError, Tile, compressor_from_setting
from ...protocol.messages_generated import CompressorSetting, Config, FlagSetting
from .dialect import GROUP_TILES, Dialect, FlagFacts

# Peers reduce twice, on each rank and again after the gather, so only what changes nothing the second time
# keeps its meaning.
_PEER = {
    "mean": "data.mean(dim=-1)",
    "sum": "data.sum(dim=-1)",
    "max": "data.amax(dim=-1)",
    "min": "data.amin(dim=-1)",
    "norm": "data.norm(dim=-1)",
    "median": "data.median(dim=-1).values",
    "abs().mean()": "data.abs().mean(dim=-1)",
    "abs().max()": "data.abs().amax(dim=-1)",
}


# Reductions in the peers' words. The peers run theirs as Python; what is sent to them is chosen from this
# list, never passed on.
def _spellings(name: str) -> list[str]:
    """Return every way in which the reduction language writes it, without spaces and without ``dim=-1``."""
    first, _, last = name.partition("().")
    if not last:
        return [name, f"{name}()", f"data.{name}()", f"{name}(data)"]
    last = last.removesuffix("()")
    return [
        f"{start}.{last}()" for start in (f"{first}()", f"data.{first}()", f"{first}(data)", f"{first}")
    ] + [f"{last}({inner})" for inner in (f"{first}(data)", f"data.{first}()", f"{first}()", first)]


_KNOWN = {spelling: name for name in _PEER for spelling in _spellings(name)}
_OURS = {text.replace("dim=-1", "-1"): name for name, text in _PEER.items()}


def _plain(text: str) -> str:
    text = "".join(text.split())
    for argument in ("dim=-1", "-1"):
        text = text.replace(f"({argument})", "()").replace(f",{argument})", ")")
    return text


def peer_reduction(text: str, field: str) -> str:
    """Return the peers' expression for a reduction.

    Raises ``ProtocolError`` (``refused``) when theirs and ours do not mean the same.
    """
    name = _KNOWN.get(_plain(text))
    if name is None:
        raise ProtocolError(
            "refused",
            f"The reduction {text!r:.100} cannot be asked of this peer: it reduces twice, on each rank and "
            "after the gather, "
            f"and only some reductions keep their meaning then. Choose one of {', '.join(_PEER)}.",
            field=field,
            expected=", ".join(_PEER),
            got=text[:200],
        )
    return _PEER[name]


def reduction_of(text: str, field: str) -> str:
    """Return the reduction that a client asks for in the peer's words, or in ours.

    Raises ``ProtocolError`` (``bad-reduction``) for anything else: nothing that a socket sends is run.
    """
    plain = "".join(text.split()).replace("dim=-1", "-1")
    name = _OURS.get(plain) or _KNOWN.get(_plain(text))
    if name is None:
        raise ProtocolError(
            "bad-reduction",
            f"The method {text!r:.100} is not one that is understood here. Send one of "
            f"{', '.join(_PEER.values())}.",
            field=field,
            got=text[:200],
        )
    return name


def default_config(dialect: Dialect) -> Config:
    """Return the ``Config`` for a peer when nobody chose any: every row that comes is kept whole."""
    return {
        "flags": {
            flag: {"phases": [dialect.phase], "samples": None, "compressor": setting}
            for flag, setting in dialect.config.items()
        }
    }


def chosen_config(
    dialect: Dialect, flags: Sequence[str] | None, tiles: int | None, reduction: str | None
) -> Config:
    """Return the ``Config`` of some flags (the usual ones when None), with these tiles where tiled."""
    chosen: dict[str, FlagSetting] = {}
    for flag in flags or dialect.config:
        facts = dialect.flags.get(flag)
        tiled = facts is not None and (bool(facts.group) or (dialect.full_shape and flag != "InputTokens"))
        setting: CompressorSetting = {"name": "NoOp", "params": {}}
        if tiled:
            usual = dialect.config[flag].get("params", {}).get("tiles", 96) if flag in dialect.config else 96
            params = {"tiles": tiles or usual, "reduction": reduction or "mean"}
            setting = {"name": "Tile", "params": params}
        chosen[flag] = {"phases": [dialect.phase], "samples": None, "compressor": setting}
    return {"flags": chosen}


def asked_config(dialect: Dialect, config: Config) -> Config:
    """Return what to ask of the peer: what is wanted, what it sends anyway, and what it needs to send it.

    Raises ``ProtocolError`` for a flag that it has not.
    """
    wanted = config["flags"]
    for name in wanted:
        _facts(dialect, name, f"flags.{name}")
    needed = {facts.needs for name, facts in dialect.flags.items() if name in wanted}
    flags = dict(wanted)
    for name, facts in dialect.flags.items():
        if name not in wanted and (facts.always or name in needed):
            # Flags of one group share their compressor.
            group = [other for other in wanted if facts.group and dialect.flags[other].group == facts.group]
            setting = wanted[group[0]]["compressor"] if group else dialect.config[name]
            flags[name] = {"phases": [dialect.phase], "samples": None, "compressor": setting}
    return {**config, "flags": flags}


def peer_request(dialect: Dialect, config: Config) -> dict[str, Any]:
    """Return the members of ``run_training_step`` or ``generate`` that say what to send.

    They are in the words of every hub at once: a person may be wrong about which one it is, and a hub that
    lacks a word of its own ends its training. Raises ``ProtocolError`` for what the peer cannot do.
    """
    for member in ("perturb", "mode", "budget"):
        if config.get(member):
            raise ProtocolError("refused", f"{member} cannot be asked of a foreign hub.", field=member)
    flags = config["flags"]
    chosen = {name: _checked(dialect, name, setting, f"flags.{name}") for name, setting in flags.items()}
    tracer = {
        name: _tracer_compressor(compressor, f"flags.{name}.compressor")
        for name, compressor in chosen.items()
    }
    return {
        # Strings: a boolean crashes MegatronApp, and pull request 3606 takes both.
        "visualization_flags": {name: "True" if name in chosen else "False" for name in dialect.flags},
        "disturbance_configs": {},
        "compressor_config": {
            **tracer,
            **_shared_compressors(dialect, {} if dialect.full_shape else chosen),
        },
    }


def compressor_text(dialect: Dialect, flag: str, config: Config, tiles: int) -> str:
    """Return the ``compressor`` of a row with ``tiles`` values a position: as asked for, or unknown."""
    setting = config["flags"].get(flag)
    compressor = None if setting is None else compressor_from_setting(setting["compressor"])
    if isinstance(compressor, Tile):
        # Someone else's request may be in force: the sizes show it.
        same = compressor.tiles == tiles or (dialect.full_shape and tiles <= compressor.tiles)
        return str(compressor) if same else "Unknown()"
    return "Unknown()" if compressor is None else str(compressor)


def _facts(dialect: Dialect, name: str, field: str) -> FlagFacts:
    facts = dialect.flags.get(name)
    if facts is None:
        names = ", ".join(dialect.flags)
        raise ProtocolError(
            "unknown-flag",
            f"{dialect.title} has no flag {name!r:.100}. It has {names}.",
            field=field,
            expected=names,
            got=name[:200],
        )
    return facts


def _checked(dialect: Dialect, name: str, setting: FlagSetting, field: str) -> Compressor:
    facts = _facts(dialect, name, field)
    if facts.never:
        raise ProtocolError("unavailable-flag", facts.never, field=field)
    if setting.get("passes", ["forward"]) != ["forward"]:
        raise ProtocolError("refused", "A foreign hub sends forward passes only.", field=f"{field}.passes")
    if setting.get("replicas", "first") != "first":
        raise ProtocolError("refused", "A foreign hub sends one replica only.", field=f"{field}.replicas")
    compressor = compressor_from_setting(setting["compressor"], f"{field}.compressor")
    if not dialect.full_shape:
        wanted = "Tile" if facts.group else "NoOp"
        if type(compressor).__name__ != wanted:
            raise ProtocolError(
                "refused",
                f"{dialect.title} sends {name} with {wanted} only.",
                field=f"{field}.compressor.name",
                expected=wanted,
                got=type(compressor).__name__,
            )
    elif name == "InputTokens" and type(compressor).__name__ != "NoOp":
        raise ProtocolError(
            "refused", "Token ids cannot be reduced: ask for NoOp.", field=f"{field}.compressor.name"
        )
    return compressor


def _shared_compressors(dialect: Dialect, chosen: Mapping[str, Compressor]) -> dict[str, Any]:
    """MegatronApp has one entry for QKV and one for the other tiled flags, and needs both."""
    groups: dict[str, Tile] = {}
    for name, compressor in chosen.items():
        group = dialect.flags[name].group
        if not isinstance(compressor, Tile):
            continue
        field = f"flags.{name}.compressor"
        if groups.setdefault(group, compressor) != compressor:
            raise ProtocolError(
                "refused",
                f"{dialect.title} reduces MLP1_mat_mul and MLP2_mat_mul alike: give them the same "
                "compressor.",
                field=field,
                expected=str(groups[group]),
                got=str(compressor),
            )
        if group == "QKV" and compressor.tiles % 3:
            raise ProtocolError(
                "bad-parameter",
                f"{dialect.title} cuts the QKV tiles into thirds: their number must be a multiple of 3, "
                f"got {compressor.tiles}.",
                field=f"{field}.params.tiles",
            )
    result = {}
    for group, tiles in GROUP_TILES.items():
        tile = groups.get(group, Tile(tiles))
        field = next((f"flags.{name}" for name in chosen if dialect.flags[name].group == group), "flags")
        method = peer_reduction(tile.reduction, f"{field}.compressor.params.reduction")
        result[group] = {"pixels": tile.tiles, "method": method}
    return result


def _tracer_compressor(compressor: Compressor, field: str) -> dict[str, Any]:
    name = f"{type(compressor).__name__}Compressor"
    if isinstance(compressor, Tile):
        method = peer_reduction(compressor.reduction, f"{field}.params.reduction")
        tiles = compressor.tiles
        values = {"tiles": tiles, "method": method, "tiles_one_rank": tiles, "method_one_rank": method}
        return {"compressor_type": name, "compressor_configs": values}
    vectors = compressor.to_setting()["params"].get("vectors")
    return {
        "compressor_type": name,
        "compressor_configs": {} if vectors is None else {"vector_path": vectors},
    }
