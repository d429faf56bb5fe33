"""Whether a split is worth it, by the engine's planner: the same code as in the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SplitError

if TYPE_CHECKING:
    import pandas as pd

_FAMILIES = 6

_SECONDS = 120.0


def rank_map(
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    *,
    layout: str = "megalens",
    forward_tp: int | None = None,
    last_forward: bool = True,
    context: int = 1,
    expert: int = 1,
    world: int | None = None,
    hosts: str | Path | None = None,
) -> pd.DataFrame:
    """Return which process stands for which of Megatron's ranks where forward and backward passes run apart.

    Parameters
    ----------
    tp, pp : int
        Tensor-parallel degree of the backward processes, and pipeline stages.
    dp : int
        Replicas; of the layouts ``megafbd`` and ``one_flag`` Megatron's data-parallel size, which is twice as
        much.
    layout : str
        ``megalens``; ``megafbd``, MegaFBD's with both of its flags; or ``one_flag``, what it means by the
        first alone.
    forward_tp : int, optional
        Tensor-parallel degree of the forward processes, which divides ``tp``.
    last_forward : bool
        Whether the last stage has forward processes.
    context, expert : int
        Context- and expert-parallel degree: no layout takes one above 1.
    world : int, optional
        Processes that there are.
    hosts : str or Path, optional
        A host file, or its text: a line for each host, such as ``node1 slots=4 role=backward device=cuda``.

    Returns
    -------
    pandas.DataFrame
        By virtual rank ``virtual``, ``real``, ``role``, ``tensor``, ``pipeline``, ``data``, ``replica``; with
        hosts also ``host``, ``slot``, ``device``. ``attrs`` has ``layout``, ``tensor``, ``forward_tensor``,
        ``stages``, ``replicas``, ``last_forward``, ``world``; of ``megafbd`` also ``coordinator``, the real
        rank of the process without a model, and ``deleted_ranks``, the table that MegaFBD keeps.

    Raises
    ------
    SplitError
        With the field at fault.
    EngineError
        When the engine cannot run.
    """
    import pandas as pd

    answer = asked_map(
        tp,
        pp,
        dp,
        layout=layout,
        forward_tensor=forward_tp,
        last_forward=last_forward,
        context=context,
        expert=expert,
        world=world,
        hosts=hosts,
    )
    processes = answer.pop("processes")
    table = pd.DataFrame(answer.pop("ranks"))
    if hosts is not None:
        for name in ("host", "slot", "device"):
            table[name] = [processes[real]["seat"][name] for real in table["real"]]
    table.attrs = {**answer, "world": len(processes)}
    if layout == "megafbd":
        table.attrs["coordinator"] = next(each["real"] for each in processes if each["role"] == "coordinator")
    return table


def asked_map(
    tp: int, pp: int, dp: int, *, layout: str = "megalens", hosts: str | Path | None = None, **more: Any
) -> dict[str, Any]:
    """Return the answer of the engine's job ``rank_map``, described in ``protocol/README.md``.

    ``more`` are the other members of its request. Raises ``SplitError`` with the field at fault,
    ``EngineError`` when the engine cannot run.
    """
    text = None if hosts is None else _text_of(hosts)
    degrees = {"tensor": tp, "pipeline": pp, "data": dp}
    return ask("rank_map", {"layout": layout, **degrees, "hosts": text, **more})


def _text_of(hosts: str | Path) -> str:
    """Return a host file's text: what has a line end, a blank or ``=`` in it is one already."""
    if isinstance(hosts, str) and any(letter in hosts for letter in "\n ="):
        return hosts
    path = Path(hosts)
    if isinstance(hosts, str) and not path.exists() and "/" not in hosts:
        return hosts
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise SplitError(
            f"hosts must be a host file or its text, got {str(hosts)!r:.200}, which cannot be read: {error}",
            field="hosts",
        ) from error


def ask(job: str, request: Mapping[str, Any], answers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer of one of the engine's jobs; raises as :func:`asked_map`."""
    from ....pictures.engine import EngineError, run_job

    try:
        answer, _ = run_job(job, request, answers or {}, timeout=_SECONDS)
    except EngineError as error:
        if error.field is None:
            raise
        raise SplitError(error.message, field=error.field) from error
    return answer  # type: ignore[no-any-return]


class SplitPlan:
    """Ways to train on the same devices, side by side, and whether the one that splits is worth it.

    Attributes
    ----------
    worth_it : bool
        Whether the split's step is shorter by more than chance.
    percent, low_percent, high_percent : float or None
        By how much the best split's step is longer than that of the best other layout, %, and what 95 % lie
        between by the uncertainty of the times. None where one of the two does not fit in memory.
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
        """The best layout of each family.

        Columns are family, step_ms, devices (of each kind), over_memory_bytes, sent_bytes, refused (why there
        is none), layout (as JSON).
        """
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
            One of :attr:`layouts`, ``own`` for a layout of one's own, or ``other`` for that which the verdict
            compares the split with; without it that with the shortest step of all.
        """
        return dict(self._of(family)["layout"])

    def step_ms(self, family: str | None = None) -> float:
        """Return the step of a layout, ms; as :meth:`layout`."""
        return float(self._of(family)["step_ms"])

    def operations(self, family: str | None = None) -> pd.DataFrame:
        """Return what each process of a replica does in a step, of the layout as in :meth:`layout`.

        Columns are lane, role, stage, kind (``F``, ``R`` recomputed, ``B``, ``O`` optimizer, ``W`` weights to
        a forward process), micro_batch, begin and end (ms).
        """
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
    """Compare ways to train on the same devices: ordinary, with activations recomputed, as a pipeline, with
    forward and backward in different processes, and as MegaFBD splits.

    Parameters
    ----------
    run_or_request : Run or mapping
        A run with ``timeline="phases"``, whose measured times are taken: of a split, of a pipeline or of one
        process. Or a ``SplitRequest`` of ``protocol/split.schema.json``.
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
