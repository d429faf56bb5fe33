"""Tracing a training of Megatron-LM by one argument: ``pretrain(…, tensor_metric_observer=…)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from ..adapters.before_reduction import stand_in
from ..tracer import StatisticsLogger, Tracer
from .statistics import log_statistics
from .trace import trace

__all__ = ["MegatronObserver"]


class MegatronObserver:
    """A tensor metric observer: ``pretrain(…, tensor_metric_observer=MegatronObserver(flags=…))``.

    It needs no import of Megatron-LM, which only calls it: before the forward passes of an iteration, and
    before the optimizer's step, on every rank. An iteration is a step from the one to the end of the other.
    The optimizer is known only at the end of the first one that it sees, so that statistics begin with the
    second. It takes the place of ``--tensor-metrics``, unless these are given as ``also``.

    Parameters
    ----------
    statistics : mapping, optional
        Those arguments of :func:`megalens.log_statistics` that are not Megatron-LM's own to know:
        ``{"param": 1, "grad": 1, "residual": 10}``. Gradients are unscaled and before clipping.
    also : callable, optional
        Another observer that is to be called, such as Megatron-LM's own.
    **options
        Those of :func:`megalens.trace`.
    """

    def __init__(
        self,
        *,
        statistics: Mapping[str, Any] | None = None,
        also: Callable[..., None] | None = None,
        **options: Any,
    ) -> None:
        self._statistics, self._also, self._options = statistics, also, options
        self._open = ExitStack()
        self._iteration: int | None = None
        self._closed = False
        self._stop: Callable[[], None] | None = None
        self.tracer: Tracer | None = None
        """The tracer, once the training has begun."""
        self.logger: StatisticsLogger | None = None
        """The statistics logger, where there is one."""

    def observe_forward_backward(
        self, *, model: Any, iteration: int, pg_collection: Any = None
    ) -> AbstractContextManager[Any]:
        """Begin the step of an iteration, counted from 0; an iteration that is run again goes on."""
        if not self._closed and iteration != self._iteration:
            self._open.close()
            self._iteration = iteration
            if self.tracer is None:
                self.tracer = trace(_chunks(model), **{"first_step": iteration + 1, **self._options})
            self._open.enter_context(self.tracer.step())
        theirs = getattr(self._also, "observe_forward_backward", None)
        if theirs is None:
            return nullcontext()
        found: AbstractContextManager[Any] = theirs(
            model=model, iteration=iteration, pg_collection=pg_collection
        )
        return found

    def __call__(self, *, model: Any, optimizer: Any, iteration: int, pg_collection: Any = None) -> None:
        """Wait for the optimizer's step, which ends the step; gradients are measured in it."""
        if self._also is not None:
            self._also(model=model, optimizer=optimizer, iteration=iteration, pg_collection=pg_collection)
        if self.tracer is None or self._closed or self._stop is not None:
            return
        self._stop = stand_in(optimizer, "step", self._stepped)
        if self._statistics is not None:
            self.logger = log_statistics(
                _chunks(model), optimizer, tracer=self.tracer, **dict(self._statistics)
            )

    def _stepped(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        done = step(*args, **kwargs)
        self._open.close()
        return done

    def close(self) -> None:
        """End the run, as the end of the process does by itself. Safe twice."""
        if self._closed:
            return
        self._closed = True
        if self._stop is not None:
            self._stop()
        self._open.close()
        for each in (self.logger, self.tracer):
            if each is not None:
                each.close()


def _chunks(model: Any) -> Any:
    """Return the model itself where it is in one piece."""
    return model[0] if isinstance(model, (list, tuple)) and len(model) == 1 else model
