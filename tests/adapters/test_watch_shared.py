"""What several modules give together, and what one module gives several times, in a watched pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from megalens.adapters import find_points
from megalens.adapters.watch import PassWatch
from tests.adapters.test_watch_models import (
    HEADS,
    IDS,
    WIDTH,
    Attention,
    Block,
    Feed,
    Stack,
    layers_of,
    modules_of,
    stack,
)
from tests.adapters.watched import traced, watched


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def blocks_of(model: Any) -> list[Any]:
    return [*model.blocks]


class LowRank(nn.Module):
    """A layer with a low-rank change of it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down, self.drop, self.up = (
            nn.Linear(base.in_features, 2),
            nn.Dropout(),
            nn.Linear(2, base.out_features),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 0.5 * self.up(self.down(self.drop(x)))


def test_a_layer_with_a_low_rank_change_gives_the_sum_of_both() -> None:
    model = Stack(Block(), Block())
    for block in blocks_of(model):
        block.first.a, block.feed.two = LowRank(block.first.a), LowRank(block.feed.two)
    points, _ = watched(model, lambda: model(IDS))
    for number, block in enumerate(blocks_of(model)):
        assert modules_of(points, "QKV_mat_mul", number)[0] is block.first.a
        assert modules_of(points, "MLP2_mat_mul", number) == [block.feed.two]
    values = traced(points, lambda: model(IDS))
    q, _, _ = blocks_of(model)[1].first.given
    assert torch.equal(values["QKV_mat_mul", 1, "q"], q.transpose(1, 2).flatten(2))


def test_a_sum_that_no_module_gives_is_not_there_and_says_of_what() -> None:
    class Summed(Attention):
        """Adds a low-rank change itself."""

        def __init__(self) -> None:
            super().__init__()
            self.change = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
            q, k, v = (
                each.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
                for each in (self.a(x) + self.change(x), self.b(x), self.c(x))
            )
            return self.d(
                nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
            )

    model = stack(first=Summed)
    points, _ = watched(model, lambda: model(IDS))
    reason = points.flags["QKV_mat_mul"].reasons[0]
    assert "the sum of what blocks.0.first.a and blocks.0.first.change give" in reason
    assert layers_of(points, "MLP2_mat_mul") == [0, 1]


def test_a_module_of_two_layers_is_not_there_in_either() -> None:
    model = Stack(Block(), Block(), Block())
    blocks_of(model)[2].feed = blocks_of(model)[0].feed
    points, _ = watched(model, lambda: model(IDS))
    for flag in ("MLP1_mat_mul", "MLP2_mat_mul"):
        assert layers_of(points, flag) == [1]
        assert "is called outside of this layer too" in points.flags[flag].reasons[0]
        assert "is called outside of this layer too" in points.flags[flag].reasons[2]
    assert layers_of(points, "QKV_mat_mul") == [0, 1, 2]


def test_a_module_that_its_layer_calls_in_pieces_is_not_there() -> None:
    class Pieces(Feed):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([super(Pieces, self).forward(each) for each in x.split(4, 1)], 1)

    model = stack(feed=Pieces)
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "MLP2_mat_mul") == []
    assert "is called 2 times in one pass of this layer" in points.flags["MLP2_mat_mul"].reasons[1]


def test_lists_of_layers_in_a_list_are_stages() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(40, WIDTH)
            self.all = [Block() for _ in range(4)]
            self.stages = nn.ModuleList([nn.ModuleList(self.all[:2]), nn.ModuleList(self.all[2:])])

        def forward(self, ids: Tensor) -> Tensor:
            x = self.words(ids)
            for block in self.all:
                x = block(x)
            return torch.as_tensor(x)

    model = Nested()
    points, _ = watched(model, lambda: model(IDS))
    assert [modules_of(points, "HiddenStates", i) for i in range(4)] == [[block] for block in model.all]
    assert layers_of(points, "MLP2_mat_mul") == [0, 1, 2, 3]


