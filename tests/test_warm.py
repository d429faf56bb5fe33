"""What processes of tests find imported; tests/kit/warm.py sees to it."""

import subprocess
import sys

import pytest

STARTS = "import subprocess, sys; subprocess.run([sys.executable, 'job.py'], check=True)"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process starts cold")
def test_a_process_that_a_warm_one_starts_is_warm_too(tmp_path):
    # As torchrun starts its ranks, and a training its hub: one import of torch less for each of them.
    (tmp_path / "train.py").write_text(STARTS)
    (tmp_path / "job.py").write_text("import sys; print('torch' in sys.modules)")
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
