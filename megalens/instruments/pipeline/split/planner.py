"""Whether a split is worth it, by the engine's planner: the same code as in the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .ask import ask
from .errors import SplitError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SplitPlan", "plan"]

_FAMILIES = 6


class SplitPlan:
    """Ways to train on the same devices, side by side, and whether the one that splits is worth it.

    Attributes
    ----------
    worth_it : bool
        Whether the split's step is shorter by more than chance.
    percent, low_percent, high_percent : float or None
        By how much the best split's step is longer than that of the best other layout, %, and what 95 % lie between by the uncertainty of the times. None where one of the two does not fit in memory.
    regret_percent : float
        What following the verdict costs on average, as the times may be otherwise, % of a step.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self._answer = answer
        # One's own comes first, and one of each family after it.
        self._has_own = len(answer["layouts"]) > _FAMILIES
        verdict = answer["verdict"]
        self.worth_it: bool = verdict["is_worth_it"]
        self.percent: float | None = verdict["percent"]
        self.low_percent: float | None = verdict["low_percent"]
        self.high_percent: float | None = verdict["high_percent"]
        self.regret_percent: float = verdict["regret_percent"]

    @property
    def layouts(self) -> pd.DataFrame:
        """The best layout of each family: family, step_ms, devices (of each kind), over_memory_bytes, sent_bytes, refused (why there is none), layout (as JSON)."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "family": each["family"],
                    "step_ms": each.get("step_ms"),
                    "devices": each.get("devices"),
                    "over_memory_bytes": each.get("over_memory_bytes"),
                    "sent_bytes": each.get("sent_bytes"),
                    "refused": each.get("refused", {}).get("message", ""),
                    "layout": each.get("layout"),
                }
                for each in self._answer["layouts"]
            ]
        )

    def layout(self, family: str | None = None) -> dict[str, Any]:
        """Return a family's layout as a ``SplitLayout`` of ``protocol/split.schema.json``.

        Parameters
        ----------
        family : str, optional
            One of :attr:`layouts`, ``own`` for a layout of one's own, or ``other`` for that which the verdict compares the split with; without it that with the shortest step of all.
        """
        return dict(self._of(family)["layout"])

    def step_ms(self, family: str | None = None) -> float:
        """Return the step of a layout, ms; as :meth:`layout`."""
        return float(self._of(family)["step_ms"])

    def operations(self, family: str | None = None) -> pd.DataFrame:
        """Return what each process of a replica does in a step: lane, role, stage, kind (``F``, ``R`` recomputed, ``B``, ``O`` optimizer, ``W`` weights to a forward process), micro_batch, begin and end (ms); as :meth:`layout`."""
        import pandas as pd

        found = self._of(family)
        frame = pd.DataFrame(found["operations"])
        for name in ("role", "stage"):
            frame.insert(1, name, [found["lanes"][lane][name] for lane in frame["lane"]])
        return frame

    def _of(self, family: str | None) -> Mapping[str, Any]:
        layouts = self._answer["layouts"]
        if family in (None, "other"):
            at = self._answer["best"] if family is None else self._answer["verdict"]["other"]
            if at is None:
                raise SplitError(
                    "No such layout fits in the memory of these devices; see layouts.", code="fit"
                )
            return layouts[at]  # type: ignore[no-any-return]
        if family == "own" and self._has_own:
            return layouts[0]  # type: ignore[no-any-return]
        for each in layouts[self._has_own :]:
            if each["family"] == family:
                if "refused" in each:
                    raise SplitError(each["refused"]["message"], code=each["refused"]["code"])
                return each  # type: ignore[no-any-return]
        families = ", ".join(each["family"] for each in layouts)
        raise SplitError(f"family must be one of {families}, got {family!r:.80}.")

    def __repr__(self) -> str:
        by = "" if self.percent is None else f", {self.percent:+.3g} % a step"
        return f"<SplitPlan: {'split' if self.worth_it else 'do not split'}{by}>"


def plan(run_or_request: Any, *, steps: tuple[int, int] | None = None, **wish: Any) -> SplitPlan:
    """Compare ways to train on the same devices: ordinary, with activations recomputed, as a pipeline, with forward and backward in different processes, and as MegaFBD splits.

    Parameters
    ----------
    run_or_request : Run or mapping
        A run with ``timeline="phases"``, whose measured times are taken: of a split, of a pipeline or of one process. Or a ``SplitRequest`` of ``protocol/split.schema.json``.
    steps : tuple of int, optional
        First and last step of the run to measure by; the newest 10.
    **wish
        Members of ``SplitRequest`` that are to be others: ``devices=[…]``, ``bandwidth=1e6``.

    Raises
    ------
    SplitError
        For a request that is wrong, with its field.
    EngineError
        When the engine cannot run.
    """
    request: dict[str, Any] = dict(wish)
    answers: dict[str, Any] = {}
    if isinstance(run_or_request, Mapping):
        request = {**run_or_request, **wish}
    else:
        from ....runs.answers import answers_of

        answers = answers_of(
            run_or_request, SplitError, "a request such as {'devices': […], 'micro_batches': 8}"
        )
        request["run"] = next(iter(answers))
        if steps is not None:
            request["first"], request["last"] = steps
    return SplitPlan(ask("split", request, answers))
