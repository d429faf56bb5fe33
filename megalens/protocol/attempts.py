"""Where the earlier attempts of a recording lie whose training went back to a checkpoint."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["attempt_folders"]


def attempt_folders(folder: Path) -> list[Path]:
    """Return the run folders of the earlier attempts of a run folder, oldest first. No link is followed."""
    home = folder / "attempts"
    with suppress(OSError):
        if home.is_dir() and not home.is_symlink():
            numbered = [
                place
                for place in home.iterdir()
                if place.name.isascii()
                and place.name.isdecimal()
                and len(place.name) < 10
                and place.is_dir()
                and not place.is_symlink()
            ]
            return sorted(numbered, key=lambda place: int(place.name))
    return []
