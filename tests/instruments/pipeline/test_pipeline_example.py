"""The example of a pipeline, as somebody would start it."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples_work import trained

import megalens
from megalens.instruments.pipeline import plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_example_trains_and_its_run_can_be_planned(tmp_path: Path) -> None:
    asked = ["--placement=v", "--chunks=2", "--schedule=zb_v", "--layers=4", "--steps=6"]
    with megalens.open(trained("pipeline", 2, asked, tmp_path)) as run:
        made = plan(run, "measured")
        layout = made.plan.layout
        assert (layout.kind, layout.stages, layout.chunks, layout.micro_batches) == ("v", 2, 2, 8)
        assert made.to_json()["order"] == plan(run, "zb_v").to_json()["order"]
        losses = run.scalars().to_pandas()
        assert len(losses[losses["name"] == "loss"]) == 6
        busy = run.pipeline_metrics()
        assert set(busy[busy["metric"] == "compute_ratio"]["rank"]) == {0, 1}
