"""The notebooks of the examples run from their first cell to their last, and what they plant is what they find."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from megalens.hub.discovery import live_hubs

EXAMPLES = Path(__file__).parents[2] / "examples"
MOVED = re.compile(r"layer (\d) · (\w+) +text · along the (\w+) +([+-][\d.]+) ± ([\d.]+)")

Cells = dict[str, Any]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], Cells]]:
    """Run a notebook with so many steps, and return its cells by their names."""

    def run(name: str, steps: int) -> Cells:
        monkeypatch.setenv(f"MEGALENS_{name.upper()}_STEPS", str(steps))
        monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
        # Threads that spin while they wait would take the cores from the other tests.
        monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
        # Beside it, as in its own folder.
        (tmp_path / "pipeline").symlink_to(EXAMPLES / "pipeline")
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
        return {cell.id: cell for cell in notebook.cells}

    yield run
    # The hub stays a while for viewers that come back; nobody will.
    for hub in live_hubs(tmp_path / "runtime"):
        os.kill(hub.pid, signal.SIGTERM)


def printed(cell: Any) -> str:
    """What a kernel prints comes in as many outputs as it was flushed."""
    return "".join(each.text for each in cell.outputs if each.output_type == "stream")


def pictured(cell: Any) -> str:
    """The picture of a cell and what it says of itself."""
    html: str = cell.outputs[0].data["text/html"]
    assert "<svg" in html
    return html


def test_what_was_logged_is_drawn_and_the_files_agree_with_the_run(executed) -> None:
    cells = executed("statistics", 20)
    assert "Residual stream kurtosis by layer, step 20." in pictured(cells["residual"])
    assert "Gradient over parameter RMS by layer, steps 1 to 20." in pictured(cells["ratio"])
    assert "Gradient kurtosis by layer and kind, steps 1 to 20." in pictured(cells["files-view"])
    lines = printed(cells["agree"]).splitlines()
    assert len(lines) == 4
    for line in lines:
        apart = dict(re.findall(r"(\w+) (\de[+-]\d+)", line))
        assert float(apart["count"]) == 0
        assert max(float(apart[name]) for name in ("rms", "l2")) < 1e-9
        assert float(apart["kurtosis"]) < 1e-6


def test_fine_tuning_on_shouted_text_is_seen_on_calm_prompts(executed) -> None:
    cells = executed("persona", 80)
    found = {
        (int(layer), text, along): (float(shift), float(half))
        for layer, text, along, shift, half in MOVED.findall(printed(cells["shift"]))
    }
    assert len(found) == 16
    for layer in range(4):
        shift, half = found[layer, "shouted", "trait"]
        assert shift - half > 0
        assert shift > found[layer, "ordinary", "trait"][0]
        assert shift > 2 * abs(found[layer, "shouted", "control"][0])
    for name in ("pictures", "training"):
        assert "<svg" in str(cells[name].outputs)


def test_a_broken_batch_and_a_grown_weight_are_two_alarms_that_name_them(executed) -> None:
    cells = executed("monitor", 100)
    first, second = printed(cells["first"]).splitlines()
    assert first.startswith("step 50, loss: ")
    assert second.startswith("step 75, blocks.2.mlp.fc1.weight: ")
    assert "blocks.2.mlp.fc1" in pictured(cells["health"])


def test_the_verdict_of_a_job_names_the_rank_that_computes_longer_and_since_when(executed) -> None:
    cells = executed("timeline", 40)
    assert re.search(r"Steps (19|2[0-2]) to 40: rank 1 computes \d", printed(cells["verdict"]))
    assert "rank 1" in pictured(cells["view"])
    assert "<svg" in str(cells["map"].outputs)


def test_a_pipeline_runs_and_its_own_times_are_planned_anew(executed) -> None:
    cells = executed("pipeline", 8)
    # 1F1B of four stages and eight micro-batches, by its formula: (8 + 4 - 1) forward and backward passes of 12 ms.
    assert re.search(r"1f1b +132\.0 +0\.27 ", str(cells["plans"].outputs))
    ran, best = map(float, re.findall(r"([\d.]+) ms", printed(cells["better"])))
    assert 0 < best <= ran
    assert "1F1B" in pictured(cells["view"])
    assert printed(cells["split"]).startswith("not worth it")
