"""The hub: one small process per run between producers and viewers. Importing this loads discovery only."""

from __future__ import annotations

from .discovery import HubEntry, find_hub, live_hubs, remove_entry, runtime_folder, write_entry
from .options import HubError

__all__ = [
    "HubEntry",
    "HubError",
    "find_hub",
    "live_hubs",
    "remove_entry",
    "runtime_folder",
    "write_entry",
]
