"""Layouts of queries, keys and values, against what the attention function itself was given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.adapters.watched import traced, watched
from tests.corpus.layouts import LAYOUTS, Parts, grouped_thirds, one_key, per_group

B, S, WIDTH, HEADS, HEAD = 2, 7, 24, 4, 6
IDS = torch.randint(0, 40, (B, S), generator=torch.Generator().manual_seed(3))


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) * HEAD**-0.5 + torch.full((S, S), float("-inf")).triu(1)
    return scores.softmax(-1) @ v


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if k.shape[1] == 1:
        k, v = k.expand_as(q), v.expand_as(q)
    scores = torch.einsum("bhid,bhjd->bhij", q, k)
    return torch.einsum("bhij,bhjd->bhid", torch.softmax(scores, dim=-1), v)


def keys_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores with the keys before the queries."""
    weights = functional.softmax(k @ q.transpose(-2, -1), dim=-2)
    return weights.transpose(-2, -1) @ v


class Attention(nn.Module):
    """Calls its fused layer by a name that says nothing."""

    def __init__(self, cut: Callable[[Tensor], Parts], attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, int(LAYOUTS[cut] * WIDTH)), nn.Linear(WIDTH, WIDTH)
        self.cut, self.attend = cut, attend
        self.given: Parts | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.given = q, k, v = self.cut(self.one(x))
        if 1 < k.shape[1] < HEADS:
            k, v = (each.unsqueeze(2).expand(-1, -1, 2, -1, -1).flatten(1, 2) for each in (k, v))
        mixed = self.attend(q, k, v)
        return self.two(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, *args: Callable) -> None:
        super().__init__()
        self.a, self.b = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixer = Attention(*args)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 40), nn.GELU(), nn.Linear(40, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.a(x))
        return x + self.feed(self.b(x))


class Model(nn.Module):
    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.words = nn.Embedding(40, WIDTH)
        self.stack = nn.ModuleList(make() for _ in range(2))
        self.head = nn.Linear(WIDTH, 40)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for layer in self.stack:
            x = layer(x)
        return self.head(x)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("attend", [fused, eager, einsum, keys_first])
@pytest.mark.parametrize("cut", LAYOUTS)
def test_parts_are_what_the_attention_is_given(
    cut: Callable[[Tensor], Parts], attend: Callable[..., Tensor]
) -> None:
    model = Model(lambda: Block(cut, attend))
    points, _ = watched(model, lambda: model(IDS))
    values = traced(points, lambda: model(IDS))
    for number, layer in enumerate(model.stack):
        for part, given in zip("qkv", layer.mixer.given, strict=True):
            expected = given.transpose(1, 2).flatten(2)
            assert torch.equal(values["QKV_mat_mul", number, part], expected), (number, part)
        assert ("ContextLayer_mat_mul", number, "") in values
        assert ("AttentionOutput_mat_mul", number, "") in values
        assert ("MLP2_mat_mul", number, "") in values
    assert points.model["heads"] == HEADS
    assert points.model["kv_heads"] == {per_group: 2, grouped_thirds: 2, one_key: 1}.get(cut, HEADS)
