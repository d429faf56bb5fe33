"""Every traced tensor has a key of its own, however often a layer is called or a pass is backpropagated."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from tracing_fixtures import TENSOR_KEY

import megalens
from megalens import Tile, trace

BOTH = {"HiddenStates": {"compressor": Tile(1), "passes": ["forward", "backward"]}}


def seen_by(model: nn.Module, layer: nn.Module) -> tuple[list[float], list[tuple[int, float]]]:
    """What a layer gives, in order, and the gradients there with the number of their call."""
    given: list[float] = []
    back: list[tuple[int, float]] = []

    def hook(module: nn.Module, args: Any, output: Tensor) -> None:
        if not output.requires_grad or torch._C._current_graph_task_id() != -1:
            return
        call = len(given)
        given.append(float(output.detach().mean()))
        output.register_hook(lambda gradient: back.append((call, float(gradient.mean()))))

    layer.register_forward_hook(hook)
    return given, back


def rows_by_key(small_hub, count: int) -> dict[tuple, float]:
    rows = small_hub.next_rows(count)
    assert small_hub.rows.empty()
    found = {tuple(row[name] for name in TENSOR_KEY): row["mean"] for row in rows}
    assert len(found) == len(rows)
    return found


def in_pass(rows: dict[tuple, float], side: str, layer: int = 1) -> dict[int, float]:
    """Means by call."""
    return {key[-1]: mean for key, mean in rows.items() if (key[3], key[5]) == (side, layer)}


class Twice(nn.Module):
    """A stack of layers that is gone through several times."""

    def __init__(self, body: nn.Module, times: int) -> None:
        super().__init__()
        self.body, self.blocks, self.times = body, body.blocks, times

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.body.embedding(ids)
        for _ in range(self.times):
            for block in self.blocks:
                hidden = block(hidden)
        return self.body.head(hidden)


def test_a_layer_that_is_called_several_times_has_a_row_of_each_call(gpt, ids, small_hub) -> None:
    model = Twice(gpt, 3)
    twin = copy.deepcopy(model)
    with trace(model, hub=small_hub.address, flags=BOTH, layers="1") as tracer:
        for _ in range(2):
            with tracer.step():
                model(ids).square().mean().backward()
    given, back = seen_by(twin, twin.blocks[1])
    twin(ids).square().mean().backward()
    rows = rows_by_key(small_hub, 12)
    for step in (1, 2):
        here = {key: mean for key, mean in rows.items() if key[0] == step}
        assert in_pass(here, "forward") == pytest.approx(dict(enumerate(given)), rel=1e-5)
        assert in_pass(here, "backward") == pytest.approx(dict(back), rel=1e-5, abs=1e-10)


def test_gradients_of_another_backward_pass_are_behind_all_calls(gpt, ids, small_hub) -> None:
    model = Twice(gpt, 2)
    twin = copy.deepcopy(model)
    with trace(model, hub=small_hub.address, flags=BOTH, layers="1") as tracer, tracer.step():
        out = model(ids)
        out.square().mean().backward(retain_graph=True)
        out.mean().backward()
    _, back = seen_by(twin, twin.blocks[1])
    out = twin(ids)
    out.square().mean().backward(retain_graph=True)
    out.mean().backward()
    # Of each pass the last call comes first.
    assert [call for call, _ in back] == [1, 0, 1, 0]
    expected = {call + at // 2 * 2: mean for at, (call, mean) in enumerate(back)}
    rows = rows_by_key(small_hub, 6)
    assert in_pass(rows, "backward") == pytest.approx(expected, rel=1e-5, abs=1e-10)


def test_a_gradient_penalty_has_rows_of_both_passes(gpt, ids, small_hub) -> None:
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        trace(gpt, hub=small_hub.address, flags=BOTH, layers="1") as tracer,
        tracer.step(),
    ):
        loss = gpt.loss(ids)
        (gradient,) = torch.autograd.grad(loss, gpt.blocks[0].mlp.fc1.weight, create_graph=True)
        (loss + gradient.square().sum()).backward()
    rows = rows_by_key(small_hub, 3)
    assert sorted(in_pass(rows, "backward")) == [0, 1]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_calls_keep_their_numbers(gpt, ids, small_hub, reentrant) -> None:
    class Recomputed(Twice):
        def forward(self, ids: Tensor) -> Tensor:
            hidden = self.body.embedding(ids)
            for _ in range(self.times):
                for block in self.blocks:
                    hidden = torch.utils.checkpoint.checkpoint(block, hidden, use_reentrant=reentrant)
            return self.body.head(hidden)

    model = Recomputed(gpt, 2)
    twin = Twice(copy.deepcopy(gpt), 2)
    with trace(model, hub=small_hub.address, flags=BOTH, layers="1") as tracer, tracer.step():
        model(ids).square().mean().backward()
    given, back = seen_by(twin, twin.blocks[1])
    twin(ids).square().mean().backward()
    rows = rows_by_key(small_hub, 4)
    assert in_pass(rows, "forward") == pytest.approx(dict(enumerate(given)), rel=1e-5)
    assert in_pass(rows, "backward") == pytest.approx(dict(back), rel=1e-5, abs=1e-10)


def test_one_module_in_two_layers_has_rows_of_both(gpt, ids, small_hub) -> None:
    gpt.blocks[1] = gpt.blocks[0]
    with trace(gpt, hub=small_hub.address, flags=BOTH) as tracer, tracer.step():
        gpt.loss(ids).backward()
    rows = small_hub.next_rows(1)
    while not small_hub.rows.empty():
        rows += small_hub.next_rows(1)
    keys = [tuple(row[name] for name in TENSOR_KEY) for row in rows]
    assert len(set(keys)) == len(keys)


def test_a_phase_that_comes_twice_after_one_step_goes_on_counting(gpt, ids, small_hub) -> None:
    flags = {"HiddenStates": {"compressor": Tile(1), "phases": ["eval"]}}
    with trace(gpt, hub=small_hub.address, flags=flags) as tracer:
        with tracer.step():
            gpt.loss(ids).backward()
        for _ in range(2):
            with tracer.phase("eval"), torch.no_grad():
                gpt(ids)
    assert sorted(in_pass(rows_by_key(small_hub, 4), "forward")) == [0, 1]


def test_a_call_of_a_recorded_tensor_is_asked_for_by_its_number(gpt, ids, own_hub, tmp_path) -> None:
    model = Twice(gpt, 2)
    with trace(model, record=tmp_path, flags={"HiddenStates": Tile(1)}, layers="1") as tracer:
        assert tracer.connected(20)
        with tracer.step():
            model(ids)
    twin = copy.deepcopy(model)
    given: list[Tensor] = []
    twin.blocks[1].register_forward_hook(lambda module, args, output: given.append(output.detach()))
    twin(ids)
    (folder,) = [each.parent for each in tmp_path.glob("*/run.json")]
    run = megalens.open(folder)
    for call in (0, 1):
        found = run.array("HiddenStates", 1, call=call)
        assert torch.allclose(torch.from_numpy(found), given[call][:1].mean(-1, keepdim=True), atol=1e-5)
    assert (run.array("HiddenStates", 1) == run.array("HiddenStates", 1, call=0)).all()
