"""The example of a pipeline, as somebody would start it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import megalens
from megalens.instruments.pipeline import plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[3]


def test_the_example_trains_and_its_run_can_be_planned(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    asked = ["--placement=v", "--chunks=2", "--schedule=zb_v", "--layers=4", "--steps=6"]
    subprocess.run(
        [*command, str(ROOT / "examples/pipeline/train.py"), *asked, f"--record={tmp_path / 'runs'}"],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "MEGALENS_RUNTIME_DIR": str(tmp_path / "runtime"),
        },
        check=True,
        timeout=150,
    )
    (folder,) = (tmp_path / "runs").iterdir()
    with megalens.open(folder) as run:
        made = plan(run, "measured")
        layout = made.plan.layout
        assert (layout.kind, layout.stages, layout.chunks, layout.micro_batches) == ("v", 2, 2, 8)
        assert made.to_json()["order"] == plan(run, "zb_v").to_json()["order"]
        losses = run.scalars().to_pandas()
        assert len(losses[losses["name"] == "loss"]) == 6
        busy = run.pipeline_metrics()
        assert set(busy[busy["metric"] == "compute_ratio"]["rank"]) == {0, 1}
