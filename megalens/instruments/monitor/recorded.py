"""Alarms of a recorded run: those it has, as a frame, and those that other thresholds would have found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa

from ...protocol import MOMENT_COLUMNS, Readings, StepReadings
from ...runs import ClientError, Run
from ...runs.many import Paths, ask_all
from ...runs.query import StepChoice
from .rule import Alarm, first_serious, reached
from .settings import WatchSettings, installed_rules
from .watch import Watch

if TYPE_CHECKING:
    from pandas import DataFrame

_WINDOW_ROWS = 200_000

Progress = Callable[[int, int, str], object]

_FIRST = ("step", "micro_step", "rank", "rule", "severity", "name", "value", "expected", "sentence")


def alarms(
    run: Run, steps: StepChoice = None, rule: str | None = None, severity: str | None = None
) -> DataFrame:
    """Return what the rules of the monitor found, in the order in which it happened.

    Parameters
    ----------
    steps : optional
        As in :meth:`tensors`.
    rule : str, optional
        One rule, such as ``"jump"``.
    severity : str, optional
        ``"critical"``, ``"warning"`` or ``"note"``.

    Returns
    -------
    pandas.DataFrame
        ``step``, ``micro_step`` (the micro-batch; -1: of the whole step), ``rank``, ``rule``, ``severity``,
        ``name``, ``value``, ``expected``, ``sentence``, then the other columns of the stream ``alarms``.
        Empty while the training is healthy.
    """
    frame = run.table("alarms", steps).to_pandas().rename(columns={"micro_batch": "micro_step"})
    for column, wanted in (("rule", rule), ("severity", severity)):
        if wanted is not None:
            frame = frame[frame[column] == wanted]
    rest = [name for name in frame.columns if name not in _FIRST]
    return frame[[*_FIRST, *rest]].sort_values(["step", "place"], kind="stable", ignore_index=True)


def first_anomaly(run: Run) -> dict[str, Any] | None:
    """Return the first alarm of severity critical or warning, by the columns of :meth:`alarms`; None without
    one.

    Its ``path`` is what it reached next as (direction, module, rank).
    """
    rows = list(alarms(run).itertuples(index=False, name="Alarm"))
    first = first_serious(rows)
    return None if first is None else {**first._asdict(), "path": reached(rows)}


def recorded_steps(run: Run, progress: Progress | None = None) -> Iterator[StepReadings]:
    """Yield the steps of a run as rules judge them, with only some in memory at a time.

    Tensors are in natural order, as a recording does not have the order of measurement; of a statistic that
    all ranks count together there is one row. ``progress`` is called with (steps done, steps in all, what is
    being done) and may raise to cancel.
    """
    source = run.moment_source
    source.refresh()
    index = source.index()
    if not index["stats"]:
        return
    names, stats = index["names"], [one["stat"] for one in index["stats"]]
    first, last = min(one["first"] for one in index["stats"]), max(one["last"] for one in index["stats"])
    a_step = sum(one["rows"] for one in index["stats"]) / max(1, last - first + 1)
    window = max(1, int(_WINDOW_ROWS / max(1.0, a_step)))
    known: dict[Any, tuple[str, ...]] = {}
    for begin in range(first, last + 1, window):
        end = min(begin + window - 1, last)
        if progress is not None:
            progress(begin - first, last - first + 1, "Judging")
        table = source.rows(stats, steps=(begin, end))
        scalars = run.scalars(steps=slice(begin, end + 1))
        yield from _steps(table, scalars, names, known)
    if progress is not None:
        progress(last - first + 1, last - first + 1, "Judging")


def _steps(
    table: pa.Table, scalars: pa.Table, names: list[str], known: dict[Any, tuple[str, ...]]
) -> Iterator[StepReadings]:
    numbers: dict[int, dict[str, float]] = {}
    for step, name, value in zip(*(scalars[c].to_pylist() for c in ("step", "name", "value")), strict=True):
        numbers.setdefault(step, {})[name] = value
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    rows = np.full((table.num_rows, len(MOMENT_COLUMNS)), np.nan)
    for at, name in enumerate(MOMENT_COLUMNS):
        if name in columns:
            rows[:, at] = columns[name].to_numpy(zero_copy_only=False)
    step = columns["step"].to_numpy()
    ids = columns["name_id"].to_numpy()
    keys = [
        _codes(columns[name])
        for name in ("stat", "rank", "micro_batch", "stage", "gradient_stage")
        if name in columns
    ]
    order = np.lexsort((ids, *keys[::-1], step))
    if not len(order):
        return
    ends = np.flatnonzero(
        np.any([np.diff(each[order]) != 0 for each in (step, *keys)], axis=0) if len(order) > 1 else []
    )
    parts = np.split(order, ends + 1)
    found: list[Readings] = []
    samples = -1
    for at, part in enumerate(parts):
        row = int(part[0])
        here = int(step[row])
        key = ids[part].tobytes()
        if key not in known:
            known[key] = tuple(names[each] for each in ids[part].tolist())
        texts = {
            name: tuple(columns[name].take(pa.array(part)).to_pylist()) if name in columns else ()
            for name in ("shape", "dtype")
        }
        found.append(
            Readings(
                columns["stat"][row].as_py(),
                columns["rank"][row].as_py(),
                known[key],
                rows[part],
                *(texts["shape"], texts["dtype"]),
                stage=columns["stage"][row].as_py(),
                micro_batch=columns["micro_batch"][row].as_py() if "micro_batch" in columns else -1,
                gradient_stage=columns["gradient_stage"][row].as_py(),
                loss_scale=columns["loss_scale"][row].as_py(),
            )
        )
        samples = max(samples, columns["samples"][row].as_py())
        if at + 1 == len(parts) or int(step[parts[at + 1][0]]) != here:
            yield StepReadings(here, samples, found, numbers.get(here, {}))
            found, samples = [], -1


def _codes(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.indices
    elif pa.types.is_string(column.type):
        column = column.dictionary_encode().indices
    return column.to_numpy(zero_copy_only=False)


def judge_run(
    run: Run, settings: Any = None, progress: Progress | None = None
) -> Iterator[tuple[int, list[Alarm]]]:
    """Judge a recorded run; yield each step with its alarms.

    ``settings`` is the settings object of the instrument ``monitor``: ``{"rules": …, "muted": …}``. Raises
    ``ProtocolError`` with the field at fault.
    """
    own = installed_rules()
    watch = Watch(WatchSettings.of(settings, tuple(own)), own, clock=lambda: 0.0)
    for step in recorded_steps(run, progress):
        yield step.step, watch.judge(step)


class Judged(NamedTuple):
    """How many steps of a run were judged, and the alarms in them."""

    steps: int
    alarms: tuple[Alarm, ...]


def judge_whole(run: Run, settings: Any = None) -> Judged:
    """Judge all of a recorded run, as :func:`judge_run`; raises ``ClientError`` without statistics."""
    steps = [alarms for _, alarms in judge_run(run, settings)]
    if not steps:
        raise ClientError("This run holds no statistics to judge.")
    return Judged(len(steps), tuple(alarm for alarms in steps for alarm in alarms))


def judge_runs(
    paths: Paths, settings: Any = None, *, engine: Any = None, progress: Progress | None = None
) -> dict[str, Judged]:
    """Judge each of many recorded runs; parameters, order and errors are those of ``megalens.ask_all``.

    On an engine a run is a task: rules remember earlier steps, so that steps of one run follow each other.
    """
    own = installed_rules()
    WatchSettings.of(settings, tuple(own))
    return ask_all(paths, partial(judge_whole, settings=settings), engine=engine, progress=progress)


class AlarmCounts(TypedDict):
    """Alarms of the judged steps.

    ``whole`` says that no step was left out, ``alarms`` are those of severity critical and warning, which
    ``rules`` counts by rule; ``first`` is the first anomaly.
    """

    whole: bool
    steps: int
    alarms: int
    notes: int
    rules: dict[str, int]
    first: Alarm | None


def count_alarms(
    run: Run,
    settings: Any = None,
    progress: Progress | None = None,
    *,
    enough: Callable[[], bool] = lambda: False,
) -> AlarmCounts:
    """Count the alarms that settings would have given in a recorded run.

    ``enough`` is asked after each step whether to leave out the rest.
    """
    steps = notes = 0
    complete = True
    rules: Counter[str] = Counter()
    first: Alarm | None = None
    for _, alarms in judge_run(run, settings, progress):
        steps += 1
        serious = [alarm for alarm in alarms if alarm.severity != "note"]
        notes += len(alarms) - len(serious)
        rules.update(alarm.rule for alarm in serious)
        first = first or first_serious(serious)
        if enough():
            complete = False
            break
    return {
        "whole": complete,
        "steps": steps,
        "alarms": rules.total(),
        "notes": notes,
        "rules": dict(rules),
        "first": first,
    }
