"""The examples, as somebody would start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]


def trained(example: str, processes: int, asked: Sequence[str], folder: Path) -> Path:
    """Start an example in some processes, and return the run that it recorded."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = str(ROOT / "examples" / example / "train.py")
    subprocess.run(
        [*command, f"--nproc-per-node={processes}", script, *asked, f"--record={folder / 'runs'}"],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "MEGALENS_RUNTIME_DIR": str(folder / "runtime"),
        },
        check=True,
        timeout=150,
    )
    (run,) = (folder / "runs").iterdir()
    return run
