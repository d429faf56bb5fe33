"""The instrument that has a model write text when a viewer asks, and sends what it writes.

::

    producer thread                               thread of the lab, or of the training between two steps
    asked(generate) ─▶ checked, queued ─ (queue) ─▶ run_next ─▶ passes ─▶ rows of tokens
    asked(cancel) ───▶ marked ─────────────────────▶ ends after the current pass
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from ...protocol import MegalensError, ProtocolError
from ...protocol.messages_generated import Announce, Cancel, Generate, Generating
from ...protocol.requests import MOST_SEQUENCES
from ...tracer.errors import describe_error
from ...tracer.instrument import Instrument
from .hidden import Passes, no_attention
from .job import MOST_TOKENS, GenerationJob, checked_jobs
from .language_model import LanguageModel
from .lens import no_lens
from .writing import Writing

if TYPE_CHECKING:
    from ...tracer import Tracer
    from ...tracer.instrument import Host

_MOST_WAITING = 64


class GenerationInstrument(Instrument):
    """Takes requests for text, one after another.

    ``own_steps``: each forward pass is a step, as in a lab, and somebody calls :meth:`run_next`. Otherwise
    requests run between two steps of a training.
    """

    name = "generation"
    title = "Generation"

    def __init__(self, model: LanguageModel, *, own_steps: bool = False) -> None:
        self.model = model
        self._own_steps = own_steps
        self._tracer: Tracer | None = None
        self._host: Host | None = None
        self._numbers = itertools.count(1)
        self._newest = 0
        self._changed = threading.Condition()
        self._waiting: deque[GenerationJob] = deque()
        self._running: GenerationJob | None = None
        self._released = self._change_waits = False
        self.share: Callable[[GenerationJob], None] | None = None
        """Called with each job before it is written, where several processes write it together."""

    def bind(self, tracer: Tracer) -> None:
        """Take the tracer, whose settings a generation changes while it runs."""
        self._tracer = tracer

    def attach(self, host: Host) -> None:
        self._host = host

    def describe(self, announce: Announce) -> None:
        """Describe the possible requests."""
        model = self.model
        most = MOST_TOKENS if model.context is None or model.slides else model.context - 1
        announce["generation"] = {"prompts": MOST_SEQUENCES, "tokens": most, "context": model.context}
        if self._tracer is not None:
            if reason := no_attention(self._tracer.points):
                announce["generation"]["no_attention"] = reason[:500]
            if reason := no_lens(model.module, self._tracer.points):
                announce["generation"]["no_lens"] = reason[:500]

    # Requests, in the producer thread.

    def asked(self, message: Generate | Cancel) -> Generating:
        answer: Generating = {"type": "generating", "id": message["id"], "generation": 0}
        if message["type"] == "generate":
            who = message.get("by", {"name": ""})["name"]
            answer["generation"], control = self.request(message["request"], who)
            if control:
                answer["control"] = control
        else:
            self.cancel(message["generation"])
            answer["generation"] = message["generation"]
        return answer

    def request(self, request: Mapping[str, Any], who: str = "") -> tuple[int, int]:
        """Queue a request. Any thread.

        Returns the numbers of the generation and of its clean control (0: none). Raises ``ProtocolError``
        with the field at fault; then nothing is queued.
        """
        tracer = self._tracer
        if tracer is None or self._released:
            raise ProtocolError("refused", "Nothing is written here yet, or any more. Ask again later.")
        jobs = checked_jobs(request, self.model, tracer, who)
        with self._changed:
            if len(self._waiting) + len(jobs) > _MOST_WAITING:
                raise ProtocolError(
                    "refused",
                    f"{len(self._waiting)} generations wait already. Ask again when some have ended, or "
                    "cancel one.",
                    expected=f"at most {_MOST_WAITING}",
                    got=str(len(self._waiting) + len(jobs)),
                )
            for job in jobs:
                self._newest = job.number = next(self._numbers)
                self._waiting.append(job)
                self._report(job, place=len(self._waiting))
            self._changed.notify_all()
        return jobs[-1].number, jobs[0].number if len(jobs) > 1 else 0

    def cancel(self, number: int) -> None:
        """Cancel a queued generation, or a running one after the current pass; ended ones stay. Any thread.

        Raises ``ProtocolError`` for an unknown number.
        """
        with self._changed:
            if not 1 <= number <= self._newest:
                raise ProtocolError(
                    "bad-parameter",
                    f"There is no generation {number}; the newest is {self._newest}.",
                    field="generation",
                    expected=f"1 to {self._newest}",
                    got=str(number),
                )
            if self._running is not None and self._running.number == number:
                self._running.cancel()
            for job in [each for each in self._waiting if each.number == number]:
                self._waiting.remove(job)
                job.end("cancelled")
                self._report(job)
                self._report_positions()

    # Running, in the thread that has the model.

    def wait(self, seconds: float | None = None) -> bool | None:
        """Wait for a request or a change of tracing: True; False at the end, None on timeout."""
        with self._changed:
            waited = self._changed.wait_for(
                lambda: self._waiting or self._change_waits or self._released, seconds
            )
            self._change_waits = False
            return not self._released if waited else None

    def change_waits(self) -> None:
        """Wake up the waiting thread."""
        with self._changed:
            self._change_waits = True
            self._changed.notify_all()

    def new_passes(self, scope: Callable[[], AbstractContextManager[object]] | None = None) -> Passes:
        """Return the maker of pass contexts; ``scope`` makes that of a step of its own."""
        return Passes(self._step, scope)

    def run_next(self, passes: Passes) -> bool:
        """Run the oldest request, if any; an ``Exception`` is reported in the generation, not raised."""
        with self._changed:
            if not self._waiting:
                return False
            job = self._running = self._waiting.popleft()
            self._report_positions()
        try:
            self._run(job, passes)
        finally:
            with self._changed:
                self._running = None
        return True

    def between_steps(self) -> None:
        """Run the queued requests, before a training takes its next step."""
        waiting = len(self._waiting)
        if self._own_steps or not waiting or self._tracer is None:
            return
        with self._tracer.phase("generate"):
            passes = self.new_passes()
            for _ in range(waiting):
                self.run_next(passes)

    def release(self, closing: bool) -> None:
        """Cancel everything. Safe twice."""
        with self._changed:
            self._released = True
            if self._running is not None:
                self._running.cancel()
            while self._waiting:
                job = self._waiting.popleft()
                job.end("cancelled", "The run has ended.")
                self._report(job)
            self._changed.notify_all()

    def _run(self, job: GenerationJob, passes: Passes) -> None:
        state, message = "failed", "It was interrupted."
        try:
            if job.control is not None and job.control.state != "finished":
                state, message = (
                    job.control.state,
                    f"Its clean control, {job.control.number}, did not finish.",
                )
                return
            job.shared = self.share is not None
            if self.share is not None:
                self.share(job)
            job.begin(passes.following.step)
            self._report(job)
            assert self._tracer is not None
            Writing(job, self.model, self._tracer, self.send, self._report).run(passes)
            state, message = "cancelled" if job.cancelled else "finished", ""
        except torch.OutOfMemoryError as error:
            message = (
                f"The device has not enough memory for this: {str(error)[:200]} Ask for fewer prompts, "
                "samples or tokens."
            )
        except MegalensError as error:
            message = str(error)
        except Exception as error:  # The model is the user's, and the next request may go well.
            message = f"The model failed: {describe_error(error)}"
        finally:
            job.end(state, message)
            if self._host is not None:
                # Whoever waits for the end asks at once for all that was traced.
                self._host.send_ready()
            self._report(job)
            if state == "failed" and torch.cuda.is_available():
                torch.cuda.empty_cache()

    # Rows.

    def _step(self) -> int:
        return 0 if self._host is None else self._host.step

    def _report(self, job: GenerationJob, place: int = 0) -> None:
        step = self._step()
        self.send("generations", job.row(step, place), step)

    def _report_positions(self) -> None:
        for queue_position, job in enumerate(self._waiting, 1):
            self._report(job, queue_position)

    def send(self, stream: str, columns: Mapping[str, Any], step: int) -> None:
        if self._host is not None:
            self._host.send(stream, columns, step)
