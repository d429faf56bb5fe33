"""Traced values of many models of Hugging Face against plain hooks, in every way in which they are trained."""

import logging

import pytest
import torch
import transformers

from megalens.adapters import find_adapter, find_points
from tests.adapters.model_zoo import EAGER_ONLY, GROUPED, LANGUAGE, MODELS, SEEING, WAYS, tiny_model
from tests.adapters.traced_and_hooked import IDS, check
from tests.adapters.watched import traced, watched
from tests.corpus.family_models import small_config


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_traced_is_what_plain_hooks_see(name: str) -> None:
    model = tiny_model(name, "eager").eval()
    check(MODELS[name][2], model, model, "eager", 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attention"), WAYS)
def test_it_is_the_same_over_micro_batches_and_with_checkpointing(name: str, attention: str) -> None:
    model = tiny_model(name, attention).train()
    if attention == "eager":
        check(MODELS[name][2], model, model, attention, 2, gradients=True)
    # Each kind once, where a model computes attention in two ways.
    for reentrant in (False, True) if name in EAGER_ONLY else (attention == "eager",):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        check(MODELS[name][2], model, model, attention, 2, gradients=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEING)
def test_of_a_model_that_sees_the_language_part_is_traced(name: str) -> None:
    model = SEEING[name]().train()
    check(LANGUAGE, model, model, "eager", 2, gradients=True)
    sizes = find_adapter(model).points(model).model
    assert [sizes[each] for each in ("layers", "hidden", "heads", "kv_heads", "vocabulary")] == [
        2,
        32,
        4,
        2,
        64,
    ]


@pytest.mark.slow
def test_a_picture_among_the_words_is_no_row_of_its_own() -> None:
    model = SEEING["llava"]().eval()
    seen: list[torch.Tensor] = []
    model.model.language_model.layers[1].register_forward_hook(
        lambda module, args, output: seen.append(output)
    )
    ids = torch.tensor([[7, 5, 5, 5, 5, 8, 9]])
    values = traced(find_points(model), lambda: model(input_ids=ids, pixel_values=torch.ones(1, 3, 8, 8)))
    assert torch.equal(values["HiddenStates", 1, ""], seen[0])
    assert values["InputTokens", -1, "ids"].tolist() == ids.tolist()
    assert {layer for _, layer, _ in values} == {-1, 0, 1}


def test_a_bare_model_and_sizes_are_found() -> None:
    model = tiny_model("qwen3", "eager").model
    points = find_points(model)
    sizes = {key: points.model[key] for key in ("layers", "hidden", "heads", "kv_heads", "vocabulary")}
    assert sizes == {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "vocabulary": 64}
    assert points.flags["QKV_mat_mul"].features == 32 + 16 + 16
    assert points.flags["QKV_mat_mul"].parts == ("q", "k", "v")
    assert points.flags["MLP1_mat_mul"].parts == ("gate", "up")
    values = traced(points, lambda: model(input_ids=IDS[0]))
    assert values["InputTokens", -1, "ids"].tolist() == IDS[0].tolist()


def test_queries_that_come_with_a_gate_are_told_from_it() -> None:
    config = small_config("qwen3_next", **GROUPED, layer_types=["full_attention"] * 2)
    model = transformers.Qwen3NextForCausalLM(config)
    points, _ = watched(model, lambda: model(IDS[0], use_cache=False))
    queries = points.flags["QKV_mat_mul"].layers[1][0]
    width = model.model.layers[1].self_attn.q_proj.out_features
    # Of each head its queries, then its gate.
    (part,) = queries.cut(torch.arange(width).view(1, 1, -1))
    assert part.flatten().tolist() == torch.arange(width).view(4, 2, -1)[:, 0].flatten().tolist()
    assert "gated" in points.flags["ContextLayer_mat_mul"].evidence[1]
