"""The notebook about statistics runs from its first cell to its last, and both of its sources agree."""

import os
import re
import signal
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from megalens.hub.discovery import live_hubs

NOTEBOOK = Path(__file__).parents[2] / "examples" / "statistics.ipynb"
STEPS = 20


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_was_logged_is_drawn_and_the_files_agree_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_STATISTICS_STEPS", str(STEPS))
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
    # Threads that spin while they wait would take the cores from the other tests.
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = {cell.id: cell for cell in notebook.cells}
    for name, words in (
        ("residual", f"Residual stream kurtosis by layer, step {STEPS}."),
        ("ratio", f"Gradient over parameter RMS by layer, steps 1 to {STEPS}."),
        ("files-view", f"Gradient kurtosis by layer and kind, steps 1 to {STEPS}."),
    ):
        data = cells[name].outputs[0].data
        assert words in data["text/html"]
        assert "<svg" in data["text/html"]
    lines = "".join(output.text for output in cells["agree"].outputs).splitlines()
    assert len(lines) == 4
    for line in lines:
        apart = dict(re.findall(r"(\w+) (\de[+-]\d+)", line))
        assert float(apart["count"]) == 0
        assert max(float(apart[name]) for name in ("rms", "l2")) < 1e-9
        assert float(apart["kurtosis"]) < 1e-6
    # The hub stays a while for viewers that come back; nobody will.
    for hub in live_hubs(tmp_path / "runtime"):
        os.kill(hub.pid, signal.SIGTERM)
