"""One generation as it is written: what is set up for its time, its passes, and what is sent of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tracer.tensors.plan import TracingPlan
from .attention import ATTENTION, attention_probabilities, with_attention
from .comparing import compared
from .decoding import evaluating
from .gathered_passes import GatheredPasses
from .hidden import HiddenStates
from .job import GenerationJob
from .language_model import LanguageModel, Reading
from .lens import LensReader
from .passes import Passes
from .perturbing import PassClock, perturbed
from .readout import Readout
from .token_rows import PlacedPass, TokenRows

if TYPE_CHECKING:
    from ...tracer import Tracer

__all__ = ["Writing"]

_TOLD_EVERY = 0.25
"""Seconds between two rows that say how far a sweep is."""
_TOLD_TEXT = 1.0
"""The same of a text."""


class Writing:
    """Writes the text of one generation. Whatever is changed for it is afterwards as it was.

    Parameters
    ----------
    job : GenerationJob
        What is written.
    model : LanguageModel
        Who writes.
    tracer : Tracer
        Traces the model.
    send : callable
        Sends rows: takes a stream, columns by name and the step.
    say : callable
        Says how a job stands.
    """

    def __init__(
        self,
        job: GenerationJob,
        model: LanguageModel,
        tracer: Tracer,
        send: Callable[[str, Mapping[str, Any], int], None],
        say: Callable[[GenerationJob], None],
    ) -> None:
        self._job, self._model, self._tracer = job, model, tracer
        self._send, self._say = send, say
        self._points = tracer.points

    def run(self, passes: Passes) -> None:
        """Write, token by token, until it is over or cancelled; under a perturbation compare with the clean control then, and do the sweep."""
        with self._set_up():
            self._write(passes)
            if self._job.control is not None and not self._job.cancelled:
                self._compare(passes)

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        """Have the model, and what is traced of it, as this generation needs it."""
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
                job.say(stack.enter_context(attention_probabilities(self._model.module)))
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
                clock = stack.enter_context(perturbed(self._points, job.perturb, job.say))
            hand_over = stack.enter_context(self._tracer.tensors.holding())
            gathered = GatheredPasses(self._send, rows, self._lens(stack), job.say, hand_over)
            stack.callback(gathered.flush)
            told = time.monotonic()
            for done in job.decoding(model, pass_scope=passes, ends=lambda: job.cancelled, before=before):
                step = passes.here.step
                job.passed(done, step)
                gathered.add(PlacedPass(done, passes.here, passes.following), capture.window)
                if time.monotonic() - told >= _TOLD_TEXT:
                    told = time.monotonic()
                    self._say(job)

    def _lens(self, stack: contextlib.ExitStack) -> LensReader | None:
        """Return what reads the hidden states of each pass, where that was asked for."""
        job, model = self._job, self._model
        if not job.request.lens:
            return None
        readout = Readout(model.module, self._points)
        hidden = stack.enter_context(HiddenStates(self._points))
        return LensReader(readout, hidden, job.number, model.texts, job.sequences, job.request.lens)

    def _compare(self, passes: Passes) -> None:
        job, told, step = self._job, 0.0, passes.here.step
        with self._tracer.tensors.changed(lambda plan: replace(plan, flags={}, perturb=None)):
            for columns in compared(job, self._model, self._points, self._tracer.folders):
                self._send("effects", {**columns, "step": np.full(len(columns["kl"]), step)}, step)
                if job.progress and time.monotonic() - told > _TOLD_EVERY:
                    told = time.monotonic()
                    self._say(job)
