"""A lab: a model that waits for requests to write text, in a thread of its own."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .instrument import GenerationInstrument

if TYPE_CHECKING:
    from ...tracer import Tracer

__all__ = ["Lab"]


class Lab:
    """A live run whose model writes text when it is asked. Made by :func:`megalens.serve`.

    Everything that the run has (``configure``, ``tensors``, the views) it has too; ``with`` closes it at the end.

    Parameters
    ----------
    tracer : Tracer
        Traces the model; its steps are forward passes.
    instrument : GenerationInstrument
        Attached to it.
    connect : callable
        Attaches to the run, as whoever looks at it.
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
        """The module that writes."""
        return self._instrument.model.module

    @property
    def run(self) -> Any:
        """The run, as whoever looks at it has it; attached to on first use."""
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
