"""A Trainer's callback in a job that torchrun started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from megalens.runs import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_callback_traces_every_rank_that_it_should(tmp_path: Path) -> None:
    script = Path(__file__).with_name("trainer_script.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = subprocess.run(
        [*launch, script, tmp_path],
        env={
            **os.environ,
            "MEGALENS_RUNTIME_DIR": str(tmp_path / "rt"),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = (tmp_path / "runs").iterdir()
    with open_run(folder) as run:
        assert run.state == "finished"
        rows = run.table("tensors").to_pylist()
        found = {(row["rank"], row["step"]): row["mean"] for row in rows}
        names = set(run.table("moments")["name"].to_pylist())
    for rank in (0, 1):
        seen = [float(line) for line in (tmp_path / f"seen-{rank}.txt").read_text().split()]
        assert [found.get((rank, step)) for step in (1, 2, 3)] == [
            pytest.approx(value, rel=1e-4, abs=1e-7) for value in seen
        ]
    assert "transformer.h.0.attn.c_attn.weight" in names
