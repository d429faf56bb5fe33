"""Directions from contrasted prompts: the difference of means, over the positions that were chosen."""

import pytest
import torch
from safetensors import safe_open

from megalens.demo import GPT, ByteTokenizer, GPTConfig
from megalens.instruments.generation.contrast import contrast_vectors, save_vectors
from megalens.tracer.errors import TracerError
from megalens.tracer.vectors import load_vectors

TOKENIZER = ByteTokenizer()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(GPTConfig(layers=3, hidden=32, heads=2, sequence=32))


def hidden(model, ids):
    """Hidden states after each block, [layers, S, H], without any hook."""
    x = model.embedding(ids) + model.positions(torch.arange(len(ids)))
    states = []
    for block in model.blocks:
        x = block(x[None])[0]
        states.append(x)
    return torch.stack(states).detach().double()


LOUD = ["HELLO THERE", "LISTEN TO ME", "HELLO WORLD"]
CALM = ["hello there", "good morning to you"]


@pytest.mark.parametrize(
    ("positions", "chosen"),
    [
        ("all", lambda n: range(n)),
        ("last", lambda n: [n - 1]),
        (3, lambda n: [3]),
        (slice(-4, None), lambda n: range(n - 4, n)),
        ([0, 2, -1], lambda n: [0, 2, n - 1]),
        (lambda ids: ids == ord("O"), None),
    ],
)
def test_each_prompt_counts_alike_over_its_chosen_positions(model, positions, chosen):
    loud, calm = LOUD, CALM
    if chosen is None:
        calm = ["NO"]
    vectors = contrast_vectors(model, loud, calm, positions=positions, tokenizer=TOKENIZER, batch=2)

    def mean(texts):
        means = []
        for text in texts:
            ids = torch.tensor(TOKENIZER.encode(text))
            where = list(chosen(len(ids))) if chosen else [i for i, c in enumerate(text) if c == "O"]
            means.append(hidden(model, ids)[:, where].mean(1))
        return torch.stack(means).mean(0)

    assert vectors.shape == (3, 32)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, (mean(loud) - mean(calm)).float(), rtol=1e-4, atol=1e-6)


def test_ids_and_tensors_are_prompts_too_and_the_model_is_left_as_it_was(model):
    model.train()
    model.blocks[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    text = contrast_vectors(model, ["AB"], ["ab"], tokenizer=TOKENIZER)
    ids = contrast_vectors(model, [[65, 66]], [torch.tensor([97, 98])])
    assert torch.equal(text, ids)
    assert model.training
    assert not model.blocks[1].training
    assert not any(module._forward_hooks for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("positive", "options", "said"),
    [
        ([], {"tokenizer": TOKENIZER}, "At least one positive prompt"),
        (["A"], {}, "tokenizer"),
        ([""], {"tokenizer": TOKENIZER}, "Prompt 0 of positive is empty"),
        ([object()], {}, "neither text nor ids"),
        (["A"], {"tokenizer": TOKENIZER, "positions": 7}, "has no positions 7"),
        (["A"], {"tokenizer": TOKENIZER, "positions": "first"}, "has no positions 'first'"),
        (["A"], {"tokenizer": TOKENIZER, "positions": slice(5, None)}, "chooses nothing"),
        (["A"], {"tokenizer": TOKENIZER, "batch": 0}, "batch must be a whole number"),
    ],
)
def test_what_cannot_be_contrasted_is_said(model, positive, options, said):
    with pytest.raises(TracerError, match=said):
        contrast_vectors(model, positive, [[97, 98]], **options)
    assert not any(module._forward_hooks for module in model.modules())


def test_states_that_are_not_finite_are_said(model):
    with torch.no_grad():
        model.embedding.weight[65] = torch.nan
    with pytest.raises(TracerError, match="not finite"):
        contrast_vectors(model, ["A"], ["a"], tokenizer=TOKENIZER)


def test_saved_vectors_are_what_a_projection_loads(model, tmp_path):
    vectors = contrast_vectors(model, LOUD, CALM, tokenizer=TOKENIZER)
    path = save_vectors(tmp_path / "loud.safetensors", vectors, {"trait": "loud", "prompts": 5})
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"made_by": "megalens", "trait": "loud", "prompts": "5"}
    loaded = load_vectors("loud.safetensors", [tmp_path], layers=3, features=[32])
    torch.testing.assert_close(loaded[:, 0], torch.nn.functional.normalize(vectors, dim=-1))
    for name, tensor in (("loud.pt", vectors), ("loud.safetensors", vectors[0])):
        with pytest.raises(TracerError):
            save_vectors(tmp_path / name, tensor)
