"""Instruments that other packages bring: entry points of the group ``megalens.instruments``, loaded only when somebody names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from .errors import TracerError
from .instrument import Instrument

__all__ = ["GROUP", "instruments_from"]

GROUP = "megalens.instruments"


def instruments_from(given: Iterable[Instrument | str] | Mapping[str, Mapping[str, Any]]) -> list[Instrument]:
    """Return instruments, of which some may be named.

    Parameters
    ----------
    given : iterable or mapping
        Instruments, or names of entry points; or names with the keyword arguments that each entry point is called with.

    Raises
    ------
    TracerError
        When there is no such entry point, saying which there are, or what one gives is no instrument.
    """
    if isinstance(given, str):
        given = [given]
    settings = given if isinstance(given, Mapping) else {}
    return [each if isinstance(each, Instrument) else _load(each, settings.get(each, {})) for each in given]


def _load(name: Any, settings: Mapping[str, Any]) -> Instrument:
    if not isinstance(name, str):
        raise TracerError(f"instruments must be instruments or names of them, got a {type(name).__name__}.")
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise TracerError(f"No installed package brings an instrument {name!r:.100}; installed: {known}.")
    try:
        instrument = found[name].load()(**settings)
    except Exception as error:
        raise TracerError(
            f"The instrument {name} could not be made: {type(error).__name__}: {str(error)[:300]}"
        ) from error
    if not isinstance(instrument, Instrument):
        raise TracerError(
            f"The entry point {name} must give a megalens.tracer.Instrument, got a {type(instrument).__name__}."
        )
    return instrument
