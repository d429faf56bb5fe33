"""Why a probe did not fire: what the status says of each."""

import pytest
import torch
from compiling import FEW, IDS, hidden_of, rows_of, small, train, whole
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM

from megalens import NoOp
from megalens.adapters import Adapter
from megalens.runs.status import RunStatus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("compiler")]
NOT_CALLED = "its module was not called in this step, or only its forward method, which runs no hooks"


def silent(small_hub, tracer, step: int) -> dict[str, list[str]]:
    """Return what the newest status says: reasons, each with the names."""
    tracer.close()
    status = small_hub.next("status", lambda m: m["step"] >= step)
    probes = status["probes"]
    reasons = {each["reason"]: each["missing"] for each in probes.get("reasons", ())}
    assert sorted(name for names in reasons.values() for name in names) == sorted(probes["missing"])
    assert probes["fired"] == probes["expected"] - len(probes["missing"])
    for reason, names in reasons.items():
        assert f"not {', '.join(names[:5])}: {reason}" in repr(RunStatus(status))
    return reasons


@pytest.mark.parametrize("way", [whole, lambda model: model])
def test_a_module_that_was_not_called_is_named(traced, small_hub, way) -> None:
    model = small(layers=1)
    run = way(model)
    tracer = traced(run, adapter=FEW, flags={"HiddenStates": NoOp()})
    for calls in (1, 0):
        with tracer.step():
            for _ in range(calls):
                run(IDS)
    (reason,) = silent(small_hub, tracer, 2)
    assert reason == NOT_CALLED


@pytest.mark.parametrize("known", [True, False])
def test_a_model_that_is_compiled_after_tracing_began_has_probes_where_that_was_said(
    traced, small_hub, known
) -> None:
    model = small(layers=1)
    tracer = traced(model, adapter=FEW, flags={"HiddenStates": NoOp()}, samples="all", compiled=known or None)
    run = whole(model)
    train(run, model, tracer, steps=1, micro_batches=1)
    if known:
        rows = rows_of(small_hub, tracer)
        for (*_, layer), row in rows.items():
            torch.testing.assert_close(
                torch.tensor(row["values"]), hidden_of(small(layers=1))[layer].flatten()
            )
        assert len(rows) == 1
    else:
        (reason,) = silent(small_hub, tracer, 1)
        assert "tracing began without knowing: megalens.trace(…, compiled=True)" in reason


def test_a_gradient_that_did_not_come_is_told_from_a_module_that_was_not_called(traced, small_hub) -> None:
    model = small(layers=1)
    run = whole(model)
    tracer = traced(run, adapter=FEW, flags={"HiddenStates": {"compressor": NoOp(), "passes": ["backward"]}})
    with tracer.step():
        run(IDS)
    assert silent(small_hub, tracer, 1) == {
        "no gradient came back to it in this step": ["Hidden states, layer 0"]
    }


@pytest.mark.parametrize("compiled", [True, False])
def test_a_module_that_gives_no_tensor_is_named(traced, small_hub, compiled) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "vocab_size": 60}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, attn_implementation="eager"))
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
    tracer = traced(run, flags={"RawAttentionScore_mat_mul": NoOp(), "HiddenStates": NoOp()})
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        with tracer.step():
            run(input_ids=IDS)
    reasons = silent(small_hub, tracer, 2)
    expected = (
        "compiled code has no tensor there"
        if compiled
        else "it gave no tensor: the attention returns no probabilities"
    )
    assert [(expected in reason, len(names)) for reason, names in reasons.items()] == [(True, 1)]


