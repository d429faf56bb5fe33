"""Messages between this rank and one other, both ways, without the training thread waiting for any of them.

Messages of one direction keep the order in which they were sent: NCCL matches them by it, and gloo does within a tag. In a fixed order both ends know it, and
receives are posted ahead. In a dynamic one only the sender does, so each message has a header that says what it is. A header also says the shapes, the first time that a message crosses a boundary.
gloo's works are done only once somebody has waited for them, so each direction has a thread that does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from .inbox import Inbox, Key, Message, Spec

__all__ = ["Link", "Sent", "spec_of"]

_DATA, _HEADER = 1, 2
_HEADER_NUMBERS = 128
_LONG = timedelta(days=1)
"""How long a thread waits for one message: the training thread has the time limit."""
_POLL_SECONDS = 5e-5

_DTYPES = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16),
    *(torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
    *(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)),
)
_LETTERS = "FBS"

Sent = tuple[Key, int, int, int, int]
"""Key, ns when a send was posted and when it was done, bytes, number of the message."""

_clock = time.perf_counter_ns


def spec_of(tensors: Sequence[Tensor]) -> Spec:
    """Return dtype, shape and whether a gradient comes back, of each."""
    return tuple((each.dtype, tuple(each.shape), each.requires_grad) for each in tensors)


class Link:
    """Sends to one rank and receives from it.

    Parameters
    ----------
    inbox : Inbox
        Where messages are filed.
    peer, at : int
        The other rank, globally and in the groups.
    out, into, control : torch.distributed.ProcessGroup
        For sending, for receiving, and for headers, which are on the CPU.
    device : torch.device
        Where tensors are received.
    ahead : int
        Receives that may be posted, and messages that may have arrived, before the training thread has taken those before.
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
        self._changed = inbox.changed
        # Of each message that is to come its key, or None where its header will say it.
        self._expected: deque[Key | None] = deque()
        self._headers = False
        self._credit = ahead
        self.hungry = False
        """Whether the training thread has nothing to do until a message of this link comes: then it may be any number ahead."""
        self._said: dict[tuple[bool, int], Spec] = {}
        self._sending: deque[tuple[Key, int, list[tuple[Any, bool]], list[Tensor], int, int]] = deque()
        self._unsent = 0
        self.done: deque[Sent] = deque(maxlen=100_000)
        """Sends that are over, where somebody asked for them with :attr:`timed`."""
        self.timed = False
        self._numbers = [0, 0]
        self._closed = False
        for work in (self._receive_all, self._finish_all):
            threading.Thread(
                target=self._guarded, args=(work,), name=f"megalens-pipeline-{peer}", daemon=True
            ).start()

    # The training thread.

    def begin(self, expected: Iterable[Key | None], headers: bool) -> None:
        """Say what is to come in this step, in order; None each where headers will say it."""
        with self._changed:
            self._expected.extend(expected)
            self._headers, self._credit = headers, self._ahead
            self._changed.notify_all()

    def send(self, key: Key, tensors: Sequence[Tensor], headers: bool) -> Spec | None:
        """Post a message. Returns what messages of its kind held before where this one differs and no header would say so; then nothing is sent."""
        spec = spec_of(tensors)
        letter, virtual, _ = key
        if letter == "F":
            before = self._said.get((self._inbox.training, virtual))
            if not headers and before is not None and before != spec:
                return before
            # Both ends know it from the first message on.
            headers = headers or before is None
            self._said[self._inbox.training, virtual] = spec
        posted, works, kept = _clock(), [], list[Tensor]()
        if headers:
            header = _header(key, spec)
            works.append((self._control.send([header], self._at, _HEADER), True))
            kept.append(header)
        # What the works still read is kept with them.
        kept += [each.detach().contiguous() for each in tensors]
        works += [(self._out.send([each], self._at, _DATA), False) for each in kept[len(works) :]]
        nbytes = sum(each.numel() * each.element_size() for each in tensors)
        with self._changed:
            self._unsent += 1
            self._sending.append((key, posted, works, kept, nbytes, self._numbers[0]))
            self._numbers[0] += 1
            self._changed.notify_all()
        return None

    def taken(self) -> None:
        """Let one more message come, since one was taken. With :attr:`Inbox.changed` held."""
        self._credit += 1

    @property
    def sent(self) -> bool:
        """Whether everything is sent."""
        return self._unsent == 0

    def close(self) -> None:
        """Have the threads end. Safe twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # The threads.

    def _guarded(self, work: Any) -> None:
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            work()
        except Exception as error:
            self._inbox.fail(self.peer, error)

    def _finish_all(self) -> None:
        while True:
            with self._changed:
                while not self._sending:
                    if self._closed:
                        return
                    self._changed.wait()
                key, posted, works, kept, nbytes, number = self._sending.popleft()
            for work, header in works:
                self._wait(work, header)
            del works, kept, work
            with self._changed:
                self._unsent -= 1
                if self.timed:
                    self.done.append((key, posted, _clock(), nbytes, number))
                if not self._unsent:
                    self._changed.notify_all()

    def _receive_all(self) -> None:
        posted: deque[tuple[Key, list[Any], list[Tensor], int]] = deque()
        while True:
            key = self._next(bool(posted))
            if key is not None:
                posted.append(self._post(*key))
            elif posted:
                self._file(*posted.popleft())
            else:
                return

    def _next(self, busy: bool) -> tuple[Key | None, Spec | None] | None:
        """Return the next message to be posted; None where one that is posted is to be waited for first, or all is closed."""
        with self._changed:
            while True:
                if self._expected and (self._credit > 0 or self.hungry):
                    key = self._expected[0]
                    spec = None if key is None or self._headers else self._inbox.specs.get(key[:2])
                    # Only this rank's own forward pass says what gradients are like.
                    known = spec is not None or key is None or self._headers or key[0] == "F"
                    if known:
                        if spec is None and busy:
                            return None
                        self._expected.popleft()
                        self._credit -= 1
                        return key, spec
                if busy:
                    return None
                if self._closed:
                    return None
                self._changed.wait()

    def _post(self, key: Key | None, spec: Spec | None) -> tuple[Key, list[Any], list[Tensor], int]:
        began = _clock()
        if spec is None:
            numbers = torch.empty(_HEADER_NUMBERS, dtype=torch.int64)
            self._wait(self._control.recv([numbers], self._at, _HEADER), True)
            said, spec = _of_header(numbers)
            if key is not None and said != key:
                raise ValueError(f"the message for {key} was expected, and that for {said} came")
            key = said
            if key[0] == "F":
                self._inbox.know("F", key[1], spec)
        assert key is not None
        tensors = [torch.empty(shape, dtype=dtype, device=self._device) for dtype, shape, _ in spec]
        return key, [self._into.recv([each], self._at, _DATA) for each in tensors], tensors, began

    def _file(self, key: Key, works: list[Any], tensors: list[Tensor], began: int) -> None:
        for work in works:
            self._wait(work, False)
        number = self._numbers[1]
        self._numbers[1] += 1
        over = () if self._device.type == "cpu" else tuple(works)
        self._inbox.put(key, Message(tuple(tensors), self.peer, began, _clock(), number, over))

    def _wait(self, work: Any, header: bool) -> None:
        if header or self._device.type == "cpu":
            work.wait(_LONG)
            return
        # Here wait() would only have a stream wait.
        while not work.is_completed():
            time.sleep(_POLL_SECONDS)


def _header(key: Key, spec: Spec) -> Tensor:
    numbers = [_LETTERS.index(key[0]), key[1], key[2], len(spec)]
    for dtype, shape, gradient in spec:
        if dtype not in _DTYPES:
            raise TypeError(f"tensors between stages cannot be {dtype}")
        numbers += [_DTYPES.index(dtype), int(gradient), len(shape), *shape]
    if len(numbers) > _HEADER_NUMBERS:
        raise TypeError(
            f"{len(spec)} tensors with {sum(len(each[1]) for each in spec)} dimensions are too many between two stages"
        )
    return torch.tensor(numbers + [0] * (_HEADER_NUMBERS - len(numbers)), dtype=torch.int64)


def _of_header(numbers: Tensor) -> tuple[Key, Spec]:
    said = numbers.tolist()
    key: Key = (_LETTERS[said[0]], said[1], said[2])
    spec, at = [], 4
    for _ in range(said[3]):
        dtype, gradient, rank = said[at : at + 3]
        spec.append((_DTYPES[dtype], tuple(said[at + 3 : at + 3 + rank]), bool(gradient)))
        at += 3 + rank
    return key, tuple(spec)
