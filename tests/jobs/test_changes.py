"""Settings of a job of several processes change on all of them at one step, or on none."""

import json

import pytest
from rows import finished
from waiting import until

from megalens import Tile
from megalens.protocol import ProtocolError

pytestmark = pytest.mark.slow
ALL = {"compressor": {"name": "Tile", "params": {"tiles": 2}}, "replicas": "all"}


def test_every_change_takes_effect_at_one_step_on_every_rank(start_job) -> None:
    job = start_job(3, flags=json.dumps({"HiddenStates": ALL}))
    run = job.connect()
    run.wait(step=3, timeout=60)
    steps = []
    for tiles in (4, 8, 2, 16, 1, 4):
        steps.append((run.configure(HiddenStates=Tile(tiles), replicas="all"), tiles))
    with pytest.raises(ProtocolError, match="meen"):
        run.configure(HiddenStates=Tile(2, "meen"))
    run.wait(step=max(run.step, steps[-1][0]) + 5, timeout=60)
    run.close()
    said = job.stop()
    rows = finished(job.folder / "runs").tensors("HiddenStates").to_pandas()
    assert set(rows["rank"]) == {0, 1, 2}
    by_step = rows.groupby("step").agg({"compressor": set, "rank": "nunique"})
    assert all(len(compressors) == 1 for compressors in by_step["compressor"])
    complete = by_step[by_step["rank"] == 3]
    assert len(complete) >= len(by_step) - 2 * len(steps) - 3
    for (first, tiles), (then, _) in zip(steps, [*steps[1:], (first_after(by_step), None)], strict=True):
        inside = by_step.loc[first : then - 1, "compressor"]
        assert all(text == {f"Tile(tiles={tiles}, reduction='mean')"} for text in inside)
    assert [len(one["losses"]) for one in said] == [len(said[0]["losses"])] * 3


def first_after(by_step) -> int:
    return int(by_step.index.max()) + 1


def test_a_short_job_keeps_the_rows_of_every_replica(start_job) -> None:
    job = start_job(3, flags=json.dumps({"HiddenStates": ALL}), steps="3")
    for one in job.ended():
        assert one["status"]["dropped"]["producer"] == 0
    rows = finished(job.folder / "runs").tensors("HiddenStates").to_pandas()
    assert rows.groupby("rank")["step"].nunique().to_dict() == {0: 3, 1: 3, 2: 3}


def test_a_change_that_one_rank_cannot_follow_is_taken_back_on_all(start_job) -> None:
    job = start_job(2, flags=json.dumps({"HiddenStates": ALL}), **{"no-hooks": "MLP2_mat_mul"})
    run = job.connect()
    run.wait(step=3, timeout=60)
    step = run.configure(MLP2_mat_mul=Tile(2), replicas="all")
    until(lambda: "MLP2_mat_mul" not in run.config)
    assert list(run.config) == ["HiddenStates"]
    run.wait(step=max(run.step, step) + 5, timeout=60)
    until(lambda: any("1 errors of the tracer's own" in text for text in run.status.get("warnings", ())))
    run.close()
    said = job.stop()
    assert len(said[0]["losses"]) == len(said[1]["losses"])
    rows = finished(job.folder / "runs").tensors().to_pandas()
    hidden = rows[rows["flag"] == "HiddenStates"]
    last = hidden[hidden["step"] == hidden["step"].max() - 1]
    assert set(last["rank"]) == {0, 1}
    followed = rows[rows["flag"] == "MLP2_mat_mul"]
    assert set(followed["rank"]) <= {0}, "rank 1 takes no hooks for it"
    under_the_change = rows[rows["step"].isin(followed["step"])]
    assert set(under_the_change["rank"]) <= {0}, "what cannot follow traces nothing"
    of_one = set(hidden.loc[hidden["rank"] == 1, "step"])
    assert set(range(min(of_one), max(of_one))) - of_one, "rank 1 lost the step that it could not follow"
