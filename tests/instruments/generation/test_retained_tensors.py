"""Small tensors of several passes are handled together: their rows are those that each has by itself."""

import time

import numpy as np
import pytest
import torch
from writers import byte_level, writer

import megalens
from megalens.tracer.sending.producer import Producer
from megalens.tracer.tensors import capture, retained

FLAGS = {
    "QKV_mat_mul": {"compressor": {"name": "Tile", "params": {"tiles": 4, "reduction": "max"}}},
    "MLP1_mat_mul": {"compressor": {"name": "Tile", "params": {"tiles": 24, "reduction": "mean"}}},
    "MLP2_mat_mul": {"compressor": {"name": "NoOp", "params": {}}, "samples": 1},
    "HiddenStates": {},
}
KEY = ["step", "layer", "flag", "part"]


def written(spoil: bool = False, family: str = "GPT2"):
    torch.manual_seed(1)
    model = writer(family).module
    if spoil:
        mlp = model.transformer.h[1].mlp
        mlp.c_fc.register_forward_hook(
            lambda module, given, output: output.index_fill(2, torch.tensor([5]), torch.nan)
        )
        # The text goes on as if nothing had been.
        mlp.act.register_forward_pre_hook(lambda module, given: (given[0].nan_to_num(),))
    with megalens.serve(model, byte_level(), flags=FLAGS) as lab:
        text = lab.generate(["The cat sat", "on"], 9, samples=2, attention=True, seed=3)
        table = lab.tensors().sort_by([(name, "ascending") for name in KEY])
        status = lab.tracer.status()
    return text.text, table, status


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors were handled together, each time."""
    counts: list[int] = []
    before = retained.RetainedTensors.take

    def take(self):
        found = before(self)
        counts.append(len(found))
        return found

    monkeypatch.setattr(retained.RetainedTensors, "take", take)
    return counts


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
@pytest.mark.parametrize("family", ["GPT2", "Llama"])
def test_rows_of_several_passes_are_those_of_each_pass_alone(monkeypatch, gathered, family) -> None:
    together = written(family=family)
    assert max(gathered) >= 20
    gathered.clear()
    monkeypatch.setattr(capture, "RETAINED_BYTES", -1)
    alone = written(family=family)
    assert not any(gathered)
    assert together[0] == alone[0]
    assert together[1].num_rows == alone[1].num_rows > 100
    for name in together[1].column_names:
        a, b = (table[name].combine_chunks() for table in (together[1], alone[1]))
        if name == "values" or name in ("mean", "m2", "m3", "m4"):
            flat = [np.asarray(each.flatten() if name == "values" else each) for each in (a, b)]
            np.testing.assert_allclose(*flat, rtol=1e-5, atol=1e-6)
        elif name != "compression_error":
            assert a.equals(b) or a.to_pylist() == b.to_pylist(), name


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
def test_the_end_of_a_text_comes_after_all_its_tensors_also_where_the_sending_thread_is_late(
    monkeypatch,
) -> None:
    monkeypatch.setattr(capture, "RETAINED_BYTES", -1)
    sent: list[str] = []
    do_all, send = Producer._do_all, Producer.send

    def late(self) -> None:
        # What several passes gave waits together.
        time.sleep(0.2)
        do_all(self)

    def noted(self, stream, rows, step):
        sent.append(stream)
        return send(self, stream, rows, step)

    monkeypatch.setattr(Producer, "_do_all", late)
    monkeypatch.setattr(Producer, "send", noted)
    with megalens.serve(writer("GPT2").module, byte_level(), flags=FLAGS) as lab:
        lab.generate(["The cat sat"], 9)
        rows = lab.tensors().num_rows
    assert sent.index("tensors") > 0
    assert sent[-1] == "generations"
    # Of each layer two flags with their parts, the hidden states, of each pass.
    assert rows == 9 * 2 * (3 + 1 + 1 + 1)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_folder")
def test_values_that_are_not_finite_are_counted_and_the_first_is_named(gathered) -> None:
    _, table, status = written(spoil=True)
    assert max(gathered) >= 20
    counted = np.asarray(table["nan_count"])[np.asarray(table["flag"]) == "MLP1_mat_mul"]
    assert status["nonfinite"]["count"] >= counted.sum() > 0
    first = status["nonfinite"]["first"]
    assert (first["layer"], first["flag"]) == (1, "MLP1_mat_mul")
