"""Hubs that are not ours: read as they are, translated into a run of ours; and ours served in their language. Needs no torch.

Names are loaded on first use, so that the command line of the other rooms stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dialect import DIALECTS, Dialect
    from .errors import DialectError
    from .gateway import Gateway
    from .hosted_run import HostedRun
    from .translation import Translation
    from .translator import Translator

__all__ = ["DIALECTS", "Dialect", "DialectError", "Gateway", "HostedRun", "Translation", "Translator"]

_HOMES = {
    "DIALECTS": ".dialect",
    "Dialect": ".dialect",
    "DialectError": ".errors",
    "Gateway": ".gateway",
    "HostedRun": ".hosted_run",
    "Translation": ".translation",
    "Translator": ".translator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value
