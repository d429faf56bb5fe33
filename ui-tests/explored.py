"""What the browser tests explore: a recorded run with statistics, and a tree of raw-moment JSONL files. ``explored.py ROOT`` writes both below a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from explored_run import names_of, values_of_tensor, write_explored_run  # noqa: E402


def main() -> None:
    folder = Path(sys.argv[1])
    run = write_explored_run(folder / "megalens-runs" / "20261120-101500-explored")
    header = json.loads((run / "run.json").read_text())
    header["run"] = {**header["run"], "id": run.name, "name": "explored"}
    (run / "run.json").write_text(json.dumps(header))
    lines = []
    for step in range(1, 41):
        sums = {}
        for name in names_of("grad"):
            values = values_of_tensor("grad", name, step)
            powers = {f"sum_{power}": float(np.sum(values**power)) for power in (1, 2, 3, 4)}
            sums[name] = {"count": float(len(values)), **powers}
        lines.append(json.dumps({"iter": step, "consumed_train_samples": step * 16, "values": sums}))
    files = folder / "other" / "my-run" / "training_stats" / "grad_raw_moments_by_param"
    files.mkdir(parents=True)
    (files / "rank0.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
