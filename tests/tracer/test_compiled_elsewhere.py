"""Probes and what else is made of a model: exported programs, code that Inductor makes, and what it keeps on disk for other processes."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from compiling import FEW, IDS, hidden_of, rows_of, small, train
from onnx.reference import ReferenceEvaluator
from torch import nn
from torch._inductor import cpu_vec_isa

from megalens import NoOp
from megalens.adapters import Adapter
from megalens.tracer.graph_probes import end_of
from tests.tracer.compiled_work import X
from tests.tracer.compiled_work import model as made_in_work

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("compiler")]
compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="Inductor needs a C++ compiler"
)
FLAGS = {"HiddenStates": {"compressor": NoOp(), "passes": ["forward", "backward"]}}
LOADED = """
import sys
sys.modules["megalens"] = None
import torch
program = torch.export.load(sys.argv[1])
print(program.module()(torch.tensor(eval(sys.argv[2]))).sum().item())
"""


def test_an_exported_program_has_no_probes_and_runs_where_there_is_no_megalens(traced, tmp_path) -> None:
    model = small(layers=1)
    tracer = traced(model, compiled=True, adapter=FEW, flags=FLAGS, allow=["perturb"])
    run = torch.compile(model, backend="aot_eager")
    run(IDS)
    assert tracer.graph.compiled == (1, 0)
    strict, exported = (torch.export.export(model, (IDS,), strict=each) for each in (True, False))
    decomposed = exported.run_decompositions({})
    for program in (strict, exported, decomposed):
        assert "megalens" not in program.graph_module.code
        torch.testing.assert_close(program.module()(IDS), model(IDS))
    torch.export.save(decomposed, tmp_path / "program.pt2")
    done = subprocess.run(
        [sys.executable, "-c", LOADED, tmp_path / "program.pt2", str(IDS.tolist())],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == pytest.approx(model(IDS).sum().item(), rel=1e-4, abs=1e-4)
    # The compiled code has its probes still.
    told: list[torch.Tensor] = []
    end_of(model.blocks[0], "output").watch(told.append)
    run(IDS)
    assert len(told) == 1


def test_an_onnx_program_has_no_probes(traced) -> None:
    model = small(layers=1)
    traced(model, compiled=True, adapter=FEW, flags=FLAGS)
    program = torch.onnx.export(model, (IDS,), dynamo=True).model_proto
    assert not [node for node in program.graph.node if node.domain or node.op_type in ("seen", "changed")]
    (given,) = program.graph.input
    (found,) = ReferenceEvaluator(program).run(None, {given.name: IDS.numpy()})
    np.testing.assert_allclose(found, model(IDS).detach().numpy(), rtol=1e-4, atol=1e-4)


class Short(nn.Module):
    """A model of few kernels: a compiler of C++ takes a second for each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(30, 8).requires_grad_(False)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU())])
        self.head = nn.Linear(8, 30)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks[0](self.embedding(ids)))


@compiler
def test_code_that_inductor_makes_tells_what_plain_hooks_tell(traced, small_hub, monkeypatch) -> None:
    # Code without vectors is made and compiled in a fraction of the time.
    monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", lambda: [])
    plain, model = Short(), Short()
    gradients: list[torch.Tensor] = []
    for block in plain.blocks:
        block.register_full_backward_hook(lambda module, took, gave: gradients.append(gave[0].clone()))
    (hidden,) = hidden_of(Short())
    layers = Adapter(layer="blocks.{i}")
    losses, _ = train(plain, plain, traced(plain, adapter=layers, hub=None), steps=1, micro_batches=1)
    run = torch.compile(model, fullgraph=True)
    tracer = traced(run, adapter=layers, flags=FLAGS, samples="all")
    found, _ = train(run, model, tracer, steps=1, micro_batches=1)
    assert found == pytest.approx(losses, rel=1e-5)
    rows = rows_of(small_hub, tracer)
    for side, wanted in (("forward", hidden), ("backward", gradients[0])):
        values = torch.tensor(rows[1, 0, side, "HiddenStates", "", 0]["values"])
        torch.testing.assert_close(values, wanted.flatten(), rtol=1e-4, atol=1e-6)


def test_code_on_disk_of_runs_with_other_probes_is_not_taken_for_this_ones(tmp_path) -> None:
    body = made_in_work()
    seen: dict[str, list] = {}
    gradients: dict[str, list] = {}
    for at in (0, 2):

        def after(module: nn.Module, given, output, at=str(at)) -> None:
            seen[at] = output.tolist()
            output.register_hook(lambda gradient: gradients.update({at: gradient.tolist()}))

        body[at].register_forward_hook(after)
    body(X).square().sum().backward()
    done = subprocess.run(
        [sys.executable, "-m", "tests.tracer.compiled_work", "[[], [0, 2], []]"],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    first, probed, again = map(json.loads, done.stdout.splitlines())
    # Code with such operators torch keeps for no other process.
    assert first["hits"] == probed["hits"] == 0
    for told, wanted in ((probed["seen"], seen), (probed["gradients"], gradients)):
        assert sorted(told) == ["0", "2"]
        for at, values in told.items():
            torch.testing.assert_close(torch.tensor(values), torch.tensor(wanted[at]))
    assert again["hits"] > 0
    assert again["seen"] == {}
