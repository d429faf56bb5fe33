"""Rules of somebody's own: functions of a script, and entry points of the group ``megalens.rules`` that installed packages bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from ...protocol.errors import ProtocolError, must_be
from .rules import RULES
from .settings import WatchSettings
from .watch import OwnRule

__all__ = ["GROUP", "installed_rules", "read_rules"]

GROUP = "megalens.rules"


def read_rules(given: Any, more: Sequence[OwnRule] = ()) -> tuple[WatchSettings, dict[str, OwnRule]]:
    """Return the settings and the own rules that ``megalens.monitor(rules=…)`` was given, with ``more`` of the second kind and those of installed packages.

    Raises
    ------
    ProtocolError
        Naming what is wrong.
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
    """Return the rules of installed packages, by name.

    Raises
    ------
    ProtocolError
        When one cannot be loaded, naming it.
    """
    found: dict[str, OwnRule] = {}
    for entry in entry_points(group=GROUP):
        try:
            rule: Callable[..., Any] = entry.load()
        except Exception as error:
            raise ProtocolError(
                "bad-parameter",
                f"The rule {entry.name} of the package {entry.value} could not be loaded: {type(error).__name__}: {str(error)[:300]}",
                field="rules",
            ) from error
        found[_free(entry.name, found)] = rule
    return found


def _free(name: str, taken: Mapping[str, Any]) -> str:
    names = [name, *(f"{name}_{number}" for number in range(2, 1000))]
    return next(each for each in names if each not in taken and each not in RULES)
