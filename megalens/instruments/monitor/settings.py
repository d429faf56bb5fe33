"""Which rules judge, with which parameters, and what is muted: the settings of the instrument ``monitor`` and of ``megalens check``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ...protocol.errors import ProtocolError, must_be, no_such
from ...protocol.kinds import kind_from_setting, kind_infos
from .alarm import Alarm
from .rule import Rule
from .rules import RULES

__all__ = ["WatchSettings"]


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
        """Return what a settings object says: ``{"rules": {"jump": {"on": true, "threshold": 12}}, "muted": [{"rule": "jump", "name": "lm_head*"}]}``.

        Parameters
        ----------
        given : mapping or None
            The object; None: all as it is by default.
        own : tuple of str
            Names of rules of somebody's own.
        where : str
            Dotted name of the object, for errors.

        Raises
        ------
        ProtocolError
            ``bad-parameter`` with the field at fault.
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
                    # Here parameters stand beside the switch.
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
        """The rules that judge."""
        return tuple(
            self.parameters.get(name) or rule() for name, rule in RULES.items() if name not in self.off
        )

    def on(self, name: str) -> bool:
        """Return whether a rule judges."""
        return name not in self.off

    def muted(self, alarm: Alarm) -> bool:
        """Return whether an alarm is not to be raised."""
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
        """Return the JSON Schema of the settings object."""
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
