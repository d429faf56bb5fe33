"""Traces of pipelines that MegatronApp's older tracer wrote, as runs."""

from __future__ import annotations

import json

import pytest
from pipeline_jobs import Pipeline

import megalens
from megalens.runs import ClientError

JOB = Pipeline(stages=2, chunks=2, micro_batches=2)


def written(tmp_path, events):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    return path


def spans_of(path):
    with megalens.open(path) as run:
        assert run.warnings == []
        return run.table("spans").to_pandas()


def passes_of(rows, step):
    mine = rows[(rows["step"] == step) & rows["kind"].isin(["forward", "backward"])]
    columns = ["kind", "stage", "chunk", "micro_batch", "start", "end"]
    return sorted(mine[columns].itertuples(index=False, name=None))


def expected(zero, job=JOB):
    ns = 1_000_000
    return sorted(
        (each.kind, each.stage, each.chunk, each.micro_batch, (zero + each.begin) * ns, (zero + each.end) * ns)
        for each in job.passes()
    )  # fmt: skip


def test_passes_have_stage_chunk_micro_batch_and_iteration(tmp_path):
    rows = spans_of(written(tmp_path, JOB.chrome(iterations=1, first=10, tid=1)))
    assert set(rows["step"]) == {10}
    assert passes_of(rows, 10) == expected(0)
    assert (rows["rank"] == rows["stage"]).all()
    assert (rows["name"][rows["kind"].isin(["forward", "backward"])] == "").all()


def test_ticks_say_where_an_iteration_begins_and_its_pipeline_has_run_empty(tmp_path):
    rows = spans_of(written(tmp_path, JOB.chrome()))
    last = max(each.end for each in JOB.passes())
    second = JOB.length() * 2 + 7
    for step, zero, factor in ((0, 0, 2), (1, second, 1)):
        for stage in (0, 1):
            mine = rows[(rows["step"] == step) & (rows["stage"] == stage)]
            whole = mine[mine["kind"] == "step"].iloc[0]
            ends = (zero * 10**6, (zero + (last + 4) * factor) * 10**6)
            assert (whole["start"], whole["end"]) == ends
            reduce = mine[mine["name"] == "reduce"].iloc[0]
            empty = max(each.end for each in JOB.passes() if each.stage == stage)
            assert (reduce["kind"], reduce["end"]) == ("collective", ends[1])
            assert reduce["start"] == (zero + empty * factor) * 10**6


def test_an_aggregate_without_ticks_has_iterations_as_long_as_their_passes(tmp_path):
    rows = spans_of(written(tmp_path, JOB.chrome(ticks=False)))
    assert passes_of(rows, 1) == expected(JOB.length() * 2 + 7)
    steps = rows[rows["kind"] == "step"]
    assert len(steps) == 3 * 2
    assert sorted(set(steps["stage"])) == [0, 1]


@pytest.mark.parametrize("several", [True, False])
def test_files_of_ranks_open_as_a_folder_or_one_by_one(tmp_path, several):
    folder = tmp_path / "job"
    JOB.write_ranks(folder)
    rows = spans_of(folder if several else folder / "app-1.json")
    assert set(rows["rank"]) == ({0, 1} if several else {1})
    assert passes_of(rows, 0) == [each for each in expected(5) if several or each[1] == 1]
    steps = rows[(rows["kind"] == "step") & (rows["step"] == 1)]
    zero = 5 + JOB.length() + 5
    assert set(zip(steps["start"], steps["end"], strict=True)) == {
        (zero * 10**6, (zero + JOB.length()) * 10**6)
    }


def test_two_recordings_in_one_file_are_refused_with_what_to_do(tmp_path):
    events = [*JOB.chrome(iterations=1, first=10, tid=1), *JOB.chrome(iterations=1, first=10, tid=0)]
    with pytest.raises(
        ClientError, match="several recordings of the same iterations, on threads 0 and 1"
    ) as error:
        megalens.open(written(tmp_path, events))
    assert "one by one" in str(error.value)


def test_numbers_that_no_pipeline_has_are_passed_over(tmp_path):
    events = JOB.chrome(iterations=1)
    for event in events:
        event["args"] |= {"pp_rank": 1 << 40, "microbatch": 1 << 33, "model_chunk": -5}
    events += [{"ph": "i", "name": "reduce", "ts": ts, "pid": pid, "args": args} for ts, pid, args in (("x", 0, {}), (3, [], {"iteration": True}), (3, 0, {"iteration": -1}))]  # fmt: skip
    rows = spans_of(written(tmp_path, events))
    assert set(rows["stage"]) == set(rows["chunk"]) == set(rows["micro_batch"]) == {-1}
