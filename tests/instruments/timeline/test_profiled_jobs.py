"""Traces that PyTorch's own profiler wrote of a job of several processes."""

from __future__ import annotations

import pytest
from processes import run_job

import megalens
from megalens.instruments.timeline import analyse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_what_pytorchs_profiler_wrote_of_a_real_job_is_read(tmp_path) -> None:
    run_job(2, "profiled_work:profiled", str(tmp_path))
    with megalens.open(tmp_path) as run:
        rows = run.table("spans").to_pandas()
        analysis = analyse(run)
        assert run.name == tmp_path.name
    assert sorted(set(rows["rank"])) == [0, 1]
    steps = sorted(set(rows["step"]))
    assert len(steps) == 4
    for _, mine in rows.groupby(["rank", "step"]):
        kinds = mine["kind"].value_counts()
        assert kinds["forward"] == kinds["backward"] == kinds["optimizer"] == kinds["step"] == 1
        reduced = mine[mine["name"] == "all_reduce"]
        # Four layers of 64 × 64 weights and 64 biases.
        assert reduced["bytes"].sum() == 4 * 4 * (64 * 64 + 64)
        assert set(reduced["group"]) == {"0-1"}
        order = mine.groupby("kind")["start"].min()
        assert order["step"] <= order["forward"] < order["backward"] < order["optimizer"]
    assert analysis.clocks.ranks.tolist() == [0, 1]
    # One machine has one clock, and gloo's own threads end a collective within a few ms of each other.
    assert abs(analysis.clocks.offset_ns).max() < 20e6
