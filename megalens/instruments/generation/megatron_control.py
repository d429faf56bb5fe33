"""Messages of a job's processes that compute one model: small objects from rank 0, and everybody's status."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from ...tracer.errors import describe_error
from .errors import GenerationError

if TYPE_CHECKING:
    from .job import GenerationJob

_USUAL_SECONDS = 1800.0
_LONGER_SECONDS = 30.0
_MOST_HEARTBEAT_SECONDS = 20.0
_TEXT_BYTES = 1024
_WELL, _FAILED, _LOST = range(3)
_OF_COMMUNICATION = ("gloo", "nccl", "timed out", "timeout", "connection", "process group", "store")


class LostJobError(GenerationError):
    """The processes of a job cannot continue: one is gone, or they are out of step. Says which, and why."""


class JobControl:
    """A gloo group of all processes. All of them make it at the same point; each uses it in one thread.

    Messages are JSON in a tensor of bytes: nothing that comes is ever run. Each call waits for the others, a
    little longer than the job's own groups do, so that a process that waits for a failed one reports before
    it is given up.

    Attributes
    ----------
    rank, size : int
        Of this process, and how many there are.
    heartbeat_seconds : float
        The longest time between two messages of rank 0.
    job : GenerationJob or None
        What is written.
    lost : LostJobError or None
        Why no message can come any more.
    """

    def __init__(self) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        limit = _limit_seconds() + _LONGER_SECONDS
        self._group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=limit))
        self.heartbeat_seconds = min(limit / 4, _MOST_HEARTBEAT_SECONDS)
        self.job: GenerationJob | None = None
        self.lost: LostJobError | None = None
        self._heard: dict[str, Any] | None = None

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which the others follow."""
        return self.rank == 0

    def send(self, message: dict[str, Any]) -> None:
        """Send the others a message with a ``do``; raises ``LostJobError`` when one of them is gone."""
        data = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
        with self._together():
            distributed.broadcast(torch.tensor([len(data)]), 0, group=self._group)
            distributed.broadcast(data, 0, group=self._group)

    def receive(self) -> dict[str, Any]:
        """Return rank 0's next message; raises ``LostJobError`` when it is gone."""
        if self._heard is not None:
            message, self._heard = self._heard, None
            return message
        length = torch.zeros(1, dtype=torch.int64)
        with self._together():
            distributed.broadcast(length, 0, group=self._group)
            data = torch.zeros(int(length), dtype=torch.uint8)
            distributed.broadcast(data, 0, group=self._group)
        message = json.loads(data.numpy().tobytes())
        return dict(message)

    def expect(self, do: str) -> dict[str, Any]:
        """Return rank 0's next message of a kind.

        Raises ``GenerationError`` for another kind: rank 0 has ended the generation. Then :meth:`receive`
        returns that once more. Raises ``LostJobError`` as :meth:`receive`.
        """
        message = self.receive()
        if message["do"] != do:
            self._heard = message
            raise GenerationError("Rank 0 ended the generation.")
        return message

    def settle(self, error: Exception | None = None) -> None:
        """Exchange status with all processes; ``error`` is what went wrong here.

        Raises ``GenerationError`` in all processes when something went wrong in one, or ``LostJobError`` when
        that was in a collective operation, after which they are out of step, or when one is gone.
        """
        state = _WELL if error is None else _LOST if is_of_communication(error) else _FAILED
        text = b"" if error is None else describe_error(error).encode("utf-8", "replace")[: _TEXT_BYTES - 1]
        own = torch.zeros(_TEXT_BYTES, dtype=torch.uint8)
        own[: 1 + len(text)] = torch.frombuffer(bytearray([state, *text]), dtype=torch.uint8)
        every = [torch.empty_like(own) for _ in range(self.size)]
        with self._together():
            distributed.all_gather(every, own, group=self._group)
        failed = [(rank, each.numpy().tobytes()) for rank, each in enumerate(every) if int(each[0])]
        if not failed:
            return
        texts = [
            f"Rank {rank} failed: {data[1:].rstrip(bytes(1)).decode('utf-8', 'replace')}"
            for rank, data in failed[:4]
        ]
        if any(data[0] == _LOST for _, data in failed):
            raise self._lose(f"{' '.join(texts)} The processes cannot go on together: start the job again.")
        raise GenerationError(" ".join(texts))

    def begin_pass(self) -> None:
        """Begin a forward pass in all processes or none, with one answer to whether the job is cancelled.

        Raises ``GenerationError`` in all when a process is not ready, ``LostJobError`` as :meth:`settle`.
        """
        job = self.job
        if self.leads:
            message: dict[str, Any] = {"do": "pass", "cancelled": job is not None and job.asked_to_end}
            self.send(message)
        else:
            message = self.expect("pass")
        if job is not None:
            job.cancelled = message["cancelled"]
        self.settle()

    def tokens(self, ids: list[int]) -> list[int]:
        """Return rank 0's token ids instead of one's own; raises as :meth:`expect`."""
        if self.leads:
            self.send({"do": "tokens", "ids": ids})
            return ids
        return [int(each) for each in self.expect("tokens")["ids"]]

    def close(self) -> None:
        """Destroy the group. Safe twice."""
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(Exception):  # The job may be over.
                distributed.destroy_process_group(group)

    @contextlib.contextmanager
    def _together(self) -> Any:
        if self.lost is not None:
            raise self.lost
        if self._group is None:
            raise self._lose("The job is over.")
        try:
            yield
        except Exception as error:
            raise self._lose(
                f"A process of the job is gone, or does not answer: {describe_error(error)}"
            ) from error

    def _lose(self, text: str) -> LostJobError:
        self.lost = LostJobError(text)
        return self.lost


def _limit_seconds() -> float:
    """Return the timeout of the job's own groups."""
    backends = getattr(distributed.group.WORLD, "_get_backend", None)
    for kind in ("cpu", "cuda"):
        with contextlib.suppress(Exception):  # Not every job has both, and this is no public interface.
            assert backends is not None
            return float(backends(torch.device(kind)).options._timeout.total_seconds())
    return _USUAL_SECONDS


def is_of_communication(error: Exception) -> bool:
    """Return whether an error is a collective operation's, after which processes may be out of step."""
    if isinstance(error, distributed.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in _OF_COMMUNICATION)
