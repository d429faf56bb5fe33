"""Measured steps of pipelines whose times are known."""

from __future__ import annotations

import numpy as np
import pytest
from pipeline_jobs import Pipeline
from span_rows import table

from megalens.instruments.timeline import pipeline_answer as module
from megalens.instruments.timeline.analysis import Analysis
from megalens.instruments.timeline.megascan_files import TimelineError
from megalens.instruments.timeline.pipeline_answer import complete_steps, pipeline_steps
from megalens.instruments.timeline.pipeline_passes import pipeline_passes
from megalens.instruments.timeline.spans import Spans


def steps_of(rows, replica=0):
    passes = pipeline_passes(Analysis(Spans.of(rows)))
    return passes, pipeline_steps(passes, complete_steps(passes, replica), replica)


def operations_of(answer, step):
    columns = answer["operations"]
    assert len({len(column) for column in columns.values()}) == 1
    names = ("kind", "stage", "chunk", "virtual_stage", "micro_batch", "begin_ms", "end_ms")
    rows = zip(columns["step"], *(columns[name] for name in names), strict=True)
    return sorted(row[1:] for row in rows if row[0] == step)


@pytest.mark.parametrize("placement", ["loop", "v"])
def test_every_operation_is_there_with_its_place(placement):
    job = Pipeline(3, 2, 4, placement)
    passes, answer = steps_of(job.table(steps=3, replicas=2))
    assert passes.problems == ()
    shape = [answer[name] for name in ("stages", "chunks", "micro_batches", "placement", "replicas", "ranks")]
    assert shape == [3, 2, 4, placement, 2, [0, 2, 4]]
    assert answer["steps"] == [{"step": step, "duration": float(job.length())} for step in (1, 2, 3)]
    wanted = [
        (each.kind[0].upper(), each.stage, each.chunk, job.virtual(each.stage, each.chunk), each.micro_batch, float(each.begin), float(each.end))
        for each in job.passes()
    ]  # fmt: skip
    wanted += [("O", stage, -1, -1, -1, job.length() - 3.0, job.length() - 1.0) for stage in range(3)]
    assert operations_of(answer, 2) == sorted(wanted)
    columns = answer["operations"]
    order = list(zip(columns["step"], columns["stage"], columns["begin_ms"], strict=True))
    assert order == sorted(order)


def test_another_replica_is_the_other_rank_of_each_stage():
    _, answer = steps_of(Pipeline(2, 1, 2).table(replicas=3), replica=2)
    assert answer["ranks"] == [2, 5]
    assert set(answer["operations"]["rank"]) == {2, 5}


def test_a_backward_pass_with_gradients_of_weights_apart_is_of_inputs():
    _, answer = steps_of(Pipeline(2, 1, 2).table(wgrad=True))
    kinds = answer["operations"]["kind"]
    assert {kind: kinds.count(kind) for kind in sorted(set(kinds))} == {"F": 8, "I": 8, "O": 4, "W": 8}


def test_one_process_is_a_pipeline_of_one_stage():
    passes, answer = steps_of(Pipeline(1, 1, 3).table())
    assert (answer["stages"], answer["ranks"], passes.placement) == (1, [0], "loop")
    kinds = [row[0] for row in operations_of(answer, 1)]
    assert sorted(kinds) == ["B"] * 3 + ["F"] * 3 + ["O"]


def test_passes_without_numbers_are_numbered_by_their_order():
    rows = [{"kind": "step", "name": "", "group": "", "end": 100}]
    rows += [{"kind": kind, "name": "", "group": "", "start": at, "end": at + 5} for kind, at in (("forward", 0), ("forward", 10), ("backward", 20), ("backward", 30))]  # fmt: skip
    _, answer = steps_of(table(*rows))
    assert [(row[0], row[4]) for row in operations_of(answer, 1)] == [("B", 0), ("B", 1), ("F", 0), ("F", 1)]


def test_times_are_on_one_clock_where_something_connects_the_ranks():
    job = Pipeline(2, 1, 2)
    passes, answer = steps_of(job.table(steps=5, offset_ms=40_000))
    assert passes.problems == ()
    wanted = sorted((each.kind[0].upper(), each.stage, each.micro_batch, each.begin) for each in job.passes())
    found = [(row[0], row[1], row[4], round(row[5])) for row in operations_of(answer, 3) if row[0] != "O"]
    assert sorted(found) == wanted


def test_ranks_that_nothing_connects_begin_at_once_and_it_is_said():
    job = Pipeline(2, 1, 2)
    rows = job.table(steps=3, offset_ms=40_000)
    rows = rows.filter(np.array([kind != "collective" for kind in rows["kind"].to_pylist()]))
    passes, answer = steps_of(rows)
    assert passes.problems == (
        "Nothing connects the clocks of ranks 0, 1 and those with them: each begins its steps at 0.",
    )
    assert answer["steps"][0] == {"step": 1, "duration": float(job.length())}


def test_steps_that_a_rank_lacks_are_not_whole():
    rows = Pipeline(2, 1, 2).table(steps=4)
    lacks = [step == 4 and rank == 1 for step, rank in zip(rows["step"].to_pylist(), rows["rank"].to_pylist(), strict=True)]  # fmt: skip
    passes = pipeline_passes(Analysis(Spans.of(rows.filter(~np.array(lacks)))))
    assert complete_steps(passes).tolist() == [1, 2, 3]


def test_an_answer_is_bounded_and_says_how_many_steps_it_leaves_out(monkeypatch):
    rows = Pipeline(2, 1, 2).table(steps=25)
    _, answer = steps_of(rows)
    assert (len(answer["steps"]), answer["left"], answer["steps"][-1]["step"]) == (20, 5, 25)
    monkeypatch.setattr(module, "MOST_OPERATIONS", 35)
    _, answer = steps_of(rows)
    assert ([each["step"] for each in answer["steps"]], answer["left"]) == ([23, 24, 25], 22)
    monkeypatch.setattr(module, "MOST_OPERATIONS", 9)
    with pytest.raises(TimelineError, match="Step 25 has 10 operations, and at most 9"):
        steps_of(rows)


def test_ranks_without_a_stage_and_stages_without_ranks_are_said():
    rows = Pipeline(2, 1, 2).table(steps=1)
    stage = {0: 1, 1: 3}
    column = [stage[rank] for rank in rows["rank"].to_pylist()]
    rows = rows.set_column(rows.column_names.index("stage"), "stage", [column])
    passes, answer = steps_of(rows)
    assert answer["ranks"] == [-1, 0, -1, 1]
    assert passes.problems == ("Stages 0, 2 of the pipeline have no spans.",)
