"""What follows from a recording's spans: dependencies, one clock, a verdict with its prices, what-ifs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa

from ...protocol.messages_generated import Layout, Origin
from .clocks import Clocks, clocks
from .dependencies import Dependencies, dependencies
from .evidence import lacking
from .megascan_files import TimelineError
from .megascan_verdict import MegascanVerdict, megascan_of_spans
from .prices import Prices, WhatIf
from .replay import WORK_KINDS, StepChanges, StepReplay
from .spans import Spans, Work, work
from .verdict import Verdict, judge


class Analysis:
    """Spans of all ranks, looked at together. Everything is computed when it is first asked for.

    ``all_ranks`` says whether these are the spans of all ranks; otherwise collectives are those of the ranks
    present. ``world`` is how many ranks the job has, 0 where that is not known.
    """

    def __init__(self, spans: Spans, *, all_ranks: bool = True, world: int = 0) -> None:
        self.spans, self._all_ranks, self._world = spans, all_ranks, world

    @cached_property
    def dependencies(self) -> Dependencies:
        return dependencies(self.spans, all_ranks=self._all_ranks)

    @cached_property
    def clocks(self) -> Clocks:
        return clocks(self.dependencies)

    @cached_property
    def work(self) -> Work:
        return work(self.spans)

    @cached_property
    def _prices(self) -> Prices:
        return Prices(self.spans, self.work, StepReplay(self.dependencies, self.clocks))

    @property
    def summed(self) -> bool:
        """Whether the spans are sums of steps, of which no step can be replayed."""
        return not bool((self.spans.of_kind("step") & (self.spans.count == 1)).any()) or bool(
            (self.spans.count > 1).any()
        )

    @overload
    def verdict(
        self, first: int | None = None, last: int | None = None, method: Literal["megalens"] = "megalens"
    ) -> Verdict: ...
    @overload
    def verdict(
        self, first: int | None = None, last: int | None = None, *, method: Literal["megascan"]
    ) -> MegascanVerdict: ...
    def verdict(
        self, first: int | None = None, last: int | None = None, method: str = "megalens"
    ) -> Verdict | MegascanVerdict:
        """Return who makes the others wait, and by how much the step would be shorter without each.

        Parameters
        ----------
        first, last : int, optional
            Steps to look at; all when absent.
        method : str
            ``megascan``: what MegaScan's heuristics would say, to compare with.

        Raises
        ------
        TimelineError
            For another method, and where MegaScan's has nothing to compare.
        """
        if method not in ("megalens", "megascan"):
            raise TimelineError(f"method must be megalens or megascan, got {method!r:.100}.")
        spans = self.spans
        part = self
        if first is not None or last is not None:
            inside = (spans.step >= (first or 0)) & (spans.step <= (math.inf if last is None else last))
            part = Analysis(spans.take(np.flatnonzero(inside)), world=self._world)
        if method == "megascan":
            return megascan_of_spans(part.dependencies)
        if part.summed:
            verdict = judge(part.spans, part.work)
        else:
            verdict = judge(part.spans, part.work, part.dependencies, part.clocks)
        lacks = lacking(part.spans, part.work, None if part.summed else part.dependencies, self._world)
        verdict = replace(verdict, lacking=lacks.sentences)
        return part._prices.verdict(verdict) if lacks.prices and not part.summed else verdict

    def what_if(
        self,
        work: Mapping[tuple[int, str], float] | None = None,
        links: Mapping[Sequence[int], float] | None = None,
        steps: Sequence[int] | None = None,
    ) -> WhatIf:
        """Return how long steps would be with some durations changed.

        Parameters
        ----------
        work : mapping, optional
            By rank and kind (``compute``, ``data``, ``checkpoint``, ``host``) the factor on its own work:
            ``{(5, "compute"): 0.75}``.
        links : mapping, optional
            By the ranks of a message or collective the factor on its transfers: ``{(2, 4): 0.5}``.
        steps : sequence of int, optional
            Which; some spread over the recording when absent.

        Raises
        ------
        TimelineError
            For ranks, kinds, factors or steps that are not there.
        """
        changes = StepChanges(
            dict(work or {}), {tuple(sorted(ranks)): factor for ranks, factor in (links or {}).items()}
        )
        known = {int(rank) for rank in self.spans.ranks}
        for (rank, kind), factor in changes.work.items():
            if kind not in WORK_KINDS:
                raise TimelineError(f"kind must be one of {', '.join(WORK_KINDS)}, got {kind!r:.100}.")
            self._check(factor, [rank], known)
        for ranks, factor in changes.links.items():
            self._check(factor, ranks, known)
        chosen = self._prices.chosen() if steps is None else list(steps)
        result = self._prices.compare(chosen, changes)
        if result is None:
            raise TimelineError(
                "None of these steps can be replayed: that needs spans of timeline='phases' or finer of "
                "every rank."
            )
        return result

    @staticmethod
    def _check(factor: Any, ranks: Sequence[int], known: set[int]) -> None:
        for rank in ranks:
            if rank not in known:
                raise TimelineError(
                    f"rank must be one of the recording's, 0 to {max(known)}, got {rank!r:.100}."
                )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 <= factor < 1e6:
            raise TimelineError(f"factor must be a number from 0, got {factor!r:.100}.")


def analyse(run: Any) -> Analysis:
    """Look at the spans of a run.

    Parameters
    ----------
    run : run object or pyarrow.Table
        What ``megalens.open`` or ``megalens.connect`` returned, or rows of the stream ``spans``.

    Raises
    ------
    TimelineError
        When there are none.
    """
    table = run if isinstance(run, pa.Table) else run.table("spans")
    if not len(table):
        raise TimelineError(
            "The run has no spans. Record them with megalens.trace(model, timeline='phases') or "
            "run.configure(timeline='phases')."
        )
    world = 0 if isinstance(run, pa.Table) else world_of(run.layout, run.origin)
    return Analysis(Spans.of(table), world=world)


def world_of(layout: Layout | None, origin: Origin | None) -> int:
    """Return of how many ranks a run says that its job is; 0 where it does not."""
    if layout is not None:
        return layout["world_size"]
    return origin.get("ranks", 0) if origin is not None else 0
