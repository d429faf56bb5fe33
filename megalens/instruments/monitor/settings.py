"""Settings of the monitor and of ``megalens check``: rules, parameters and mutes, with rules of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

from ...protocol.errors import ProtocolError, must_be, no_such
from ...protocol.kinds import kind_from_setting, kind_infos
from .rule import Alarm, OwnRule, Rule
from .rules import RULES

GROUP = "megalens.rules"


def read_rules(given: Any, more: Sequence[OwnRule] = ()) -> tuple[WatchSettings, dict[str, OwnRule]]:
    """Return the settings and the own rules of ``megalens.monitor(rules=…)``, with ``more`` and installed
    packages'.

    Raises ``ProtocolError`` naming what is wrong.
    """
    settings: Any = None
    functions: Any = ()
    if callable(given):
        functions = [given]
    elif isinstance(given, Mapping):
        settings = {key: value for key, value in given.items() if key != "own"}
        functions = given.get("own", ())
    elif given is not None:
        functions = given
    functions = [functions] if callable(functions) else functions
    if not isinstance(functions, (list, tuple)) or not all(map(callable, functions)):
        raise must_be("rules", "settings, a function, or a list of functions", given, "rules")
    own = installed_rules()
    for function in (*functions, *more):
        own[_free(getattr(function, "__name__", "rule"), own)] = function
    return WatchSettings.of(settings, tuple(own), "rules"), own


def installed_rules() -> dict[str, OwnRule]:
    """Return the rules of installed packages, by name; raises ``ProtocolError`` if one does not load."""
    found: dict[str, OwnRule] = {}
    for entry in entry_points(group=GROUP):
        try:
            rule: Callable[..., Any] = entry.load()
        except Exception as error:
            raise ProtocolError(
                "bad-parameter",
                f"The rule {entry.name} of the package {entry.value} could not be loaded: "
                f"{type(error).__name__}: {str(error)[:300]}",
                field="rules",
            ) from error
        found[_free(entry.name, found)] = rule
    return found


def _free(name: str, taken: Mapping[str, Any]) -> str:
    names = [name, *(f"{name}_{number}" for number in range(2, 1000))]
    return next(each for each in names if each not in taken and each not in RULES)


@dataclass(frozen=True)
class WatchSettings:
    """Checked settings.

    Attributes
    ----------
    parameters : mapping
        By rule its parameters where they are not the defaults.
    off : frozenset of str
        Rules that do not judge.
    mutes : tuple of (str, str)
        Rule and name, with ``*`` and ``?``, of alarms that are not raised.
    """

    parameters: Mapping[str, Rule] = field(default_factory=dict)
    off: frozenset[str] = frozenset()
    mutes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, given: Any, own: tuple[str, ...] = (), where: str = "instruments.monitor") -> WatchSettings:
        """Return the settings of ``{"rules": {"jump": {"on": true, "threshold": 12}}, "muted": [{"rule": …,
        "name": "lm_head*"}]}``.

        ``own`` are the names of somebody's own rules; ``where`` is the dotted name of the object in errors.
        Raises ``ProtocolError`` with the field at fault.
        """
        given = _mapping(given, where)
        for key in given:
            if key not in ("rules", "muted"):
                raise no_such("setting", key, ("rules", "muted"), f"{where}.{key}", "bad-parameter")
        parameters, off = {}, set()
        for name, setting in _mapping(given.get("rules"), f"{where}.rules").items():
            at = f"{where}.rules.{name}"
            if name not in RULES and name not in own:
                raise no_such("rule", name, (*RULES, *own), at, "bad-parameter")
            setting = dict(_mapping(setting, at))
            on = setting.pop("on", True)
            if not isinstance(on, bool):
                raise must_be(f"{name}.on", "true or false", on, f"{at}.on")
            if not on:
                off.add(name)
            if name in RULES:
                wanted = {"name": name, "params": setting}
                try:
                    parameters[name] = kind_from_setting(
                        RULES, wanted, at, noun="rule", unknown="bad-parameter"
                    )
                except ProtocolError as error:
                    # Here parameters are siblings of the switch.
                    error.field = (error.field or at).replace(f"{at}.params", at)
                    raise
            elif setting:
                raise no_such("parameter", next(iter(setting)), ("on",), at, "bad-parameter")
        muted = given.get("muted", [])
        if not isinstance(muted, list):
            raise must_be("muted", "a list", muted, f"{where}.muted")
        mutes = []
        for number, each in enumerate(muted):
            at = f"{where}.muted.{number}"
            each = _mapping(each, at)
            texts = each.get("rule", "*"), each.get("name", "*")
            if {*each} - {"rule", "name"} or not all(isinstance(text, str) for text in texts):
                raise must_be("muted", 'texts, as in {"rule": "jump", "name": "lm_head*"}', each, at)
            mutes.append(texts)
        return cls(parameters, frozenset(off), tuple(mutes))

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(
            self.parameters.get(name) or rule() for name, rule in RULES.items() if name not in self.off
        )

    def on(self, name: str) -> bool:
        return name not in self.off

    def muted(self, alarm: Alarm) -> bool:
        """Return whether an alarm is muted."""
        return any(
            fnmatchcase(alarm.rule, rule) and fnmatchcase(alarm.name, name) for rule, name in self.mutes
        )

    def to_message(self, own: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the settings object, with every parameter of every rule."""
        rules = {
            name: {"on": name not in self.off, **asdict(self.parameters.get(name) or rule())}
            for name, rule in RULES.items()
        }
        rules |= {name: {"on": name not in self.off} for name in own}
        return {"rules": rules, "muted": [{"rule": rule, "name": name} for rule, name in self.mutes]}

    @staticmethod
    def schema(own: tuple[str, ...] = ()) -> dict[str, Any]:
        on = {"type": "boolean", "title": "On", "default": True}
        rules = {
            info["name"]: {
                "type": "object",
                "title": info["title"],
                "description": info["description"],
                "additionalProperties": False,
                "properties": {"on": on, **RULES[info["name"]].properties},
            }
            for info in kind_infos(RULES)
        }
        rules |= {name: {"type": "object", "title": name, "properties": {"on": on}} for name in own}
        text = {"type": "string", "default": "*"}
        muted = {"type": "object", "additionalProperties": False, "properties": {"rule": text, "name": text}}
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "rules": {"type": "object", "title": "Rules", "properties": rules},
                "muted": {"type": "array", "title": "Muted", "items": muted, "default": []},
            },
        }


def _mapping(given: Any, where: str) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise must_be(where.rpartition(".")[2], "an object", given, where)
    return given