class Counted(nn.Module):
    """A parametrization that counts how often it was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.times += 1
        return weight


class Careful(Block):
    """Its properties may not be asked for."""

    @property
    def out_features(self) -> int:
        raise AssertionError("asked for")

    weight = in_features = config = is_causal = num_heads = base_layer = out_features


@pytest.mark.parametrize("normed", [nn.utils.parametrizations.spectral_norm, None])
def test_nothing_of_the_model_is_computed_but_its_pass(normed: Callable[..., nn.Module] | None) -> None:
    model = Stack(Careful(), Careful())
    counted = [Counted() for _ in model.blocks]
    for block, each in zip(blocks_of(model), counted, strict=True):
        if normed is None:
            nn.utils.parametrize.register_parametrization(block.feed.two, "weight", each)
            nn.utils.parametrize.register_parametrization(block.first.a, "weight", each)
            each.times = 0
        else:
            normed(block.feed.two)
    buffers = [buffer.clone() for buffer in model.eval().buffers()]
    watch = PassWatch(find_points(model))
    with watch:
        model(IDS)
    points = watch.finish()
    assert modules_of(points, "MLP2_mat_mul", 1) == [blocks_of(model)[1].feed.two]
    assert blocks_of(model)[1].feed.two in points.sites["weight"].layers[1]
    assert [each.times for each in counted] == ([2, 2] if normed is None else [0, 0])
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))


class Linear(Attention):
    """Attends without a softmax, as linear attentions and state spaces do."""

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        q, k, v = (each(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2) for each in (self.a, self.b, self.c))
        mixed = (q @ k.transpose(-1, -2)).tril() @ v
        return torch.as_tensor(self.d(mixed.transpose(1, 2).reshape(x.shape)))


def test_products_without_a_softmax_are_no_queries_and_keys() -> None:
    model = Stack(Block(), Block())
    blocks_of(model)[0].first = Linear()
    points, _ = watched(model, lambda: model(IDS))
    for flag in ("QKV_mat_mul", "ContextLayer_mat_mul", "AttentionOutput_mat_mul"):
        assert layers_of(points, flag) == [1]
        assert "goes through no softmax" in points.flags[flag].reasons[0]
    assert layers_of(points, "HiddenStates") == layers_of(points, "MLP2_mat_mul") == [0, 1]


class Normed(Block):
    """Norms after each sum."""

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        x = self.norm(self.first(x) + x)
        return torch.as_tensor(self.norm(self.feed(x) + x))


def test_of_a_stream_that_is_a_sum_of_many_the_newest_are_followed() -> None:
    class Summed(Stack):
        def __init__(self) -> None:
            super().__init__(Normed(), Normed())
            self.tables = nn.ModuleList(nn.Embedding(40, WIDTH) for _ in range(12))

        def forward(self, ids: Tensor, *more: Tensor) -> Tensor:
            x = self.words(ids)
            for table in self.tables:
                x = x + table(ids)
            for block in self.blocks:
                x = block(x)
            return torch.as_tensor(x)

    model = Summed()
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "MLP2_mat_mul") == [0, 1]
    assert layers_of(points, "QKV_mat_mul") == [0, 1]


def test_queries_of_which_some_are_the_stream_itself_are_refused() -> None:
    class FirstUnprojected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x[:, :1], self.inner(x[:, 1:])], 1)

    model = Stack(Block(), Block())
    for block in blocks_of(model):
        block.first.a = FirstUnprojected()
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "QKV_mat_mul") == []
    for number in (0, 1):
        assert "q" in points.flags["QKV_mat_mul"].reasons[number]
    assert layers_of(points, "ContextLayer_mat_mul") == [0, 1]


class SideBySide(Stack):
    """Attentions, MLPs and norms are lists beside one another; the model adds up and norms, as XLM does."""

    def __init__(self, norms: str, head: bool) -> None:
        super().__init__()
        del self.blocks
        self.norms, self.sums = norms, list[Tensor]()
        self.attentions, self.feeds = (nn.ModuleList(kind() for _ in range(2)) for kind in (Attention, Feed))
        self.first, self.second = (nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2)) for _ in range(2))
        self.head = nn.Linear(WIDTH, 4) if head else lambda x: functional.linear(x, self.words.weight)

    def forward(self, ids: Tensor) -> Tensor:
        x = functional.layer_norm(self.words(ids), (WIDTH,))
        self.sums.clear()
        modules = self.norms.startswith("modules")
        for number in range(2):
            for part, norms in ((self.attentions, self.first), (self.feeds, self.second)):
                norm = norms[number] if modules else lambda x: functional.layer_norm(x, (WIDTH,))
                if self.norms.endswith("of a branch"):
                    x = x + part[number](norm(x))
                    self.sums.append(x)
                    continue
                total = x + part[number](x)
                x = norm(total)
                self.sums.append(total if modules else x)
        return self.head(x)


@pytest.mark.parametrize(
    ("norms", "head", "there"),
    [
        ("modules", False, [0, 1, 2, 3]),
        ("functions", False, [0, 1, 2]),
        ("functions of a branch", False, []),
        ("modules", True, [0, 1, 2, 3]),
        ("functions", True, [0, 1, 2, 3]),
        ("modules of a branch", True, [0, 1, 2, 3]),
        # The last one's sum goes to the head.
        ("functions of a branch", True, [3]),
    ],
)
def test_lists_side_by_side_have_the_sums_that_a_module_is_given_and_no_norm_of_a_branch(
    norms: str, head: bool, there: list[int]
) -> None:
    model = SideBySide(norms, head)
    points, _ = watched(model, lambda: model(IDS))
    values = traced(points, lambda: model(IDS))
    assert layers_of(points, "HiddenStates") == there
    # Attentions are numbered before MLPs.
    sums = dict(zip((0, 2, 1, 3), model.sums, strict=True))
    assert all(torch.equal(values["HiddenStates", layer, ""], sums[layer]) for layer in there)
    if there == [3]:
        reason = points.flags["HiddenStates"].reasons[0]
        assert (
            "nor the residual stream, and the sum with it is given to modules behind a norm of theirs only"
            in reason
        )


class Chooses(nn.Module):
    """Noise that is learnt comes before the router, and is as wide."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(Feed() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.two(x)
        noisy = scores + torch.randn_like(scores) * functional.softplus(self.one(x))
        best, index = noisy.topk(2, -1)
        weights = torch.zeros_like(noisy).scatter(-1, index, best.softmax(-1))
        return sum(weights[..., number, None] * each(x) for number, each in enumerate(self.experts))


