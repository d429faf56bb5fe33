"""MegaScan's heuristics, as they judge its files and our spans."""

from __future__ import annotations

import json

import pytest

from megalens.__main__ import main
from megalens.instruments.timeline.analysis import analyse, megascan_of_files
from megalens.instruments.timeline.megascan_files import Iteration, RankTrace, TimelineError
from tests.kit.simulated_jobs import Fault, Job, simulate


def traces(slow=None, data=2, tensor=2, iterations=4):
    """Files of a job without pipeline: rank d · tensor + t has two reductions, a backward pass and an all-reduce an iteration."""
    made = []
    for rank in range(data * tensor):
        place = {"dp_rk": rank // tensor, "pp_rk": 0, "tp_rk": rank % tensor, "dev": rank, "g_rk": rank}
        others = [each for each in range(data * tensor) if each != rank]
        late = 30 if rank == slow else 0
        rows = [
            ("backward", 0, 100 + late, {}),
            ("_reduce", 10_000, 10_100 - 2 * late, {"expect": "_reduce", "group": others}),
            ("_reduce", 20_000, 20_100 - 2 * late, {"expect": "_reduce", "group": others}),
            ("allreduce", 30_000 + late, 30_100, {}),
        ]
        marks = [
            {**place, "name": name, "ph": kind, "rel_ts": 1000 * at, **(extra if kind == "E" else {})}
            for name, begin, end, extra in rows
            for kind, at in (("B", begin), ("E", end))
        ]
        made.append(RankTrace(rank, place, [Iteration(0, 40_000_000, marks) for _ in range(iterations)]))
    return made


def test_the_slow_gpu_of_its_files_is_found():
    verdict = megascan_of_files(traces(slow=2))
    # The first iteration does not count for suspicions, but its reductions do.
    assert verdict.suspicions == {2: 6}
    assert verdict.slow == {2: (8, 8)}
    assert verdict.abnormal == 2
    assert str(verdict) == "Suspect: rank 2, 6 times\nAbnormal GPU: rank 2 (8 of 8)"


def test_the_command_judges_its_files(tmp_path, capsys):
    folder = tmp_path / "job"
    folder.mkdir()
    for trace in traces(slow=2):
        rows = []
        for iteration in trace.iterations:
            end = {"duration_wall": iteration.duration, "rel_ts": iteration.duration, **trace.coordinates}
            rows += [{"name": "iteration", "ph": "B", "pad_before": 0}, *iteration.rows]
            rows.append({"name": "iteration", "ph": "E", "duration_cuda": 1, **end})
            # Each iteration differs, or it would be the repeated copy that its tracer writes.
            rows[-2] = {**rows[-2], "rel_ts": rows[-2]["rel_ts"] + len(rows)}
        place = trace.coordinates
        name = f"benchmark-data-{place['dp_rk']}-pipeline-0-tensor-{place['tp_rk']}.json"
        (folder / name).write_text(json.dumps(rows))
    command = ["timeline", "verdict", str(folder), "--method", "megascan"]
    assert main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["abnormal"] == 2
    assert main(command) == 1
    assert "Abnormal GPU: rank 2" in capsys.readouterr().out


def test_few_suspicions_and_healthy_files_name_nobody():
    assert megascan_of_files(traces(slow=2, iterations=3)).slow == {}
    healthy = megascan_of_files(traces())
    assert (healthy.suspicions, healthy.abnormal) == ({}, None)
    assert "suspect no rank" in str(healthy)


@pytest.mark.parametrize(("data", "tensor"), [(1, 4), (4, 1)])
def test_a_job_without_both_kinds_of_parallelism_cannot_be_judged(data, tensor):
    made = traces(slow=2, data=data, tensor=tensor, iterations=12)
    for trace in made if tensor == 1 else ():
        for iteration in trace.iterations:
            for row in iteration.rows:
                row.pop("group", None)
    with pytest.raises(TimelineError, match=r"at least 2 (data|tensor)-parallel ranks"):
        megascan_of_files(made)


def test_spans_of_a_job_are_judged_by_the_same_rules():
    job = Job(2, 2, 2, seed=11, faults=(Fault("device", (5,), 1.5, 1, 30),))
    verdict = analyse(simulate(job)[0]).verdict(method="megascan")
    assert verdict.abnormal == 5
    assert verdict.suspicions[5] == max(verdict.suspicions.values())


def test_what_it_cannot_judge_and_unknown_methods_are_said():
    analysis = analyse(simulate(Job(1, 4, 2, seed=18))[0])
    with pytest.raises(TimelineError, match="at least 2 tensor-parallel and 2 data-parallel ranks"):
        analysis.verdict(method="megascan")
    with pytest.raises(TimelineError, match="method must be megalens or megascan, got 'best'"):
        analysis.verdict(method="best")
