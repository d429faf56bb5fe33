"""What follows from a recording's spans: dependencies, one clock, a verdict with its prices, what-ifs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa

from ...protocol import is_whole
from .clocks import Clocks, clocks
from .dependencies import Dependencies, dependencies
from .evidence import connected, lacking
from .megascan_files import TimelineError
from .megascan_verdict import MegascanVerdict, megascan_of_spans
from .replay import WORK_KINDS, StepChanges, StepReplay
from .spans import Spans, Work, work
from .verdict import Culprit, Verdict, judge

_REPLAYED, _LARGE_REPLAYED = 9, 5
"""Steps of a price's median, and fewer where each has more spans than ``_LARGE``."""
_LARGE = 30_000
_LEAST_PRICE = 0.01
"""Share of a step; what costs less is hidden."""
_NORMAL = 1.96
_MAD = 1.4826


@dataclass(frozen=True)
class WhatIf:
    """How long steps are, and would be; medians in ns over the replayed steps.

    Attributes
    ----------
    saved_ns, saved_low, saved_high : float
        How much shorter the step would be, with a 95 % interval over steps.
    """

    before_ns: float
    after_ns: float
    saved_ns: float
    saved_low: float
    saved_high: float

    def __str__(self) -> str:
        """Return it as a sentence: ``812 → 655 ms (-19 % ± 1)``."""
        share, error = (
            -self.saved_ns / self.before_ns,
            (self.saved_high - self.saved_low) / 2 / self.before_ns,
        )
        return f"{self.before_ns / 1e6:.4g} → {self.after_ns / 1e6:.4g} ms ({share:+.1%} ± {error:.1%})"


class Analysis:
    """Spans of all ranks, looked at together. Everything is computed when it is first asked for.

    ``all_ranks`` says whether these are the spans of all ranks; otherwise collectives are those of the ranks
    present.
    """

    def __init__(self, spans: Spans, *, all_ranks: bool = True) -> None:
        self.spans, self._all_ranks = spans, all_ranks

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
    def _replay(self) -> StepReplay:
        return StepReplay(self.dependencies, self.clocks)

    @cached_property
    def connected(self) -> bool:
        """Whether what several ranks took part in connects all of them; one rank alone waits for nobody."""
        return len(self.spans.ranks) > 1 and (self.summed or connected(self.spans, self.dependencies))

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
            part = Analysis(spans.take(np.flatnonzero(inside)))
        if method == "megascan":
            return megascan_of_spans(part.dependencies)
        if part.summed:
            verdict = judge(part.spans, part.work)
        else:
            verdict = judge(part.spans, part.work, part.dependencies, part.clocks)
        lacks = lacking(part.spans, part.work, None if part.summed else part.dependencies)
        if not part.connected:
            # What a rank costs the others is known where they are seen to wait for each other.
            return replace(verdict, lacking=lacks)
        priced = [part._priced(each) for each in verdict.culprits]
        priced.sort(key=lambda each: -each.price_ns if each.price_ns == each.price_ns else -each.slower)
        matters = [part._matters(each, verdict) for each in priced]
        culprits = tuple(each for each, does in zip(priced, matters, strict=True) if does)
        # Nobody waits for these, so that they have no price.
        hidden = tuple(
            replace(each, price_ns=math.nan) for each, does in zip(priced, matters, strict=True) if not does
        )
        return replace(verdict, culprits=culprits, hidden=hidden, lacking=lacks)

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
        chosen = self._chosen() if steps is None else list(steps)
        result = self._compare(chosen, changes)
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

    def _chosen(self, first: int = 0, last: int | None = None) -> list[int]:
        steps = self.spans.steps
        inside = steps[(steps >= first) & (steps <= (steps[-1] if last is None else last))]
        if not len(inside):
            return []
        count = _LARGE_REPLAYED if len(self.spans) > _LARGE * len(steps) else _REPLAYED
        found: list[int] = np.unique(inside[np.linspace(0, len(inside) - 1, count).astype(int)]).tolist()
        return found

    def _matters(self, culprit: Culprit, verdict: Verdict) -> bool:
        """Return whether anybody waits for a culprit, alone or once the others are gone, or nobody knows."""
        pair = culprit.kind == "link" and len(culprit.ranks) == 2
        if self.summed or pair or culprit.kind in ("step", "stage"):
            return True
        least = _LEAST_PRICE * verdict.step_ns
        if culprit.price_ns != culprit.price_ns or (culprit.price_low > 0 and culprit.price_ns >= least):
            return True
        others = [each for each in verdict.culprits if each.kind != "step" and not _same(each, culprit)]
        if not others:
            return False
        work: dict[tuple[int, str], float] = {}
        links: dict[tuple[int, ...], float] = {}
        for each in others:
            changes = self._without(each)
            work |= changes.work
            links |= changes.links
        own = self._without(culprit)
        alone = StepChanges(work, links)
        without = StepChanges({**work, **own.work}, {**links, **own.links})
        result = self._compare(self._chosen(culprit.first, culprit.last), without, alone)
        return result is None or (result.saved_low > 0 and result.saved_ns >= least)

    def _compare(
        self, steps: Sequence[int], changes: StepChanges, before: StepChanges | None = None
    ) -> WhatIf | None:
        both = np.array(
            [
                (self._replay.duration(step, before), self._replay.duration(step, changes))
                for step in steps
                if is_whole(step)
            ]
        ).reshape(-1, 2)
        both = both[np.isfinite(both).all(axis=1)]
        if not len(both):
            return None
        saved = both[:, 0] - both[:, 1]
        middle = float(np.median(saved))
        error = _NORMAL * _MAD * float(np.median(np.abs(saved - middle))) / math.sqrt(len(saved))
        first, second = np.median(both, axis=0)
        return WhatIf(float(first), float(second), middle, middle - error, middle + error)

    def _priced(self, culprit: Culprit) -> Culprit:
        done = self.work
        inside = (done.steps >= culprit.first) & (done.steps <= culprit.last)
        if culprit.kind == "step":
            price = float(np.nanmax(done.step[:, inside])) - float(np.nanmedian(np.nanmax(done.step, axis=0)))
            return replace(culprit, price_ns=price, price_low=price, price_high=price)
        if self.summed:
            return culprit
        result = self._compare(self._chosen(culprit.first, culprit.last), self._without(culprit))
        if result is None:
            return culprit
        low, high = (max(0.0, each) for each in (result.saved_low, result.saved_high))
        return replace(culprit, price_ns=max(0.0, result.saved_ns), price_low=low, price_high=high)

    def _without(self, culprit: Culprit) -> StepChanges:
        if culprit.kind == "link":
            return StepChanges({}, {culprit.ranks: 1 / (1 + culprit.slower)})
        if culprit.kind in ("device", "stage"):
            return StepChanges({(rank, "compute"): 1 / (1 + culprit.slower) for rank in culprit.ranks}, {})
        done = self.work
        inside = (done.steps >= culprit.first) & (done.steps <= culprit.last)
        changes = {}
        for rank in culprit.ranks:
            at = int(np.searchsorted(done.ranks, rank))
            now = float(np.nanmedian(getattr(done, culprit.kind)[at, inside]))
            extra = culprit.slower * float(np.nanmedian(done.compute[at]))
            changes[rank, culprit.kind] = max(0.0, 1 - extra / now) if now > 0 else 1.0
        return StepChanges(changes, {})


def _same(one: Culprit, other: Culprit) -> bool:
    return (one.kind, one.ranks, one.first) == (other.kind, other.ranks, other.first)


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
    return Analysis(Spans.of(table))
