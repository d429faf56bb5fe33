"""The example for Megatron-Core, started as its README says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rows import finished

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_trains_and_records_all_stages_with_one_command(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(str(ROOT / "examples/megatron/train.py"), "--pipeline-model-parallel-size", "2"),
        *("--train-iters", "20", "--tensor-tracer-port", "0", "--megalens-flags", "HiddenStates"),
        *("--megalens-record", str(tmp_path / "runs"), "--megalens-linger", "0.1"),
        *("--log-wgrad-stats-interval", "5", "--log-residual-stats-interval", "10"),
        *("--tensorboard-dir", str(tmp_path / "board")),
    ]
    environment = {
        **os.environ,
        "MEGALENS_RUNTIME_DIR": str(tmp_path / "runtime"),
        "PYTHONPATH": str(ROOT),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "step 20: loss " in done.stdout
    run = finished(tmp_path / "runs")
    last = run.tensors("HiddenStates", steps=20).to_pylist()
    assert sorted({(row["layer"], row["rank"]) for row in last}) == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert run.scalars("loss", steps=20)["rank"].to_pylist() == [1]
    stats = tmp_path / "board" / "training_stats"
    gradients, residuals = (
        [json.loads(line) for line in (stats / name / "rank0.jsonl").open()]
        for name in ("grad_raw_moments_by_param", "residual_raw_moments_by_layer")
    )
    assert [(line["iter"], line["consumed_train_samples"]) for line in gradients] == [
        (5, 40),
        (10, 80),
        (15, 120),
        (20, 160),
    ]
    layers = {f"decoder.layers.{layer}.mlp.linear_fc1.weight" for layer in range(4)}
    assert layers < gradients[0]["values"].keys()
    ends = ["decoder/input0", *(f"decoder.layers.{layer}/output0" for layer in range(4))]
    assert [list(line["values"]) for line in residuals] == [ends[1:] + ends[:1]] * 2
