"""A lab knows its model by one pass over a few tokens, of which nothing stays."""

import pytest
import torch
from torch import nn

from megalens.instruments.generation.hidden import watched_points

transformers = pytest.importorskip("transformers")


@pytest.fixture
def neox():
    torch.manual_seed(0)
    config = transformers.GPTNeoXConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=32
    )
    return transformers.AutoModelForCausalLM.from_config(config).train()


def test_queries_of_a_layout_that_no_name_tells_are_those_of_each_head(neox) -> None:
    (source,) = watched_points(neox).flags["QKV_mat_mul"].layers[0]
    features = torch.arange(48).reshape(1, 1, 48)
    # A head has its query, key and value side by side.
    expected = features.reshape(2, 3, 8).transpose(0, 1).reshape(3, 16)
    assert source.parts == ("q", "k", "v")
    assert torch.equal(torch.stack([part[0, 0] for part in source.cut(features)]), expected)


def test_the_pass_leaves_the_model_and_random_numbers_as_they_were(neox) -> None:
    before = {name: value.clone() for name, value in neox.state_dict().items()}
    state = torch.get_rng_state()
    watched_points(neox)
    assert all(module.training for module in neox.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in neox.modules())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in neox.state_dict().items())


class Picky(nn.Module):
    """Takes no tokens alone."""

    def __init__(self, body) -> None:
        super().__init__()
        self.body = body

    def forward(self, *, pixels):
        return self.body(pixels)


def test_where_no_pass_can_be_made_parts_of_one_tensor_are_not_guessed(neox) -> None:
    points = watched_points(Picky(neox))
    assert not points.flags["QKV_mat_mul"].layers
    assert "could not be watched: TypeError" in points.flags["QKV_mat_mul"].reason
    assert points.flags["HiddenStates"].layers
    assert points.watch is None
