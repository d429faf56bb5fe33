"""The producer thread's connection to its hub, reopened when it is lost, and the frames that go over it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...protocol import ProtocolError, Stream, encode_message, frame_pieces
from ...protocol.messages_generated import Hello, Message, Peer
from ..errors import describe_error
from ..health import ProducerHealth
from .hub_link import HubLink, HubLinkLost
from .hub_process import HubAddress, HubProcess

_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_STAYED_SECONDS = 5.0

_BYTES = 32 << 20

_SECONDS = 2.0
"""The hub writes each frame as it comes; what is older than this is on its disk unless that stands still, of
which the hub's status tells.
"""


class RecentSteps:
    """The steps sent in the last seconds, and the warning about them once the hub is back."""

    def __init__(self) -> None:
        self._sent: deque[tuple[float, int]] = deque()
        self._unwritten: int | None = None

    def note(self, step: int) -> None:
        """Remember that rows of ``step`` were sent now."""
        now = time.monotonic()
        if not self._sent or self._sent[-1][1] != step:
            self._sent.append((now, step))
        # The newest of the older ones stays: nothing that came after it is known to be written.
        while len(self._sent) > 1 and self._sent[1][0] < now - _SECONDS:
            self._sent.popleft()

    def hub_gone(self, step: int) -> None:
        """Note, the first time, that the hub was lost at ``step`` with what it had not written."""
        if self._unwritten is None:
            self._unwritten = min((sent for _, sent in self._sent), default=step)

    def hub_is_back(self, step: int, *, anew: bool) -> str | None:
        """Return the warning once a hub is there again at ``step``; None when none had gone.

        ``anew`` says that it is another hub, with a recording of its own.
        """
        if self._unwritten is None:
            return None
        first, self._unwritten = self._unwritten, None
        last = max(first, step)
        if anew:
            return (
                f"The hub ended and was restarted at step {last}. What follows is in a new recording; "
                f"rows of steps {first} to {last} may be in neither."
            )
        return (
            f"The connection to the hub broke and was back at step {last}. "
            f"Rows of steps {first} to {last} may be missing in the recording."
        )


class EarlyFrames:
    """Frames that were made before the hub was known, as many as fit, until they are taken.

    ``waits`` says whether a hub will become known.
    """

    def __init__(self, waits: bool) -> None:
        self._frames: list[bytes] | None = [] if waits else None
        self._nbytes = 0

    @property
    def has_space(self) -> bool:
        """Whether another frame is stored."""
        return self._frames is not None and self._nbytes < _BYTES

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frame: bytes) -> None:
        """Store a frame, where there is space."""
        if self._frames is not None:
            self._frames.append(frame)
            self._nbytes += len(frame)

    def take(self) -> Iterator[bytes]:
        """Give the stored frames in order, and store no more."""
        frames, self._frames = self._frames or [], None
        yield from frames


class HubConnection:
    """A connection that reopens: to the same hub while that may be there, to our own hub restarted once.

    Parameters
    ----------
    address : HubAddress or None
        The hub to begin with; None until :meth:`move` names it.
    process : HubProcess or None
        Our own hub, to be restarted once.
    hubless : bool
        Whether there will never be a hub.
    received : callable
        Takes, in a thread of the link's own, the link with each control message, or with None once it is
        gone.
    came, went : callable
        Called when a hub is connected, with its ``hello``, and when it is no more.
    moved : callable
        Takes the address of a restarted hub.
    given_up : callable
        Called when no hub is left to send to.
    """

    def __init__(
        self,
        address: HubAddress | None,
        process: HubProcess | None,
        *,
        peer: Peer,
        health: ProducerHealth,
        hubless: bool,
        received: Callable[[HubLink, Message | ProtocolError | None], None],
        came: Callable[[Hello], None],
        went: Callable[[], None],
        moved: Callable[[HubAddress], None],
        given_up: Callable[[], None],
    ) -> None:
        self._address = address
        self._process = process
        self._peer = peer
        self._health = health
        self._received, self._came, self._went = received, came, went
        self._moved, self._given_up = moved, given_up
        self._early = EarlyFrames(address is None and not hubless)
        self._recent = RecentSteps()
        self._run = ""
        self._link: HubLink | None = None
        self._seq = 0
        self._tries = 0
        self._retry_at = self._came_at = 0.0
        self._restarted = False
        self._over = self._last = False

    # Other threads.

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def frames(self) -> int:
        """How many frames were made."""
        return self._seq

    @property
    def folder(self) -> str | None:
        """The run folder, where the hub records on this machine."""
        return None if self._address is None else self._address.record

    def last(self) -> None:
        """Plan no reconnection any more: the training is at its end."""
        self._last = True

    def abort(self) -> None:
        """Cut the connection at once."""
        link = self._link
        if link is not None:
            link.abort()

    # Producer thread.

    @property
    def there(self) -> bool:
        """Whether a hub is connected."""
        return self._link is not None

    @property
    def wait(self) -> float | None:
        """Seconds until the next try; None where there is nothing to try."""
        if self._link is not None or self._over or self._address is None:
            return None
        return max(0.0, self._retry_at - time.monotonic())

    @property
    def awaited(self) -> bool:
        """Whether frames wait for the hub to become known."""
        return bool(self._early) and self._link is None and not self._over

    def move(self, address: HubAddress) -> None:
        """Use another hub from the next try on, which is due at once."""
        self._address, self._retry_at = address, 0.0

    def open(self) -> None:
        """Connect where that is due."""
        wait = self.wait
        if self._address is None or wait is None or wait > 0:
            return
        try:
            link = HubLink(self._address, self._peer, self._received)
        except Exception as error:  # HubLinkLost, and whatever a library makes of an answer that is none.
            self.lost(str(error) if isinstance(error, HubLinkLost) else describe_error(error))
            return
        self._link = link
        self._came_at = time.monotonic()
        self._came(link.hello)
        run = link.hello["run"]["id"]
        if gap := self._recent.hub_is_back(self._health.step, anew=run != self._run):
            self._health.warn(gap)
        self._run = run

    def is_current(self, link: HubLink) -> bool:
        """Return whether this is the current connection, and not one that was lost."""
        return link is self._link

    def send_early(self) -> None:
        """Send the frames that were made before the hub was known."""
        for frame in self._early.take():
            if not self.send(frame):
                break

    def send_frame(self, stream: str | Stream, rows: Any, step: int, first: int | None = None) -> int:
        """Send rows as one frame and return its size; 0 when there is no hub to take it."""
        return self.send_made(step, lambda seq: frame_pieces(stream, rows, step=step, seq=seq), first)

    def send_made(
        self, step: int, make: Callable[[int], Sequence[bytes | memoryview]], first: int | None = None
    ) -> int:
        """Send the frame that ``make`` gives for a sequence number; return its size, 0 without a hub.

        Its steps, from ``first`` (its only one when absent) to ``step``, are those whose rows a hub that dies
        may not have written.
        """
        if self._link is None and not self._early.has_space:
            return 0
        self._seq += 1
        frame = make(self._seq)
        if self._link is None:
            # The hub is not known yet.
            self._early.add(b"".join(frame))
        elif not self.send(frame):
            return 0
        else:
            self._recent.note(step if first is None else first)
        return sum(map(len, frame))

    def say(self, message: Message) -> None:
        """Send a control message, where there is a hub to take it."""
        if self._link is None:
            return
        try:
            text = encode_message(message)
        except ProtocolError as error:
            self._health.warn(f"A message of the tracer's own was wrong: {error}")
        else:
            self.send(text)

    def send(self, data: str | bytes | Sequence[bytes | memoryview]) -> bool:
        """Send a message as it is, or a frame in pieces, and return whether a hub took it."""
        if self._link is None:
            return False
        try:
            self._link.send(data)
        except HubLinkLost as error:
            self.lost(str(error))
            return False
        return True

    def lost(self, why: str) -> None:
        """Decide what follows a broken connection: the same hub, our own hub restarted once, or none."""
        if self._link is not None and time.monotonic() - self._came_at >= _STAYED_SECONDS:
            # A hub that says hello and leaves each time is tried ever more rarely.
            self._tries = 0
        self._link = None
        self._went()
        if self._over or self._last:
            return
        step = self._health.step
        if self._run:
            self._recent.hub_gone(step)
        if self._process is None or (self._process.alive and self._tries < 3):
            delay = _RETRY_SECONDS[min(self._tries, len(_RETRY_SECONDS) - 1)]
            self._tries += 1
            self._retry_at = time.monotonic() + delay
            if self._tries == 2:
                self._health.warn(f"The hub cannot be reached ({why}). Training goes on; trying again.")
            return
        if self._restarted:
            self.give_up(f"The hub ended a second time, at step {step}. Training goes on untraced.")
            return
        self._restarted = True
        self._tries = 0
        try:
            self._address = self._process.start()
        except Exception as error:
            self.give_up(f"The hub ended at step {step} and could not be started again. {error}")
            return
        self._moved(self._address)
        self._retry_at = 0.0

    def give_up(self, text: str) -> None:
        """Report why no hub is left to send to, and open no connection any more."""
        self._health.warn(text)
        self._over = True
        self._given_up()

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
