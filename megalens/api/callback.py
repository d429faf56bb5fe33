"""Tracing a Hugging Face ``Trainer`` by adding one callback."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from numbers import Real
from typing import Any

from ..tracer import StatisticsLogger, Tracer
from .statistics import log_statistics
from .trace import trace

__all__ = ["MegalensCallback"]


class MegalensCallback:
    """A ``TrainerCallback``:
    ``Trainer(..., callbacks=[MegalensCallback(flags={"HiddenStates": Tile(96)})])``.

    It needs no import of transformers: a trainer only calls its ``on_…`` methods. The evaluation that a
    trainer does on its own is phase ``eval``. What the trainer logs becomes scalars, and what it saves is
    marked; both are spans of a timeline. In a job of several processes each needs the callback, as a
    script that ``torchrun`` starts has it.

    Parameters
    ----------
    statistics : mapping, optional
        Those arguments of :func:`megalens.log_statistics` that are not the trainer's own to know:
        ``{"param": 1, "grad": 1, "activation": 100}``. Gradients are measured before the trainer clips them,
        its loss scale is divided out, and the samples that it has consumed are recorded.
    **options
        Those of :func:`megalens.trace`.
    """

    def __init__(self, *, statistics: Mapping[str, Any] | None = None, **options: Any) -> None:
        self._options = options
        self._statistics = statistics
        self._open = ExitStack()
        self.tracer: Tracer | None = None
        """The tracer, once the training has begun."""
        self.logger: StatisticsLogger | None = None
        """The statistics logger, where there is one."""

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        """Begin to trace the model."""
        if self.tracer is not None:
            return
        options = dict(self._options)
        options.setdefault("name", getattr(args, "run_name", None))
        # A trainer that continues from a checkpoint has taken steps already.
        options.setdefault("first_step", int(getattr(state, "global_step", 0) or 0) + 1)
        if getattr(args, "torch_compile", False):
            # The trainer compiles a wrapper around this model.
            options.setdefault("compiled", True)
        if self._statistics is not None:
            own = {
                "loss_scale": getattr(optimizer, "scaler", None),
                "samples": lambda: _consumed(args, state),
            }
            self.logger = log_statistics(model, optimizer, **{**own, **self._statistics}, **options)
            self.tracer = self.logger.tracer
        else:
            # In every process: they agree on what is traced, and each sends what it has of it.
            self.tracer = trace(model, **options)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Open a step."""
        self._open.close()
        if self.tracer is not None:
            self._open.enter_context(self.tracer.step())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the step; what comes before the next one the trainer has decided: to evaluate, to save."""
        self._begin_what_follows(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Do the same for what comes at the end of an epoch."""
        self._begin_what_follows(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the evaluation; the trainer may save now."""
        self._begin_what_follows(control, evaluated=True)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Report the numbers that the trainer logs."""
        if self.tracer is not None and logs:
            names = {
                "learning_rate": "lr",
                "eval_loss": "held_out_loss",
            }
            numbers: dict[str, Any] = {
                names.get(key, key): value
                for key, value in logs.items()
                if isinstance(value, Real) and key.isidentifier() and key not in ("unit", "total_flos")
            }
            self.tracer.log(**numbers)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark the checkpoint that the trainer has saved."""
        self._open.close()
        if self.tracer is not None:
            # As transformers names the folder.
            self.tracer.checkpoint(f"checkpoint-{state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the run."""
        self._open.close()
        if self.logger is not None:
            self.logger.close()
        if self.tracer is not None:
            self.tracer.close()
        self.tracer = self.logger = None

    def __getattr__(self, name: str) -> Any:
        # A trainer calls every event there is, also those that later versions add.
        if name.startswith("on_"):
            return _ignore
        raise AttributeError(name)

    def _begin_what_follows(self, control: Any, evaluated: bool = False) -> None:
        self._open.close()
        if self.tracer is None:
            return
        if not evaluated and getattr(control, "should_evaluate", False):
            self._open.enter_context(self.tracer.phase("eval"))
        elif getattr(control, "should_save", False):
            self._open.enter_context(self.tracer.span("checkpoint", kind="checkpoint"))


def _consumed(args: Any, state: Any) -> int:
    """Return the samples consumed over all processes; -1 where the trainer does not know."""
    names = ("train_batch_size", "gradient_accumulation_steps", "world_size")
    sizes = [size for name in names if isinstance(size := getattr(args, name, None), int)]
    return int(state.global_step) * math.prod(sizes) if len(sizes) == len(names) else -1


def _ignore(*args: Any, **kwargs: Any) -> None: ...
