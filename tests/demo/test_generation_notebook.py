"""The notebook about generation runs from its first cell to its last, and what it shows is what the model itself writes."""

import ast
import codecs
import os
import signal
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from megalens.demo.model import load_checkpoint
from megalens.hub.discovery import live_hubs

NOTEBOOK = Path(__file__).parents[2] / "examples" / "generation.ipynb"
PROMPTS = ["The list ", "    def _", "Return a "]
VIEWS = {
    "generate": "Generation 1: 144 tokens",
    "heatmap": "Queries, keys and values, part q, rms of 64 tiles, layers 0 to 3, generation 1.",
    "attention": "Attention of generation 1, layers 0 to 3, heads 0 to 3.",
    "heads": "mean distance",
    "lens": "Logit lens of “The list ”, generation 1",
    "projection": "Principal components of Hidden states, layer 3, generation 1.",
    "perturb": "Generation 2: 48 tokens",
    "effects": "Clean control: generation 2.",
    "sweep": "Sweep of a perturbation, generation 3, “The list ”.",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The executed cells by id, and the folder that they ran in."""
    folder = tmp_path_factory.mktemp("generation")
    with pytest.MonkeyPatch.context() as patch:
        # It writes no words yet; what is held against it here is as true of it as of a good one.
        patch.setenv("MEGALENS_GENERATION_STEPS", "20")
        patch.setenv("MEGALENS_RUNTIME_DIR", str(folder / "runtime"))
        # Threads that spin while they wait would take the cores from the other tests.
        patch.setenv("OMP_WAIT_POLICY", "PASSIVE")
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        NotebookClient(
            notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        ).execute()
    yield {cell.id: cell for cell in notebook.cells}, folder
    # The hub stays a while for viewers that come back; nobody will.
    for hub in live_hubs(folder / "runtime"):
        os.kill(hub.pid, signal.SIGTERM)


def printed(cell):
    """What a cell printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def text_of(ids):
    """The text of bytes; half a character at the end waits for its other half."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(ids.tolist()))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_texts_are_those_of_the_models_own_generate_with_the_same_seed(run):
    cells, folder = run
    model = load_checkpoint(folder / "generation-model")
    ids = model.generate(torch.tensor([list(each.encode()) for each in PROMPTS]), 48, 0.8, seed=1)
    shown = [ast.literal_eval(line) for line in printed(cells["texts"]).splitlines()]
    assert shown == [text_of(row) for row in ids]
    with torch.no_grad():
        chance = model(ids[:1, :-1])[0, -1].softmax(-1)[ids[0, -1]].item()
    last = cells["tokens"].outputs[0].data["text/plain"].splitlines()[-1].split()
    assert last[:3] == ["56", "56", "generated"]
    assert float(last[-3]) == pytest.approx(chance, abs=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_view_has_a_picture_and_no_cell_complains(run):
    cells, _ = run
    for name, words in VIEWS.items():
        shown = cells[name].outputs[-1].data["text/html"]
        assert "<svg" in shown
        assert words in shown
    assert "hidden states: (57, 128) not read: 1" in printed(cells["numbers"])
    said = [output for cell in cells.values() for output in cell.get("outputs", [])]
    assert [each for each in said if each.output_type == "error" or each.get("name") == "stderr"] == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_stronger_noise_changes_more_and_the_control_is_the_model_as_it_is(run):
    cells, folder = run
    rows = [line.split() for line in cells["sweep-numbers"].outputs[0].data["text/plain"].splitlines()[1:]]
    assert [float(row[1]) for row in rows] == [0.03, 0.1, 0.3, 1, 3]
    divergences = [float(row[2]) for row in rows]
    assert divergences[0] > 0
    assert divergences == sorted(divergences)
    clean, steered = (
        ast.literal_eval(line.split("capitals ")[1]) for line in printed(cells["steer"]).splitlines()
    )
    ids = load_checkpoint(folder / "generation-model").generate(
        torch.tensor([list(PROMPTS[0].encode())]), 48, 0.8, seed=1
    )
    assert clean == text_of(ids[0, len(PROMPTS[0]) :]) != steered
