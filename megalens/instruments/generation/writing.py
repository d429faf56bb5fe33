"""Writing one generation: its setup, its passes, and what is sent of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...tracer.tensors.plan import TracingPlan
from ...tracer.tensors.probes import Window
from .effects import compared
from .errors import GenerationError
from .hidden import ATTENTION, HiddenStates, Passes, attention_probabilities, with_attention
from .job import GenerationJob, PassClock, perturbed
from .language_model import LanguageModel, Reading, evaluating
from .lens import LensReader, Readout
from .token_rows import LocatedPass, TokenRows

if TYPE_CHECKING:
    from ...tracer import Tracer

_REPORT_SECONDS = 0.25
"""Seconds between two progress rows of a sweep."""

_SECONDS = 0.05
"""Seconds between two sends; the eye does not notice it."""
_APART = 0.03
"""Passes further apart are sent one by one: sending costs some 6 ms, and nobody waits for it."""
_MOST_BYTES = 16 << 20


class GatheredPasses:
    """Gathers passes, makes their rows together, and sends them about 20 times a second.

    ``send`` takes a stream, columns by name and the newest step; ``tensors`` flushes the passes' traced
    tensors.
    """

    def __init__(
        self,
        send: Callable[[str, Mapping[str, Any], int], None],
        rows: TokenRows,
        lens: LensReader | None,
        report: Callable[[str], None],
        tensors: Callable[[], None],
    ) -> None:
        self._send, self._rows, self._lens, self._report, self._tensors = send, rows, lens, report, tensors
        self._passes: list[LocatedPass] = []
        self._states: list[Sequence[Tensor]] = []
        self._nbytes = 0
        self._sent = self._passed = 0.0

    def add(self, done: LocatedPass, window: Window | None) -> None:
        """Take a finished pass, and send what is due: at once after the prompts were read."""
        stored = done.done
        now = time.monotonic()
        due = stored.number == 0 or now - self._sent >= _SECONDS or now - self._passed >= _APART
        if not due:
            # The next pass may write over what this one gave.
            stored = replace(stored, logits=stored.logits[:, -1:].clone())
            self._nbytes += stored.logits.nbytes
        self._passes.append(done._replace(done=stored))
        if self._lens is not None:
            states: Sequence[Tensor] = self._lens.states(window)
            if not due:
                copied = torch.stack(list(states))
                states = list(copied)
                self._nbytes += copied.nbytes
            self._states.append(states)
        if due or self._nbytes > _MOST_BYTES:
            self.flush()
        self._passed = time.monotonic()

    def flush(self) -> None:
        """Send what is gathered."""
        passes, states, self._passes, self._states, self._nbytes = self._passes, self._states, [], [], 0
        # What is sent wakes the thread that sends, which then takes the interpreter: so all is made before.
        made = [*self._made(passes, states)] if passes else []
        self._tensors()
        for stream, columns in made:
            self._send(stream, columns, passes[-1].here.step)
        self._sent = time.monotonic()

    def _made(
        self, passes: Sequence[LocatedPass], states: Sequence[Sequence[Tensor]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield streams with their columns by name."""
        yield from (("tokens", each) for each in _together(self._rows.of(passes)))
        if self._lens is not None:
            try:
                yield from (("lens", each) for each in _together(self._lens.rows(passes, states)))
            except GenerationError as error:
                # The text continues without.
                self._lens = None
                self._report(str(error))


def _together(several: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    found = list(several)
    if len(found) > 1:
        yield {name: _joined([columns[name] for columns in found]) for name in found[0]}
    else:
        yield from found


def _joined(columns: list[Any]) -> Any:
    if isinstance(columns[0], pa.Array):
        return pa.concat_arrays(columns)
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return [value for column in columns for value in column]


_REPORT_TEXT_SECONDS = 1.0
"""Seconds between two progress rows of a text."""


class Writing:
    """Writes the text of one generation, and restores afterwards whatever it changed.

    ``send`` takes a stream, columns by name and the step; ``report`` publishes a job's state.
    """

    def __init__(
        self,
        job: GenerationJob,
        model: LanguageModel,
        tracer: Tracer,
        send: Callable[[str, Mapping[str, Any], int], None],
        report: Callable[[GenerationJob], None],
    ) -> None:
        self._job, self._model, self._tracer = job, model, tracer
        self._send, self._report = send, report
        self._points = tracer.points

    def run(self, passes: Passes) -> None:
        """Write until the end or a cancellation; under a perturbation compare with the control, and sweep."""
        with self._set_up():
            self._write(passes)
            if self._job.control is not None and not self._job.cancelled:
                self._compare(passes)

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        """Prepare the model and the tracing for this generation."""
        job, tensors = self._job, self._tracer.tensors

        def change(plan: TracingPlan) -> TracingPlan:
            if job.paired:
                # The control is clean whatever is armed, and its twin has its own perturbation only.
                plan = replace(plan, perturb=None)
            return with_attention(plan, self._points, self._tracer.folders) if job.request.attention else plan

        with contextlib.ExitStack() as stack:
            stack.enter_context(evaluating(self._model.module))
            if job.paired or job.request.attention:
                stack.enter_context(tensors.changed(change))
            attention = tensors.capture.plan.flags.get(ATTENTION)
            if attention is not None and attention.layers and "generate" in attention.phases:
                job.add_message(
                    stack.enter_context(attention_probabilities(self._model.module, self._points))
                )
            stack.callback(setattr, tensors.capture, "window", None)
            yield

    def _write(self, passes: Passes) -> None:
        job, model, capture = self._job, self._model, self._tracer.tensors.capture
        rows = TokenRows(job.number, model.texts, job.prompts, job.request.samples, job.request.candidates)

        def before(reading: Reading) -> None:
            capture.window = reading.window
            clock.count()

        with contextlib.ExitStack() as stack:
            clock = PassClock()
            if job.perturb is not None:
                clock = stack.enter_context(perturbed(self._points, job.perturb, job.add_message))
            hand_over = stack.enter_context(self._tracer.tensors.holding())
            gathered = GatheredPasses(self._send, rows, self._lens(stack), job.add_message, hand_over)
            stack.callback(gathered.flush)
            reported_at = time.monotonic()
            for done in job.decoding(model, pass_scope=passes, ends=lambda: job.cancelled, before=before):
                step = passes.here.step
                job.passed(done, step)
                gathered.add(LocatedPass(done, passes.here, passes.following), capture.window)
                if time.monotonic() - reported_at >= _REPORT_TEXT_SECONDS:
                    reported_at = time.monotonic()
                    self._report(job)

    def _lens(self, stack: contextlib.ExitStack) -> LensReader | None:
        """Return the reader of each pass's hidden states, if it was asked for."""
        job, model = self._job, self._model
        if not job.request.lens:
            return None
        readout = Readout(model.module, self._points)
        hidden = stack.enter_context(HiddenStates(self._points))
        return LensReader(readout, hidden, job.number, model.texts, job.sequences, job.request.lens)

    def _compare(self, passes: Passes) -> None:
        job, reported_at, step = self._job, 0.0, passes.here.step
        with self._tracer.tensors.changed(lambda plan: replace(plan, flags={}, perturb=None)):
            for columns in compared(job, self._model, self._points, self._tracer.folders):
                self._send("effects", {**columns, "step": np.full(len(columns["kl"]), step)}, step)
                if job.progress and time.monotonic() - reported_at > _REPORT_SECONDS:
                    reported_at = time.monotonic()
                    self._report(job)