class Attending(nn.Module):
    """Blocks with the attention of torch, which reads the weight of its out_proj without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, x, x)[0]
        return x


def no_gradients(model, ids) -> None:
    with torch.no_grad():
        model(ids)


def evaluated(model, ids) -> None:
    model.eval()
    model(ids)


NO_TRAINING = "its module was called in passes that are no training, or outside of the model's own passes"
OUTSIDE = (
    "its module was called outside of a forward pass of the model: model.forward(…), or a part of the model, was "
    "called in place of model(…)"
)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (no_gradients, NO_TRAINING),
        (evaluated, None),
        (lambda model, ids: model.forward(ids), OUTSIDE),
        (lambda model, ids: model.blocks[0](model.embedding(ids)), None),
        (lambda model, ids: None, NOT_CALLED),
    ],
)
def test_what_is_said_of_a_silent_probe_is_so(
    gpt, ids, traced, small_hub, monkeypatch, call, expected
) -> None:
    monkeypatch.setattr("megalens.tracer.tensors.retained.compiles", lambda: False)
    tracer = traced(gpt, flags={"MLP1_mat_mul": NoOp()})
    with tracer.step():
        call(gpt, ids)
    reasons = silent(small_hub, tracer, 1)
    names = ["MLP1 output, layer 0", "MLP1 output, layer 1"]
    if call is evaluated:
        # What is not known to be no training is traced, and given up once no backward pass comes.
        assert reasons == {}
        return
    if expected is None:
        assert reasons == {OUTSIDE: names[:1], NOT_CALLED: names[1:]}
    else:
        assert reasons == {expected: names}
    said = [text for text in tracer.status()["warnings"] if text.startswith("Step 1 has no rows of ")]
    assert said == [
        f"Step 1 has no rows of {'; '.join(missing)}: {reason}." for reason, missing in reasons.items()
    ]


def test_a_silent_probe_is_said_once_and_each_new_one(gpt, ids, traced, small_hub, monkeypatch) -> None:
    monkeypatch.setattr("megalens.tracer.tensors.retained.compiles", lambda: False)
    tracer = traced(gpt, flags={"MLP1_mat_mul": NoOp()})
    mlp = gpt.blocks[1].mlp
    plain = mlp.forward
    for step in range(1, 5):
        # As of stochastic depth: a layer that is left out in some steps.
        mlp.forward = (lambda x: x) if step in (2, 3) else plain
        with tracer.step():
            if step < 4:
                gpt(ids)
    tracer.close()
    said = [text for text in tracer.status()["warnings"] if "has no rows of" in text]
    assert said == [
        f"Step 2 has no rows of MLP1 output, layer 1: {NOT_CALLED}.",
        f"Step 4 has no rows of MLP1 output, layer 0: {NOT_CALLED}.",
    ]


def test_many_silent_probes_are_named_by_their_flags(gpt, ids, traced, monkeypatch) -> None:
    monkeypatch.setattr("megalens.tracer.tensors.retained.compiles", lambda: False)
    tracer = traced(gpt, flags=dict.fromkeys(("MLP1_mat_mul", "MLP2_mat_mul", "InputTokens"), NoOp()))
    with tracer.step():
        gpt.forward(ids)
    tracer.close()
    (said,) = [text for text in tracer.status()["warnings"] if "has no rows of" in text]
    names = "MLP1 output, layers 0-1; MLP2 output, layers 0-1; Input tokens, embedding ids; Input tokens, embedding"
    assert said.startswith(f"Step 1 has no rows of {names} positions: its module was called")


def test_why_a_probe_failed_in_one_step_is_not_said_of_the_next(
    gpt, ids, traced, small_hub, monkeypatch
) -> None:
    monkeypatch.setattr("megalens.tracer.tensors.retained.compiles", lambda: False)
    tracer = traced(gpt, flags={"MLP1_mat_mul": NoOp()}, layers="1")
    with tracer.step():
        gpt(ids)
    mlp = gpt.blocks[1].mlp
    whole, mlp.forward = mlp.fc1.forward, lambda x: (mlp.fc1(x), x)[1]
    for forward in (lambda x: None, whole):
        mlp.fc1.forward = forward
        with tracer.step():
            gpt(ids)
    mlp.forward = lambda x: x
    with tracer.step():
        gpt(ids)
    assert silent(small_hub, tracer, 4) == {NOT_CALLED: ["MLP1 output, layer 1"]}
    assert tracer.status()["warnings"][0] == "MLP1 output, layer 1 gave no tensor."


def test_recomputing_is_no_call_outside_of_a_pass(gpt, ids, traced, small_hub, monkeypatch) -> None:
    monkeypatch.setattr("megalens.tracer.tensors.retained.compiles", lambda: False)
    tracer = traced(gpt, flags={"MLP1_mat_mul": {"compressor": NoOp(), "passes": ["backward"]}}, layers="1")
    for block in gpt.blocks:
        plain = block.forward
        block.forward = lambda x, plain=plain: checkpoint(plain, x, use_reentrant=False)
    gpt.requires_grad_(False)
    gpt.head.requires_grad_(True)
    with tracer.step():
        gpt.loss(ids).backward()
    assert silent(small_hub, tracer, 1) == {
        "no gradient came back to it in this step": ["MLP1 output, layer 1"]
    }


def test_the_projection_that_torch_reads_without_a_call_is_named(traced, small_hub) -> None:
    model = Attending()
    adapter = Adapter(layer="blocks.{i}", fc1="out_proj")
    tracer = traced(model, adapter=adapter, flags={"HiddenStates": NoOp(), "MLP1_mat_mul": NoOp()})
    with tracer.step():
        model(torch.randn(2, 3, 8))
    (reason,) = silent(small_hub, tracer, 1)
    assert reason == "nn.MultiheadAttention reads the weight of its out_proj and does not call it"


def test_a_model_that_is_never_called_is_named(traced, small_hub) -> None:
    model = small(layers=1)
    tracer = traced(whole(model), adapter=FEW, flags={"HiddenStates": NoOp()})
    with tracer.step():
        small(layers=1)(IDS)
    (reason,) = silent(small_hub, tracer, 1)
    assert "its module was not called, or its code was compiled without probes" in reason


@pytest.mark.parametrize("inside", [True, False])
def test_gradients_that_are_asked_for_and_do_not_come_are_said_once(gpt, ids, traced, inside) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": {"compressor": NoOp(), "passes": ["forward", "backward"]}})
    for _ in range(2):
        with tracer.step():
            loss = gpt.loss(ids)
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
    tracer.close()
    said = [text for text in tracer.status()["warnings"] if "gradients" in text]
    expected = "Step 1 has no gradients of MLP1 output, which are asked for: none was seen to come back inside of the step."
    assert said == ([] if inside else [expected])


def test_a_layer_that_is_frozen_is_no_missing_gradient(gpt, ids, traced) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": {"compressor": NoOp(), "passes": ["forward", "backward"]}})
    gpt.embedding.requires_grad_(False)
    gpt.positions.requires_grad_(False)
    gpt.blocks[0].requires_grad_(False)
    with tracer.step():
        gpt.loss(ids).backward()
    tracer.close()
    assert tracer.status()["warnings"] == []
