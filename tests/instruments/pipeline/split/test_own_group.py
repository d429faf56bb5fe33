"""A split training that a launcher starts makes its process group itself."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from megalens.instruments.pipeline.split import launch

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def test_processes_as_launch_tells_them_train_and_end_by_themselves(tmp_path) -> None:
    told = launch(pp=2, last_forward=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    path = os.pathsep.join(sys.path)
    started = [
        subprocess.Popen(
            [sys.executable, HERE / "own_group_script.py"],
            env={**os.environ, **where, **each["env"], "FOLDER": str(tmp_path), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for each in told["processes"]
    ]
    try:
        said = [each.communicate(timeout=90)[0] for each in started]
    finally:
        for each in started:
            each.kill()
    assert [each.returncode for each in started] == [0, 0, 0], said
    assert said[0] == said[1] == ""
    assert said[2].startswith("off by")
    assert (tmp_path / "manifest.json").exists()
