"""Where the forward passes of generations are in the run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from .token_rows import PassPlace

__all__ = ["Passes"]


class Passes:
    """Gives the context of each forward pass, and counts them: every pass of a generation, and what is computed beside, runs in one.

    Parameters
    ----------
    step : callable
        Returns the step that began last.
    scope : callable, optional
        Gives a context which is a step of its own. When absent all passes belong to the step that began last, and are numbered.
    """

    def __init__(
        self, step: Callable[[], int], scope: Callable[[], AbstractContextManager[object]] | None = None
    ) -> None:
        self._step, self._scope = step, scope
        self._begun = 0
        self.here = PassPlace(-1, -1)
        """Where the tensors of the newest pass are."""

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Run one pass."""
        with contextlib.nullcontext() if self._scope is None else self._scope():
            self.here = PassPlace(self._step(), 0 if self._scope is not None else self._begun)
            self._begun += 1
            yield

    @property
    def following(self) -> PassPlace:
        """Where those of the next pass will be."""
        step = self._step()
        return PassPlace(step, self._begun) if self._scope is None else PassPlace(step + 1, 0)
