"""A lab: a model that waits for requests to write text, in a thread of its own, in one process or a job."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed

from ...protocol.requests import GenerationRequest
from ...tracer.errors import describe_error
from .errors import GenerationError
from .hidden import Passes
from .instrument import GenerationInstrument
from .job import GenerationJob, generation_perturb
from .language_model import LanguageModel
from .megatron import JobControl, LostJobError, MegatronLanguageModel
from .writing import Writing

if TYPE_CHECKING:
    from ...tracer import Tracer


class Lab:
    """A live run whose model writes text on request. Made by :func:`megalens.serve`.

    Everything that the run has (``configure``, ``tensors``, the views) it has too; ``with`` closes it at the
    end.
    """

    def __init__(self, tracer: Tracer, instrument: GenerationInstrument, connect: Callable[[], Any]) -> None:
        self.tracer = tracer
        """Traces the model."""
        self._instrument, self._connect = instrument, connect
        self._run: Any = None
        self._closing = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="megalens-lab", daemon=True)
        # Before the tracer's own, which was registered first.
        atexit.register(self.close)
        self._thread.start()

    @property
    def model(self) -> Any:
        return self._instrument.model.module

    @property
    def run(self) -> Any:
        """The run as a viewer has it; connected to on first use."""
        with self._lock:
            if self._run is None:
                self._run = self._connect()
            return self._run

    def generate(self, *request: Any, **more: Any) -> Any:
        """Have the model write text: ``run.generate`` of this run."""
        return self.run.generate(*request, **more)

    def wait(self) -> None:
        """Wait until the lab is closed, by another thread or by a signal's handler."""
        self._thread.join()

    def close(self) -> None:
        """End what is written, and the run. Safe twice."""
        self._closing = True
        atexit.unregister(self.close)
        self._instrument.release(True)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self.tracer.close()
        with self._lock:
            run, self._run = self._run, None
        if run is not None:
            run.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.run, name)

    def __repr__(self) -> str:
        state = "closed" if self._closing else f"run {self.tracer.run_id}"
        return f"<Lab of {type(self.model).__name__}, {state}>"

    def _work(self) -> None:
        passes = self._instrument.new_passes(self.tracer.step)
        while self._instrument.wait():
            # The first pass of a request takes changes too.
            if not self._instrument.run_next(passes):
                self.tracer.take_changes()


class MegatronLab(Lab):
    """A lab in each process of a job. Each makes it and waits for it: it ends when rank 0 closes it.

    While idle, rank 0 sends heartbeats to the others, well within any time limit.
    """

    def __init__(
        self,
        tracer: Tracer,
        instrument: GenerationInstrument,
        connect: Callable[[], Any],
        control: JobControl,
    ) -> None:
        self._writer, self._control = instrument.model, control
        self._jobs: dict[int, GenerationJob] = {}
        self._failure: GenerationError | None = None
        super().__init__(tracer, instrument, connect)

    def wait(self) -> None:
        """Wait until the lab is over.

        Raises
        ------
        LostJobError
            When a process of the job went, or failed where the others could not continue.
        """
        super().wait()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        if self._writer.device.type == "cuda":
            # A thread begins with the first device.
            torch.cuda.set_device(self._writer.device)
        passes = self._instrument.new_passes(self.tracer.step)
        try:
            if self._control.leads:
                self._lead(passes)
            else:
                self._follow(passes)
        except LostJobError as error:
            self._failure = error
            self.tracer.warn(str(error))
        finally:
            self._instrument.release(True)
            if isinstance(self._writer, MegatronLanguageModel):
                self._writer.leave()
            self._control.close()

    # Rank 0.

    def _lead(self, passes: Passes) -> None:
        control, instrument = self._control, self._instrument
        instrument.share = self._share
        while (there := instrument.wait(control.heartbeat_seconds)) is not False:
            if there is None:
                control.send({"do": "beat"})
                control.settle()
            elif not instrument.run_next(passes):
                control.send({"do": "changes"})
                self.tracer.take_changes()
            if control.lost is not None:
                # The generation reports it, too.
                raise control.lost
        control.send({"do": "end"})

    def _share(self, job: GenerationJob) -> None:
        """Have the others write a job, too."""
        control = self._control
        control.job = job
        control.send(
            {
                "do": "write",
                "number": job.number,
                "request": job.request.to_message(),
                "prompts": [list(prompt) for prompt in job.prompts],
                "control": job.control.number if job.control is not None else 0,
                "paired": job.paired,
            }
        )
        control.settle()

    # The others.

    def _follow(self, passes: Passes) -> None:
        control, why = self._control, ""
        while (message := control.receive())["do"] != "end":
            try:
                if message["do"] == "changes":
                    self.tracer.take_changes()
                elif message["do"] == "beat":
                    control.settle()
                elif message["do"] == "write":
                    why = ""
                    self._write(message, passes)
                elif message["do"] == "pass":
                    # Of a generation that failed here.
                    control.settle(GenerationError(why or "It does not write that any more."))
            except LostJobError:
                raise
            except Exception as error:  # The model is the user's. Rank 0 hears of it with the next pass.
                why = why or describe_error(error)

    def _write(self, message: dict[str, Any], passes: Passes) -> None:
        control, failure = self._control, None
        try:
            job = self._job(message)
        except Exception as error:
            failure = error
        control.settle(failure)
        control.job = self._jobs[job.number] = job
        for old in sorted(self._jobs)[:-2]:
            del self._jobs[old]
        job.begin(passes.following.step)
        state = "failed"
        try:
            Writing(job, self._writer, self.tracer, self._send_layers, lambda job: None).run(passes)
            state = "cancelled" if job.cancelled else "finished"
        finally:
            job.end(state)

    def _send_layers(self, stream: str, columns: Mapping[str, Any], step: int) -> None:
        """Send the effects on this stage's layers. Rank 0 sends everything else."""
        place = self.tracer.points.place
        if stream != "effects" or place.pp == 0 or not place.leads or place.dp > 0:
            return
        own = np.flatnonzero(np.asarray(columns["layer"]) >= 0)
        rows = {
            name: [values[at] for at in own] if isinstance(values, list) else np.asarray(values)[own]
            for name, values in columns.items()
        }
        self._instrument.send(stream, rows, step)

    def _job(self, message: dict[str, Any]) -> GenerationJob:
        request = GenerationRequest.from_message(message["request"])
        perturb = request.perturb
        plan = None
        if perturb is not None:
            plan = generation_perturb(perturb, self.tracer.points, self.tracer.folders)
        return GenerationJob(
            message["number"],
            request,
            message["prompts"],
            "",
            control=self._jobs.get(message["control"]),
            perturb=plan,
            paired=message["paired"],
            shared=True,
        )


def joined_control(model: LanguageModel) -> JobControl | None:
    """Join all processes of this job that compute a Megatron-Core model; None where it is complete in one."""
    there = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    if not there or not isinstance(model, MegatronLanguageModel):
        return None
    control = JobControl()
    model.join(control)
    return control
