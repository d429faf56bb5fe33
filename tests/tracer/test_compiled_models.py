"""Under torch.compile no hook fires: it must be said, and the compiled graph must stay whole."""

import pytest
import torch

from megalens import Tile
from megalens.demo.model import GPT, GPTConfig


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_compiled_model_trains_as_before_and_its_probes_are_reported_missing(traced, small_hub) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=30, layers=1, hidden=8, heads=2, sequence=8))
    ids = torch.randint(0, 30, (2, 6))
    # Whole graph or nothing, without a C++ compiler.
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expected = model(ids)
    tracer = traced(compiled, flags={"MLP1_mat_mul": Tile(2), "MLP2_mat_mul": Tile(2)})
    for _ in range(2):
        with tracer.step():
            output = compiled(ids)
    torch.testing.assert_close(output, expected)
    tracer.close()
    status = small_hub.next("status")
    while status["step"] < 2:
        status = small_hub.next("status")
    assert status["probes"]["fired"] == 0
    assert status["probes"]["missing"] == ["MLP1 output, layer 0", "MLP2 output, layer 0"]
    assert "compiled model" in status["warnings"][0]
