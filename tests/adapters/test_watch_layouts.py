"""Layouts of queries, keys and values, against what the attention function itself was given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.adapters.watched import traced, watched

B, S, WIDTH, HEADS, HEAD = 2, 7, 24, 4, 6
IDS = torch.randint(0, 40, (B, S), generator=torch.Generator().manual_seed(3))
Parts = tuple[Tensor, Tensor, Tensor]


def thirds(x: Tensor) -> Parts:
    q, k, v = (part.view(B, S, HEADS, HEAD).transpose(1, 2) for part in x.split(WIDTH, -1))
    return q, k, v


def per_head(x: Tensor) -> Parts:
    """The UvA tutorial, MiniMax."""
    q, k, v = x.reshape(B, S, HEADS, 3 * HEAD).permute(0, 2, 1, 3).chunk(3, dim=-1)
    return q, k, v


def feature_then_part(x: Tensor) -> Parts:
    """``b n (h d qkv)``."""
    q, k, v = x.view(B, S, HEADS, HEAD, 3).permute(4, 0, 2, 1, 3).unbind(0)
    return q, k, v


def part_then_feature(x: Tensor) -> Parts:
    """``b n (qkv h d)``, as timm has it."""
    q, k, v = x.reshape(B, S, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
    return q, k, v


def head_last(x: Tensor) -> Parts:
    """``b n (qkv d h)``."""
    q, k, v = x.view(B, S, 3, HEAD, HEADS).permute(2, 0, 4, 1, 3).unbind(0)
    return q, k, v


def values_first(x: Tensor) -> Parts:
    v, k, q = (part.view(B, S, HEADS, HEAD).transpose(1, 2) for part in x.chunk(3, -1))
    return q, k, v


def blocks(x: Tensor) -> Parts:
    """Two blocks, each with its queries, values and keys, as in CodeGen."""
    parts = x.view(B, S, 2, 3, HEADS // 2, HEAD)
    q, v, k = (parts[:, :, :, i].reshape(B, S, HEADS, HEAD).transpose(1, 2) for i in range(3))
    return q, k, v


def groups(x: Tensor) -> Parts:
    """Two groups of two queries, a key and a value."""
    parts = x.view(B, S, 2, 4, HEAD)
    q = parts[:, :, :, :2].reshape(B, S, HEADS, HEAD).transpose(1, 2)
    k, v = (parts[:, :, :, i].transpose(1, 2).repeat_interleave(2, 1) for i in (2, 3))
    return q, k, v


def grouped_thirds(x: Tensor) -> Parts:
    q, k, v = x.split([HEADS * HEAD, 2 * HEAD, 2 * HEAD], -1)
    k, v = (t.view(B, S, 2, 1, HEAD).expand(B, S, 2, 2, HEAD).reshape(B, S, HEADS, HEAD) for t in (k, v))
    return q.view(B, S, HEADS, HEAD).transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def one_key(x: Tensor) -> Parts:
    q, k, v = x.split([HEADS * HEAD, HEAD, HEAD], -1)
    return q.view(B, S, HEADS, HEAD).transpose(1, 2), k.unsqueeze(1), v.unsqueeze(1)


def by_writing(x: Tensor) -> Parts:
    """Copied into memory that was there before."""
    made = torch.empty(3, B, HEADS, S, HEAD)
    for i, part in enumerate(x.chunk(3, -1)):
        for head in range(HEADS):
            made[i, :, head] = part[..., head * HEAD : (head + 1) * HEAD]
    q, k, v = made
    return q, k, v


def by_index(x: Tensor) -> Parts:
    order = torch.arange(3 * WIDTH).view(HEADS, 3, HEAD).transpose(0, 1).flatten()
    return thirds(x.index_select(-1, order))


LAYOUTS: dict[Callable[[Tensor], Parts], int] = {
    thirds: 72,
    per_head: 72,
    feature_then_part: 72,
    part_then_feature: 72,
    head_last: 72,
    values_first: 72,
    blocks: 72,
    groups: 48,
    grouped_thirds: 48,
    one_key: 36,
    by_writing: 72,
    by_index: 72,
}
"""With the features of the fused layer."""


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
        self.one, self.two = nn.Linear(WIDTH, LAYOUTS[cut]), nn.Linear(WIDTH, WIDTH)
        self.cut, self.attend = cut, attend
        self.given: Parts | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.given = self.cut(self.one(x))
        mixed = self.attend(*self.given)
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
            # Each head once, also where several queries share it.
            heads = dict.fromkeys(tuple(head.flatten().tolist()) for head in given[0])
            distinct = [[tuple(h.flatten().tolist()) for h in given[0]].index(head) for head in heads]
            expected = given[:, distinct].transpose(1, 2).flatten(2)
            assert torch.equal(values["QKV_mat_mul", number, part], expected), (number, part)
        assert ("ContextLayer_mat_mul", number, "") in values
        assert ("AttentionOutput_mat_mul", number, "") in values
        assert ("MLP2_mat_mul", number, "") in values
    assert points.model["heads"] == HEADS
    assert points.model["kv_heads"] == {groups: 2, grouped_thirds: 2, one_key: 1}.get(cut, HEADS)
