"""Why a probe did not fire: what the status says of each."""

import pytest
import torch
from compiling import FEW, IDS, hidden_of, rows_of, small, train, whole
from transformers import LlamaConfig, LlamaForCausalLM

from megalens import NoOp
from megalens.runs.status import RunStatus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("compiler")]
NOT_CALLED = "its module was not called in this step"


def silent(small_hub, tracer, step: int) -> dict[str, list[str]]:
    """Return what the newest status says: reasons, each with the names."""
    tracer.close()
    status = small_hub.next("status")
    while status["step"] < step:
        status = small_hub.next("status")
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
    assert tracer.connected(20)
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
    model.set_attn_implementation("sdpa")
    with tracer.step():
        run(input_ids=IDS)
    reasons = silent(small_hub, tracer, 1)
    expected = (
        "compiled code has no tensor there"
        if compiled
        else "it gave no tensor: the attention returns no probabilities"
    )
    assert [(expected in reason, len(names)) for reason, names in reasons.items()] == [(True, 1)]


def test_a_model_that_is_never_called_is_named(traced, small_hub) -> None:
    model = small(layers=1)
    tracer = traced(whole(model), adapter=FEW, flags={"HiddenStates": NoOp()})
    with tracer.step():
        small(layers=1)(IDS)
    (reason,) = silent(small_hub, tracer, 1)
    assert "its module was not called, or its code was compiled without probes" in reason
