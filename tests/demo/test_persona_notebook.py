"""The persona notebook runs from its first cell to its last, and what it watches for is really seen."""

import os
import re
import signal
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from megalens.hub.discovery import live_hubs

NOTEBOOK = Path(__file__).parents[2] / "examples" / "persona.ipynb"
LINE = re.compile(r"layer (\d) · (\w+) +text · along the (\w+) +([+-][\d.]+) ± ([\d.]+)")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_fine_tuning_on_shouted_text_is_seen_on_calm_prompts(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_PERSONA_STEPS", "80")
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
    # Threads that spin while they wait would take the cores from the other tests.
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = {cell.id: cell for cell in notebook.cells}
    # What a kernel prints comes in as many outputs as it was flushed.
    printed = "".join(each.text for each in cells["shift"].outputs if each.output_type == "stream")
    found = {
        (int(layer), text, along): (float(shift), float(half))
        for layer, text, along, shift, half in LINE.findall(printed)
    }
    assert len(found) == 16
    for layer in range(4):
        shift, half = found[layer, "shouted", "trait"]
        assert shift - half > 0
        assert shift > found[layer, "ordinary", "trait"][0]
        assert shift > 2 * abs(found[layer, "shouted", "control"][0])
    for name in ("pictures", "training"):
        assert "<svg" in str(cells[name].outputs)
    # The hub stays a while for viewers that come back; nobody will.
    for hub in live_hubs(tmp_path / "runtime"):
        os.kill(hub.pid, signal.SIGTERM)
