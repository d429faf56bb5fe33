"""The error class of what runs in stages."""

from __future__ import annotations

from ....protocol import MegalensError

__all__ = ["StageError"]


class StageError(MegalensError, RuntimeError):
    """Something that runs in stages cannot, or cannot go on: what was expected, what came, what to try.

    Parameters
    ----------
    message : str
        One or two sentences for a person.
    code : str
        Of a step ``waited`` (nothing came within the time limit), ``lost`` (another rank is gone), ``failed`` (the model's own error) or ``shape``; ``refused`` for what was asked for.
    operation : str, optional
        As plans write it: ``5F2``.
    stage : int, optional
        Pipeline stage, counted from 0.
    micro_batch : int, optional
        Micro-batch, counted from 0.
    rank : int, optional
        Global rank that says so.
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
