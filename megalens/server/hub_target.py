"""The address of a live run's hub, and the run it is listed as."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..protocol import MAX_TEXT_BYTES, ProtocolError, decode_message, encode_message
from ..protocol.messages_generated import Message
from .errors import ServerError, require

_MOST_NAME = 200

_ADDRESS = re.compile(r"ws://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):([0-9]{1,5})/?")


# Which hubs a user may connect to by address.
class AllowedHubs:
    """The administrator's patterns ``host:port``; None allows none."""

    def __init__(self, patterns: Iterable[str]) -> None:
        # [::1]:8000 is an address here, never a set of characters.
        self._patterns = [pattern.lower().replace("[", "[[]") for pattern in patterns]

    def check(self, address: Any) -> str:
        """Return the address of a hub that may be connected by hand.

        Raises ``ServerError``: 400 when it is no address, 403 when the administrator did not allow it.
        """
        match = _ADDRESS.fullmatch(address) if isinstance(address, str) and len(address) <= 300 else None
        fits = match is not None and 0 < int(match[2]) < 65536
        require(fits, "An address must look like ws://host:port.", "address")
        assert match is not None
        host = f"{match[1].lower()}:{int(match[2])}"
        if not any(fnmatch.fnmatchcase(host, pattern) for pattern in self._patterns):
            raise ServerError(
                403,
                "forbidden",
                f"This server may not connect to {host}. Its administrator can allow it in "
                "c.MegalensExtension.allowed_hubs.",
                "address",
            )
        return f"ws://{host}"


@dataclass(frozen=True)
class HubTarget:
    """A hub with the address and token of a runtime file or a person.

    It is listed and asked for by ``id``. ``run``, which it reports, differs from that where it is known to be
    another hub's. ``started`` and ``ended``, where a runtime file has it, are seconds since the epoch.
    """

    id: str
    run: str
    name: str
    address: str
    started: float
    token: str = field(repr=False)
    ended: float | None = None

    @property
    def poses(self) -> bool:
        """Whether it reports a run that is another hub's."""
        return self.id != self.run

    @property
    def _address(self) -> str:
        return self.address.removeprefix("ws://")

    def posing_words(self) -> str:
        """Return a sentence about that."""
        return (
            f"The hub at {self._address} says that it is the run {self.run}, which is another one's. It is "
            f"listed as {self.id}."
        )

    def shown(self, name: str) -> str:
        """Return the displayed name of its run."""
        return f"{name[: _MOST_NAME - 100]} (another hub, at {self._address:.70})" if self.poses else name

    def from_hub(self, message: Message) -> Message:
        """Return a message for a browser, with the name and id that the run has here."""
        if not self.poses or message["type"] != "hello":
            return message
        run = message["run"]
        return {**message, "run": {**run, "id": self.id, "name": self.shown(run["name"])}}

    def to_hub(self, data: str | bytes) -> str | bytes:
        """Return a message for a hub, with its own run id; invalid ones pass for the hub to refuse."""
        if not self.poses or isinstance(data, bytes) or len(data) > MAX_TEXT_BYTES:
            return data
        try:
            message = decode_message(data)
        except ProtocolError:
            return data
        if message["type"] == "join" and message.get("run") == self.id:
            return encode_message({**message, "run": self.run})
        return data
