"""All instruments of one tracer: called at each step, and found by name for messages of other ranks."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from ..protocol import ProtocolError, check_settings_size, encode_message, merge_settings, no_such
from ..protocol.messages_generated import Announce, Cancel, Generate, Generating, InstrumentInfo, Status
from .errors import TracerError, describe_error
from .instrument import Instrument

if TYPE_CHECKING:
    from .instrument import Host

_MOST_EARLY = 256
_Message = TypeVar("_Message", Announce, Status)

GROUP = "megalens.instruments"


def instruments_from(given: Iterable[Instrument | str] | Mapping[str, Mapping[str, Any]]) -> list[Instrument]:
    """Return instruments, of which some may be named.

    Parameters
    ----------
    given : iterable or mapping
        Instruments, or names of entry points; or names with the keyword arguments that each entry point is
        called with.

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
            f"The entry point {name} must give a megalens.tracer.Instrument, got a "
            f"{type(instrument).__name__}."
        )
    return instrument


class Instruments:
    """Instruments in the order in which they were attached."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        # Replaced as a whole: other threads go through it while the training thread changes it.
        self._all: tuple[Instrument, ...] = ()
        self._followed: dict[str, Mapping[str, Any]] = {}
        self._receivers: dict[str, Instrument] = {}
        self._early: dict[str, deque[tuple[int, dict[str, Any], memoryview]]] = {}
        self._order = threading.Lock()

    def __iter__(self) -> Iterator[Instrument]:
        return iter(self._all)

    def named(self, name: str) -> Instrument | None:
        return next((each for each in self._all if each.name == name), None)

    def add(self, instrument: Instrument, host: Host) -> None:
        """Attach an instrument, and hand on the messages of other ranks that came before it.

        Raises ``TracerError`` when its name is empty or taken.
        """
        name = instrument.name
        if not name or self.named(name) is not None:
            got = f"{name!r}, which there is already" if name else "an empty one"
            raise TracerError(f"An instrument must have a name of its own, got {got}.")
        instrument.attach(host)
        # A rank that is ahead sends messages for an instrument that is not attached here yet. They are handed
        # on in order: one may refer to those before it.
        with self._order:
            before = self._receivers.get(name)
            for message in self._early.pop(name, ()):
                self._receive(instrument, *message)
            self._receivers[name] = instrument
        if before is not None:
            before.superseded()
        self._followed.pop(name, None)
        self._all = (*self._all, instrument)

    def remove(self, instrument: Instrument) -> None:
        """Call an instrument no more. Safe twice.

        Other ranks' messages still reach it until another takes its name: they may be behind.
        """
        self._all = tuple(each for each in self._all if each is not instrument)

    # Settings.

    def can_be_set(self, patch: Mapping[str, Any]) -> None:
        """Check that a patch names instruments that are here and can be set; raises ``ProtocolError``."""
        known = [each.name for each in self._all if each.schema()]
        for name in patch.get("instruments", ()):
            if name not in known:
                raise no_such("instrument that can be set", name, known, f"instruments.{name}")

    def changed(
        self, now: Mapping[str, Mapping[str, Any]], patch: Mapping[str, Any]
    ) -> dict[str, Mapping[str, Any]]:
        """Return settings by name after a patch; those of an instrument not attached yet wait for it. Any
        thread.

        Raises ``ProtocolError`` with the field at fault.
        """
        check_settings_size(patch)
        after = dict(now)
        for name, each in patch.items():
            merged = merge_settings(now.get(name), each)
            instrument = self.named(name)
            after[name] = merged if instrument is None else instrument.check(merged)
        check_settings_size(after)
        return after

    def follow(self, settings: Mapping[str, Mapping[str, Any]], step: int) -> None:
        """Apply settings that changed from ``step`` on."""
        for each in self._all:
            wanted = settings.get(each.name)
            if wanted is None or wanted == self._followed.get(each.name):
                continue
            self._followed[each.name] = wanted
            try:
                each.apply(step, wanted)
            except Exception as error:
                self._failed(each, error)

    def notify(self, event: str, *arguments: Any, last_first: bool = False) -> None:
        """Call a method of each instrument. What one raises is reported once; step and others go on."""
        for each in reversed(self._all) if last_first else self._all:
            try:
                getattr(each, event)(*arguments)
            except Exception as error:
                self._failed(each, error)

    def _failed(self, instrument: Instrument, error: Exception) -> None:
        self._warn(f"The instrument {instrument.name} failed: {describe_error(error)}")

    def take_ns(self) -> int:
        """Return what hooks of instruments cost the training thread since the last call."""
        spent = 0
        for each in self._all:
            try:
                spent += each.take_ns()
            except Exception as error:
                self._failed(each, error)
        return spent

    # Other threads.

    def fill(self, message: _Message, part: str) -> _Message:
        """Return a message with what each instrument adds by ``part``: ``describe`` or ``report``."""
        for each in self._all:
            # In a copy, so that what fails, or is no message, leaves nothing behind.
            filled = copy.deepcopy(message)
            try:
                getattr(each, part)(filled)
                encode_message(filled)
            except Exception as error:
                self._failed(each, error)
            else:
                message = filled
        return message

    def asked(self, message: Generate | Cancel) -> Generating:
        """Return the answer of the instrument that takes such requests; raises ``ProtocolError``."""
        for each in self._all:
            answer = each.asked(message)
            if answer is not None:
                return answer
        raise ProtocolError(
            "refused",
            "Nothing here writes text. megalens.serve(model, tokenizer) does, and a training that allows it.",
        )

    def infos(self) -> dict[str, InstrumentInfo]:
        """Return the title and JSON Schema of each instrument's settings, by name."""
        return {
            each.name: {"title": each.title or each.name, "schema": dict(schema)}
            for each in self._all
            if (schema := each.schema())
        }

    def received(self, rank: int, name: str, meta: dict[str, Any], payload: memoryview) -> None:
        """Hand on a message of an instrument on another rank."""
        with self._order:
            instrument = self._receivers.get(name)
            if instrument is not None:
                self._receive(instrument, rank, meta, payload)
            else:
                self._early.setdefault(name, deque(maxlen=_MOST_EARLY)).append((rank, meta, payload))

    def _receive(self, instrument: Instrument, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        try:
            instrument.received(rank, meta, payload)
        except Exception as error:
            self._warn(f"What rank {rank} told {instrument.name} cannot be read: {describe_error(error)}")
