"""Plans of the engine's planner, in Python: the same code as in the page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import PipelineError
from .orders import NAMES
from .plan_type import Placement, Plan

if TYPE_CHECKING:
    import pandas as pd

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SECONDS = 120.0


class PipelinePlan:
    """A plan and the simulation of one step of it.

    Attributes
    ----------
    step_ms : float
        Length of a step, ms; its mean where durations vary.
    period_ms : float
        The longest that a stage takes from its first operation until its optimizer is done: how often a step
        begins where no stage waits for the others at a step's end.
    bubble : list of float
        By stage, the share of the step in which it is idle. Of a schedule such as ZB-H2 that is mostly how
        far its stages begin and end one after the other, which ``period_ms`` leaves out.
    peak_bytes : list of float
        By stage, the most weights and activations.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self._answer = answer
        self.plan = Plan.of(answer["plan"])
        self.step_ms = float(answer["step_ms"])
        self.period_ms = float(answer["period_ms"])
        self.bubble: list[float] = list(answer["bubble"])
        self.peak_bytes: list[float] = list(answer["peak_bytes"])

    @property
    def schedule(self) -> str:
        return self.plan.schedule

    @property
    def operations(self) -> pd.DataFrame:
        """Each operation of each stage in order.

        Columns are stage, virtual_stage, chunk, kind (``F``, ``B``, ``I``, ``W``), micro_batch, begin and end
        (ms from the step's beginning).
        """
        import pandas as pd

        return pd.DataFrame(self._answer["operations"])

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON, as a schedule and the view Pipeline take it."""
        return self.plan.to_json()

    def save(self, path: str | Path) -> Path:
        """Write the plan to a JSON file, which ``DynamicSchedule(order=path)`` reads."""
        path = Path(path)
        path.write_text(json.dumps(self.to_json()), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        layout = self.plan.layout
        return (
            f"<PipelinePlan {self.schedule}: {layout.stages} stages, {layout.chunks} chunks, "
            f"{layout.micro_batches} micro-batches, {self.step_ms:.4g} ms, steady {self.period_ms:.4g} ms>"
        )


def plan(
    run_or_times: Any,
    schedule: str = "search",
    *,
    stages: int | None = None,
    micro_batches: int | None = None,
    chunks: int | None = None,
    memory: str | float | None = None,
    seed: int = 1,
    steps: tuple[int, int] | None = None,
    **times: Any,
) -> PipelinePlan:
    """Plan a pipeline's step.

    Parameters
    ----------
    run_or_times : Run or mapping
        A run with ``timeline="phases"``, whose measured times are taken, and of a pipeline its stages and
        micro-batches; the model of another is cut into equal stages. Or ``PipelineTimes`` of
        ``protocol/pipeline.schema.json``: ms of ``forward``, ``input_gradient``, ``weight_gradient``, bytes,
        and so on.
    schedule : str
        Name of a schedule; ``search``: the best order that is found; of a run also ``measured``: the order in
        which its own steps ran.
    stages, micro_batches, chunks : int
        As measured of a run, or 4 stages and 8 micro-batches; 2 chunks where the schedule takes several.
    memory : str or float, optional
        Limit of a stage: ``"20GiB"``, or bytes.
    seed : int
        Of the search.
    steps : tuple of int, optional
        First and last step of the run to measure by; the newest 10.
    **times
        Members of ``PipelineTimes`` that are not measured, or are to be others: ``activation_bytes=4e8``.

    Raises
    ------
    PipelineError
        When there is no such plan, and why.
    EngineError
        When the engine cannot run.
    """
    request: dict[str, Any] = {"schedules": [schedule], "seed": seed, "times": times}
    answers: dict[str, Any] = {}
    if isinstance(run_or_times, Mapping):
        for name, given in (("stages", stages), ("micro_batches", micro_batches)):
            if given is None:
                raise PipelineError(f"plan(…) of times must have {name}=, got none.")
        request["times"] = {**run_or_times, **times}
    else:
        from ...runs.answers import answers_of

        answers = answers_of(run_or_times, PipelineError, "times such as {'forward': 4.0}")
        request["run"] = next(iter(answers))
        if steps is not None:
            request["first"], request["last"] = steps
        if schedule == "measured":
            # It is planned from what was measured, and comes first.
            request["schedules"] = ["1f1b"]
    if stages is not None:
        request["stages"] = stages
    if micro_batches is not None:
        request["micro_batches"] = micro_batches
    if chunks is not None:
        request["chunks"] = chunks
    if memory is not None:
        request["memory_bytes"] = _bytes(memory)
    found = [each for each in _planned(request, answers) if each["schedule"] == schedule]
    if not found:
        raise PipelineError(
            "measured must be the order of a pipeline with so many stages and micro-batches, and nothing of "
            'one was recorded. Train with timeline="phases", or name a schedule.'
        )
    return PipelinePlan(_had(found[0]))


def plan_of_name(name: str, layout: Placement) -> Mapping[str, Any]:
    """Return the plan of a schedule's name, with equal durations; raises ``PipelineError``."""
    found = _planned(
        {
            "schedules": [name],
            "stages": layout.stages,
            "micro_batches": layout.micro_batches,
            "chunks": layout.chunks,
            "times": {"forward": 1},
        }
    )[0]
    return _had(found)["plan"]  # type: ignore[no-any-return]


def compare_plans(
    layout: Placement, times: Mapping[str, Any], running: Plan | None
) -> Sequence[tuple[Mapping[str, Any], float]]:
    """Return the plans that fit a layout with their simulated ms a step, the running one first."""
    request: dict[str, Any] = {
        "schedules": list(NAMES),
        "stages": layout.stages,
        "micro_batches": layout.micro_batches,
        "chunks": layout.chunks,
        "times": dict(times),
    }
    if running is not None:
        request["plan"] = running.to_json()
    return [
        (each["plan"], float(each["step_ms"]))
        for each in _planned(request)
        if "plan" in each and Plan.of(each["plan"]).layout == layout
    ]


def _planned(request: Mapping[str, Any], answers: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
    from ...pictures.engine import run_job

    answer, _ = run_job("pipeline", request, answers or {}, timeout=_SECONDS)
    return answer["schedules"]  # type: ignore[no-any-return]


def _had(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was planned; raises ``PipelineError`` with the planner's reason."""
    refused = found.get("refused")
    if refused is None:
        return found
    raise PipelineError(
        refused["message"],
        code=refused["code"],
        operation=refused["operation"],
        stage=refused["stage"],
        micro_batch=refused["micro_batch"],
    )


def _bytes(given: str | float) -> float:
    if isinstance(given, str):
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?([kmgt]?)(i?)b?", given.strip().lower())
        if match is None:
            raise PipelineError(
                f'memory must be bytes, or a text such as "20GiB" or "900MB", got {given!r:.80}.'
            )
        number, unit, binary = match.groups()
        return float(number) * float((1024 if binary else 1000) ** _POWERS[unit])
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0:
        raise PipelineError(f"memory must be a number of bytes above 0, got {given!r:.80}.")
    return float(given)
