"""Messages between this rank and one other, both ways.

Messages of one direction stay in the order in which they were sent: NCCL matches them by it, and gloo does
within a tag. In a fixed order both ends know it, and the training thread posts receives ahead, and waits for
the one that it needs. In a dynamic one only the sender knows it: each message has a header that describes it,
and a thread receives, since a work of gloo is done only once somebody has waited for it. A header also has
the shapes, the first time that a message crosses a boundary. Another thread waits for what is sent, so that
its memory is free as soon as it has gone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, distributed

from ..errors import StageError
from .inbox import Arrival, Inbox, Key, Spec

_DATA, _HEADER = 1, 2
_HEADER_NUMBERS = 128
_LONG_SECONDS = 86400.0
"""How long a thread waits for one message; the training thread enforces the time limit."""


def connect(
    ranks: Sequence[int],
    index: int,
    peers: Iterable[int],
    inbox: Inbox,
    device: torch.device,
    *,
    ahead: int,
    timeout: float,
    error: type[StageError],
    makes: str,
) -> dict[int, Link]:
    """Return the links of a rank, by the others' indices in ``ranks``. All of the ranks call it together.

    On NCCL, where receives and sends between two ranks would wait for each other on one stream, messages to
    higher and to lower indices have a group each, and headers go over gloo. ``peers`` are the indices to
    connect with, ``ahead`` is the number of receives posted ahead. After ``timeout`` seconds it raises
    ``error``, which names what every rank ``makes``.
    """
    # Older versions of torch have no such argument.
    unsorted: dict[str, Any] = {} if sorted(ranks) == list(ranks) else {"sort_ranks": False}

    def group(backend: str) -> Any:
        try:
            return distributed.new_group(
                list(ranks),
                backend=backend,
                timeout=timedelta(seconds=timeout),
                use_local_synchronization=True,
                **unsorted,
            )
        except RuntimeError as failure:
            raise error(
                f"The ranks {list(ranks)} did not all connect within {timeout:.3g} s: every one of them "
                f"makes its {makes} ({str(failure)[:200]}).",
                code="waited",
                rank=ranks[index],
            ) from failure

    if len(ranks) == 1:
        return {}
    control = up = down = group("gloo")
    if device.type != "cpu":
        up, down = group("nccl"), group("nccl")
    links = {}
    for peer in sorted(peers):
        out, into = (up, down) if index < peer else (down, up)
        links[peer] = Link(inbox, ranks[peer], peer, out, into, control, device, ahead)
    for peer, link in links.items():
        # NCCL connects two ranks in their first message, and both wait for it: better here than within a
        # step. Each rank takes its pairs by rising sum of indices, so that no ring of them deadlocks.
        try:
            link.greet(index < peer, timeout)
        except (RuntimeError, TimeoutError) as failure:
            raise error(
                f"Rank {ranks[index]} could not reach rank {ranks[peer]} within {timeout:.3g} s: "
                f"{str(failure)[:200]}",
                code="lost",
                rank=ranks[index],
            ) from failure
    return links


def drain(
    inbox: Inbox,
    links: Sequence[Link],
    seconds: float,
    lost: Callable[[int, BaseException], StageError],
    late: Callable[[int], StageError],
) -> None:
    """Wait until everything is sent.

    Raises ``lost`` of the global rank whose link failed and its error, or after some time ``late`` of the one
    that does not take what was sent to it.
    """
    deadline = time.monotonic() + seconds
    for link in links:
        try:
            link.flush(seconds)
        except TimeoutError:
            raise late(link.peer) from None
        except RuntimeError as error:
            raise lost(link.peer, error) from error
    inbox.draining = True
    with inbox.lock:
        while unsent := [link.peer for link in links if not link.sent]:
            if inbox.failure is not None:
                raise lost(*inbox.failure) from inbox.failure[1]
            left = deadline - time.monotonic()
            if left <= 0:
                raise late(unsent[0])
            inbox.changed.wait(left)
    inbox.draining = False


# Reports to a tracer.
def report_received(watch: Any, message: Arrival, before: int, chunk: int, micro_batch: int) -> None:
    """Report a message of another rank, for which this one waited since ``before``, ns."""
    if message.peer < 0:
        return
    watch.message(
        "receive",
        message.posted,
        message.arrived,
        blocked=max(0, message.arrived - max(before, message.posted)),
        nbytes=sum(each.numel() * each.element_size() for each in message.tensors if each is not None),
        peer=message.peer,
        sequence=message.sequence,
        chunk=chunk,
        micro_batch=micro_batch,
    )


def report_sent(watch: Any, link: Link, chunk_of: Callable[[Key], int]) -> None:
    """Report what a link has sent."""
    while link.done:
        key, posted, ended, nbytes, sequence = link.done.popleft()
        watch.message(
            "send",
            posted,
            ended,
            blocked=0,
            nbytes=nbytes,
            peer=link.peer,
            sequence=sequence,
            chunk=chunk_of(key),
            micro_batch=-1 if key[0] == "S" else key[2],
        )


_POLL_SECONDS = 5e-5

_DTYPES = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16),
    *(torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
    *(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)),
)
_LETTERS = "FBS"

Sent = tuple[Key, int, int, int, int]
"""Key, ns when a send was posted and when it was done, bytes, number of the message."""

_Posted = tuple[Key, list[Any], list[Tensor], int]
"""Key, works, tensors, ns when it was posted."""
_Sending = tuple[Key, int, list[tuple[Any, bool]], list[Tensor], int, int]
"""Key, ns when it was posted, works with whether each is a header, tensors, bytes, number."""

_clock = time.perf_counter_ns


def spec_of(tensors: Sequence[Tensor]) -> Spec:
    """Return dtype, shape and whether a gradient comes back, of each."""
    return tuple((each.dtype, tuple(each.shape), each.requires_grad) for each in tensors)


class Link:
    """Sends to one rank, ``peer`` globally and ``at`` in the groups, and receives from it.

    The groups are for sending, for receiving, and for headers, which are on the CPU. At most ``ahead``
    receives are posted, or messages received by a thread, before the training thread takes them.
    """

    def __init__(
        self,
        inbox: Inbox,
        peer: int,
        at: int,
        out: Any,
        into: Any,
        control: Any,
        device: torch.device,
        ahead: int,
    ) -> None:
        self.peer = peer
        self._inbox, self._at, self._device, self._ahead = inbox, at, device, ahead
        self._out, self._into, self._control = out, into, control
        # Key of each expected message, or None where its header will tell; then those with posted receives.
        self._expected: deque[Key | None] = deque()
        self._posted: deque[_Posted] = deque()
        self._headers = self._dynamic = False
        self._credit = ahead
        self.hungry = False
        """Whether the training thread can only wait: receives are then unlimited."""
        self._go = threading.Condition(inbox.lock)
        self._receives = False
        self._specs: dict[tuple[bool, int], Spec] = {}
        # What the training thread waits for itself, and what it left to another thread: each takes the
        # interpreter.
        self._unsent: deque[_Sending] = deque()
        self._sending: SimpleQueue[list[_Sending] | None] = SimpleQueue()
        self._numbers = [0, 0]
        self._finished = self._finished_here = 0
        self.done: deque[Sent] = deque(maxlen=100_000)
        """Finished sends, collected with :attr:`timed`."""
        self.timed = False
        self._closed = False
        self._start(self._finish_all)

    # The training thread.

    def greet(self, first: bool, seconds: float) -> None:
        """Exchange a first message; the end with ``first`` sends before it receives."""
        word = torch.zeros(1, device=self._device)
        for sends in (first, not first):
            work = (
                self._out.send([word], self._at, _DATA) if sends else self._into.recv([word], self._at, _DATA)
            )
            self._wait(work, False, seconds)

    def begin(self, expected: Iterable[Key | None], headers: bool, dynamic: bool) -> None:
        """Set this step's messages, in order: None each where headers will describe them."""
        with self._inbox.lock:
            self._expected.extend(expected)
            self._headers, self._dynamic, self._credit = headers, dynamic, self._ahead
            self._go.notify()
        if not dynamic:
            self.post_ahead()
        elif not self._receives:
            self._receives = True
            self._start(self._receive_all)

    def post_ahead(self) -> None:
        """Post the allowed receives of messages with known shapes, in a fixed order."""
        while self._expected and len(self._posted) < self._ahead and not self._headers:
            key = self._expected[0]
            spec = None if key is None else self._inbox.specs.get(key[:2])
            if key is None or spec is None:
                return
            self._expected.popleft()
            self._posted.append(self._post(key, spec, _clock()))

    def receive(self, key: Key, seconds: float) -> None:
        """Receive in fixed order until a message has come.

        Raises ``TimeoutError``, or what the group raises where the other process is gone.
        """
        filed = self._inbox.filed
        while key not in filed:
            self.post_ahead()
            if not self._posted:
                self._posted.append(self._post_unknown(self._expected.popleft(), seconds))
            self._file(self._posted[0], seconds)
            self._posted.popleft()

    def send(self, key: Key, tensors: Sequence[Tensor], headers: bool) -> Spec | None:
        """Post a message; return its kind's earlier spec instead if it differs and no header would tell."""
        spec = spec_of(tensors)
        letter, virtual, _ = key
        if letter == "F":
            before = self._specs.get((self._inbox.training, virtual))
            if not headers and before is not None and before != spec:
                return before
            # Both ends know it from the first message on.
            headers = headers or before is None
            self._specs[self._inbox.training, virtual] = spec
        posted, works, buffers = _clock(), [], list[Tensor]()
        if headers:
            header = _header(key, spec)
            works.append((self._control.send([header], self._at, _HEADER), True))
            buffers.append(header)
        # Buffers stay referenced while the works read them.
        buffers += [each.detach().contiguous() for each in tensors]
        works += [(self._out.send([each], self._at, _DATA), False) for each in buffers[len(works) :]]
        nbytes = sum(each.numel() * each.element_size() for each in tensors)
        self._unsent.append((key, posted, works, buffers, nbytes, self._numbers[0]))
        self._numbers[0] += 1
        if self.timed or len(self._unsent) >= 2 * self._ahead:
            count = len(self._unsent) if self.timed else self._ahead
            self._sending.put([self._unsent.popleft() for _ in range(count)])
        return None

    def flush(self, seconds: float) -> None:
        """Wait for what was sent last. Raises as :meth:`receive`."""
        while self._unsent:
            for work, header in self._unsent[0][2]:
                self._wait(work, header, seconds)
            self._unsent.popleft()
            self._finished_here += 1

    def taken(self) -> None:
        """Allow one more message, since one was taken. The caller has the lock."""
        self._credit += 1
        if self._receives:
            self._go.notify()

    def starve(self, hungry: bool) -> None:
        """Set :attr:`hungry`. The caller has the lock."""
        self.hungry = hungry
        if hungry and self._receives:
            self._go.notify()

    @property
    def sent(self) -> bool:
        return self._finished + self._finished_here == self._numbers[0]

    def close(self) -> None:
        """End the threads. Safe twice."""
        with self._inbox.lock:
            self._closed = True
            self._go.notify_all()
        self._sending.put(None)

    def _post(self, key: Key, spec: Spec, began: int) -> _Posted:
        tensors = [torch.empty(shape, dtype=dtype, device=self._device) for dtype, shape, _ in spec]
        return key, [self._into.recv([each], self._at, _DATA) for each in tensors], tensors, began

    def _post_header(self) -> tuple[Any, Tensor, int]:
        numbers = torch.empty(_HEADER_NUMBERS, dtype=torch.int64)
        return self._control.recv([numbers], self._at, _HEADER), numbers, _clock()

    def _post_unknown(self, key: Key | None, seconds: float, header: Any = None) -> _Posted:
        """Wait for a header, and post the receive of its message."""
        work, numbers, began = self._post_header() if header is None else header
        self._wait(work, True, seconds)
        received, spec = _of_header(numbers)
        if key is not None and received != key:
            raise ValueError(f"the message for {key} was expected, and that for {received} came")
        if received[0] == "F":
            self._inbox.specs["F", received[1]] = spec
        return self._post(received, spec, began)

    def _file(self, posted: _Posted, seconds: float) -> None:
        key, works, tensors, began = posted
        for work in works:
            self._wait(work, False, seconds)
        number = self._numbers[1]
        self._numbers[1] += 1
        over = () if self._device.type == "cpu" else tuple(works)
        self._inbox.put(key, Arrival(tuple(tensors), self.peer, began, _clock(), number, over))

    def _wait(self, work: Any, header: bool, seconds: float) -> None:
        began = time.monotonic()
        if header or self._device.type == "cpu":
            try:
                work.wait(timedelta(seconds=seconds))
            except RuntimeError as error:
                if time.monotonic() - began >= seconds:
                    raise TimeoutError from error
                raise
            return
        # Here wait() would only have a stream wait.
        while not work.is_completed():
            if time.monotonic() - began > seconds:
                raise TimeoutError
            time.sleep(_POLL_SECONDS)

    # The threads.

    def _start(self, work: Any) -> None:
        def guarded() -> None:
            try:
                if self._device.type == "cuda":
                    torch.cuda.set_device(self._device)
                work()
            except Exception as error:
                self._inbox.fail(self.peer, error)

        threading.Thread(target=guarded, name=f"megalens-stages-{self.peer}", daemon=True).start()

    def _finish_all(self) -> None:
        while (several := self._sending.get()) is not None:
            while several:
                key, posted, works, buffers, nbytes, number = several.pop(0)
                for work, header in works:
                    self._wait(work, header, _LONG_SECONDS)
                del works, buffers, work
                if self.timed:
                    self.done.append((key, posted, _clock(), nbytes, number))
                self._finished += 1
            if self._inbox.draining:
                with self._inbox.lock:
                    self._inbox.changed.notify()

    def _receive_all(self) -> None:
        header = None
        while self._may_post():
            # The next header travels while this message does.
            posted = self._post_unknown(None, _LONG_SECONDS, header)
            header = self._post_header() if self._expected else None
            self._file(posted, _LONG_SECONDS)

    def _may_post(self) -> bool:
        """Wait until one more message may come; False once all is closed."""
        with self._inbox.lock:
            while not (self._expected and self._dynamic and (self._credit > 0 or self.hungry)):
                if self._closed:
                    return False
                self._go.wait()
            self._expected.popleft()
            self._credit -= 1
            return True


def _header(key: Key, spec: Spec) -> Tensor:
    numbers = [_LETTERS.index(key[0]), key[1], key[2], len(spec)]
    for dtype, shape, gradient in spec:
        if dtype not in _DTYPES:
            raise TypeError(f"tensors between stages cannot be {dtype}")
        numbers += [_DTYPES.index(dtype), int(gradient), len(shape), *shape]
    if len(numbers) > _HEADER_NUMBERS:
        raise TypeError(
            f"{len(spec)} tensors with {sum(len(each[1]) for each in spec)} dimensions are too many between "
            "two stages"
        )
    return torch.tensor(numbers + [0] * (_HEADER_NUMBERS - len(numbers)), dtype=torch.int64)


def _of_header(numbers: Tensor) -> tuple[Key, Spec]:
    fields = numbers.tolist()
    key: Key = (_LETTERS[fields[0]], fields[1], fields[2])
    spec, at = [], 4
    for _ in range(fields[3]):
        dtype, gradient, rank = fields[at : at + 3]
        spec.append((_DTYPES[dtype], tuple(fields[at + 3 : at + 3 + rank]), bool(gradient)))
        at += 3 + rank
    return key, tuple(spec)
