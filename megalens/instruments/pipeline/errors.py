"""The error classes of pipelines and split trainings."""

from __future__ import annotations

from typing import Any

from ...protocol import MegalensError


class StageError(MegalensError, RuntimeError):
    """Something that runs in stages cannot start or continue: what was expected, what came, what to try.

    Parameters
    ----------
    message : str
        One or two sentences for a person.
    code : str
        Of a step ``waited`` (nothing came within the time limit), ``lost`` (another rank is gone), ``failed``
        (the model's own error) or ``shape``; ``refused`` for a request.
    operation : str, optional
        As plans write it: ``5F2``.
    stage, micro_batch : int, optional
        Pipeline stage and micro-batch, counted from 0.
    rank : int, optional
        Global rank that reports it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "refused",
        operation: str | None = None,
        stage: int | None = None,
        micro_batch: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.rank = message, code, rank
        self.operation, self.stage, self.micro_batch = operation, stage, micro_batch


class PipelineError(StageError):
    """A pipeline cannot run, or cannot continue.

    Of a plan :attr:`code` is ``missing``, ``doubled``, ``unknown``, ``misplaced``, ``order``, ``cycle`` or
    ``shape``.
    """


class SplitError(StageError):
    """A training with forward and backward processes cannot run, or cannot continue.

    Parameters
    ----------
    message : str
        One or two sentences for a person.
    code : str
        As of every :class:`StageError`; and ``diverged``, where a forward and a backward process have
        different weights.
    field : str, optional
        The argument, or the model's parameter, that is at fault.
    role : str, optional
        Of the reporting process: ``forward`` or ``backward``.
    **more
        As of every :class:`StageError`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "refused",
        field: str | None = None,
        role: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message, code=code, **more)
        self.field, self.role = field, role
