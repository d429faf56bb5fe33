"""Runs as a kernel sees them: one object for a live run and for a recorded one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connecting import connect
    from .errors import ClientError
    from .opening import open_all_runs, open_run
    from .query import Query
    from .run import Run
    from .run_folder import RunFolder

__all__ = [
    "ClientError",
    "Query",
    "Run",
    "RunFolder",
    "connect",
    "open_all_runs",
    "open_run",
]

# Loaded when they are asked for: a command that looks at one recording needs a third of them.
_HOMES = {
    "ClientError": "errors",
    "Query": "query",
    "Run": "run",
    "connect": "connecting",
    "RunFolder": "run_folder",
    "open_all_runs": "opening",
    "open_run": "opening",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