def test_the_router_is_what_gives_the_scores_of_which_the_largest_are_chosen() -> None:
    model = stack(feed=Chooses)
    points, _ = watched(model, lambda: model(IDS))
    routers = [modules_of(points, "RouterProbabilities", number) for number in (0, 1)]
    assert routers == [[block.feed.two] for block in blocks_of(model)]
    assert "the largest of its scores are chosen" in points.flags["RouterProbabilities"].evidence[0]


class Spread(nn.Module):
    """Its modules work on an axis more, ``[B, 1, S, F]``."""

    def __init__(self) -> None:
        super().__init__()
        self.uno, self.dos = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dos(functional.relu(self.uno(x.unsqueeze(1)))).squeeze(1)


def test_an_axis_that_only_modules_see_is_not_recorded() -> None:
    model = Stack(Spread(), Spread())
    points, _ = watched(model, lambda: model(IDS))
    values = traced(points, lambda: model(IDS))
    assert values["MLP1_mat_mul", 1, ""].shape == (*IDS.shape, 24)
    assert values["MLP2_mat_mul", 1, ""].shape == (*IDS.shape, WIDTH)


def test_the_ids_are_what_the_model_is_given_whatever_the_tables_are_called() -> None:
    class Places(Stack):
        def __init__(self) -> None:
            super().__init__(Block(), Block())
            self.words, self.more = nn.Embedding(64, WIDTH), nn.Embedding(40, WIDTH)

        def forward(self, ids: Tensor, *more: Tensor) -> Tensor:
            x = self.words(torch.arange(ids.shape[1])) + self.more(ids)
            for block in self.blocks:
                x = block(x)
            return x

    model = Places()
    points, watch = watched(model, lambda: model(IDS))
    assert modules_of(points, "InputTokens", -1) == [model.more]
    assert ("InputTokens", -1) in watch.changed
    assert torch.equal(traced(points, lambda: model(IDS))["InputTokens", -1, "ids"], IDS)


def test_of_several_attentions_the_first_is_shown_and_its_evidence_says_of_how_many() -> None:
    class Twice(Block):
        def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
            assert self.second is not None
            x = x + self.first(self.norm(x))
            return x + self.second(self.norm(x))

    model = Stack(Twice(crosses=True), Twice(crosses=True))
    points, _ = watched(model, lambda: model(IDS))
    firsts = [[each.first.a, each.first.b, each.first.c] for each in blocks_of(model)]
    assert [modules_of(points, "QKV_mat_mul", number) for number in (0, 1)] == firsts
    assert "one of 2 attentions of this layer, the first" in points.flags["QKV_mat_mul"].evidence[0]


def test_of_several_mlps_the_supposed_one_is_shown_and_its_evidence_says_so() -> None:
    class Double(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.near, self.far = (
                nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH)) for _ in range(2)
            )

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.near(x)
            return x + self.far(x)

    model = Stack(Double(), Double())
    points, _ = watched(model, lambda: model(IDS))
    assert modules_of(points, "MLP2_mat_mul", 1) == [blocks_of(model)[1].near[2]]
    said = points.flags["MLP2_mat_mul"].evidence[1]
    assert "one of 2 MLPs of this layer, the one that was supposed" in said
    assert "name" not in said


def test_an_mlp_whose_first_layer_is_the_attentions_too_is_told_by_its_features() -> None:
    class AllInOne(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Linear(WIDTH, 3 * WIDTH + 48)
            self.mix, self.back = nn.Linear(WIDTH, WIDTH), nn.Linear(24, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            *parts, up, gate = self.wide(x).split([WIDTH] * 3 + [24, 24], -1)
            q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return x + self.mix(mixed) + self.back(functional.silu(gate) * up)

    model = Stack(AllInOne(), AllInOne())
    points, _ = watched(model, lambda: model(IDS))
    values = traced(points, lambda: model(IDS))
    wide = model.blocks[0].wide(model.words(IDS))
    assert torch.equal(values["MLP1_mat_mul", 0, "up"], wide[..., 48:72])
    assert torch.equal(values["MLP1_mat_mul", 0, "gate"], wide[..., 72:])
    assert modules_of(points, "MLP2_mat_mul", 1) == [blocks_of(model)[1].back]
