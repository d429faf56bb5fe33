"""Models that are built otherwise than a language model of one list of layers, each watched in one pass."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from megalens.adapters import Adapter, find_points
from megalens.adapters.watch import PassWatch
from megalens.adapters.watch_points import points_table
from megalens.tracer import ModelPoints, TracerError
from tests.adapters.watched import traced, watched

B, S, WIDTH, HEADS = 2, 7, 16, 4
HEAD = WIDTH // HEADS
IDS = torch.randint(0, 40, (B, S), generator=torch.Generator().manual_seed(3))
ATTENTION = ("QKV_mat_mul", "ContextLayer_mat_mul", "AttentionOutput_mat_mul")
MLP = ("MLP1_mat_mul", "MLP2_mat_mul")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def layers_of(points: ModelPoints, flag: str) -> list[int]:
    return sorted(points.flags[flag].layers)


def modules_of(points: ModelPoints, flag: str, layer: int) -> list[nn.Module]:
    return [source.module for source in points.flags[flag].layers[layer]]


class Attention(nn.Module):
    """Reads what it is given, or something else."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.given: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        other = x if other is None else other
        q, k, v = (
            each.view(each.shape[0], -1, HEADS, HEAD).transpose(1, 2)
            for each in (self.a(x), self.b(other), self.c(other))
        )
        self.given = q, k, v
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.d(mixed.transpose(1, 2).reshape(x.shape))


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(functional.relu(self.one(x)))


class Block(nn.Module):
    def __init__(self, crosses: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first = Attention()
        self.second = Attention() if crosses else None
        self.feed = Feed()

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        x = x + self.first(self.norm(x))
        if self.second is not None:
            x = x + self.second(self.norm(x), other)
        return x + self.feed(self.norm(x))


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.words = nn.Embedding(40, WIDTH)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, ids: Tensor, *more: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, *more)
        return x


def stack(**parts: Callable[[], nn.Module]) -> Stack:
    """Return a model of two blocks some parts of which are others."""
    blocks = [Block(), Block()]
    for block in blocks:
        for name, make in parts.items():
            setattr(block, name, make())
    return Stack(*blocks)


def has_all(points: ModelPoints, layers: list[int]) -> None:
    for flag in (*ATTENTION, *MLP, "HiddenStates"):
        assert layers_of(points, flag) == layers, points.flags[flag].reasons


def is_what_attention_had(values: dict, number: int, attention: Attention) -> None:
    assert attention.given is not None
    for part, given in zip("qkv", attention.given, strict=True):
        assert torch.equal(values["QKV_mat_mul", number, part], given.transpose(1, 2).flatten(2))


class EncoderDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Stack(Block(), Block())
        self.decoder = Stack(Block(crosses=True), Block(crosses=True))

    def forward(self, ids: Tensor) -> Tensor:
        return self.decoder(ids[:, :4], self.encoder(ids))


def test_an_encoder_and_a_decoder_are_numbered_one_after_the_other_and_attend_to_themselves() -> None:
    model = EncoderDecoder()
    points, _ = watched(model, lambda: model(IDS))
    has_all(points, [0, 1, 2, 3])
    values = traced(points, lambda: model(IDS))
    for number, block in enumerate([*model.encoder.blocks, *model.decoder.blocks]):
        is_what_attention_had(values, number, block.first)
    assert values["HiddenStates", 3, ""].shape == (B, 4, WIDTH)


class Towers(nn.Module):
    """Two stacks that know nothing of each other, as in CLIP."""

    def __init__(self) -> None:
        super().__init__()
        self.text = Stack(Block(), Block())
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.image = nn.ModuleList([Block(), Block()])

    def forward(self, ids: Tensor, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        for block in self.image:
            x = block(x)
        return self.text(ids).mean(1) @ x.mean(1).T


def test_two_towers_are_both_there() -> None:
    model, image = Towers(), torch.randn(B, 3, 8, 8)
    points, _ = watched(model, lambda: model(IDS, image))
    has_all(points, [0, 1, 2, 3])
    values = traced(points, lambda: model(IDS, image))
    for number, block in enumerate([*model.text.blocks, *model.image]):
        is_what_attention_had(values, number, block.first)


class Merge(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x[:, ::2] + x[:, 1::2]) / 2


class Stage(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.merge = Merge()

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.merge(x)


def test_layers_in_stages_are_numbered_over_all_stages() -> None:
    model = nn.ModuleDict({"words": nn.Embedding(40, WIDTH), "stages": nn.ModuleList([Stage(2), Stage(1)])})

    class Swin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, ids: Tensor) -> Tensor:
            x = self.parts["words"](ids)
            for stage in self.parts["stages"]:
                x = stage(x)
            return x

    whole, ids = Swin(), torch.randint(0, 40, (B, 8))
    points, _ = watched(whole, lambda: whole(ids))
    blocks = [block for stage in model["stages"] for block in stage.blocks]
    assert [modules_of(points, "HiddenStates", i) for i in range(3)] == [[block] for block in blocks]
    values = traced(points, lambda: whole(ids))
    for number, block in enumerate(blocks):
        is_what_attention_had(values, number, block.first)


def test_a_layer_that_is_called_several_times_says_how_often() -> None:
    block = Block()

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(40, WIDTH)
            self.group = nn.ModuleList([block])

        def forward(self, ids: Tensor) -> Tensor:
            x = self.words(ids)
            for _ in range(3):
                x = self.group[0](x)
            return x

    model = Shared()
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "QKV_mat_mul") == layers_of(points, "HiddenStates") == [0]
    assert "called 3 times a pass" in points.flags["HiddenStates"].evidence[0]


class Gated(nn.Module):
    def __init__(self, gate_first: bool) -> None:
        super().__init__()
        self.both, self.last = nn.Linear(WIDTH, 48), nn.Linear(24, WIDTH)
        self.gate_first = gate_first
        self.gate: Tensor | None = None
        self.up: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.both(x).chunk(2, -1)
        self.gate, self.up = (one, two) if self.gate_first else (two, one)
        return self.last(functional.gelu(self.gate) * self.up)


class Glu(Gated):
    """``functional.glu`` takes the second half as the gate."""

    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x)
        self.up, self.gate = both.chunk(2, -1)
        return self.last(functional.glu(both))


class ByHand(Gated):
    """A sigmoid that is multiplied by what went into it, and every second feature is the gate."""

    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x)
        self.gate, self.up = both[..., ::2], both[..., 1::2]
        return self.last(self.gate * torch.sigmoid(1.702 * self.gate) * self.up)


@pytest.mark.parametrize("feed", [Gated(True), Gated(False), Glu(False), ByHand(True)])
def test_the_gate_is_the_part_that_is_activated(feed: Gated) -> None:
    block = Block()
    block.feed = feed  # type: ignore[assignment]
    model = Stack(block, Block())
    points, _ = watched(model, lambda: model(IDS))
    values = traced(points, lambda: model(IDS))
    assert feed.gate is not None
    assert feed.up is not None
    assert torch.equal(values["MLP1_mat_mul", 0, "gate"], feed.gate)
    assert torch.equal(values["MLP1_mat_mul", 0, "up"], feed.up)
    assert points.flags["MLP1_mat_mul"].layers[1][0].parts == ("",)


def test_a_product_without_an_activation_has_no_gate() -> None:
    class Bilinear(Gated):
        def forward(self, x: Tensor) -> Tensor:
            one, two = self.both(x).chunk(2, -1)
            return self.last(one * two)

    block = Block()
    block.feed = Bilinear(True)  # type: ignore[assignment]
    model = Stack(block, Block())
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "MLP1_mat_mul") == [1]
    assert "nonlinearity" in points.flags["MLP1_mat_mul"].reasons[0]


class Nano(nn.Module):
    """``c_q``, ``c_k`` and ``c_v`` with one key for two queries, normed, then rotated."""

    def __init__(self) -> None:
        super().__init__()
        self.c_q, self.c_k, self.c_v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        self.projected: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.projected = {part: getattr(self, f"c_{part}")(x) for part in "qkv"}
        q, k, v = (each.view(*x.shape[:2], -1, HEAD) for each in self.projected.values())
        q, k = (functional.rms_norm(turned(each), (HEAD,)).transpose(1, 2) for each in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, v.transpose(1, 2), enable_gqa=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(x.shape))


def turned(x: Tensor) -> Tensor:
    one, two = x.chunk(2, -1)
    angles = torch.outer(torch.arange(x.shape[1]), torch.tensor([1.0, 0.3]))[None, :, None]
    return torch.cat((one * angles.cos() + two * angles.sin(), one * -angles.sin() + two * angles.cos()), -1)


def test_norms_and_rotations_between_are_named_and_heads_are_counted() -> None:
    model = stack(first=Nano)
    points, _ = watched(model, lambda: model(IDS))
    values = traced(points, lambda: model(IDS))
    for part, projected in model.blocks[1].first.projected.items():
        assert torch.equal(values["QKV_mat_mul", 1, part], projected)
    assert (points.model["heads"], points.model["kv_heads"]) == (4, 2)
    evidence = points.flags["QKV_mat_mul"].evidence[1]
    assert "q rotated, normed after it" in evidence
    assert "v rotated" not in evidence


def test_a_list_that_holds_none_is_a_list() -> None:
    model = stack(extra=lambda: nn.ModuleList([None, nn.LayerNorm(WIDTH)]))  # type: ignore[list-item]
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "QKV_mat_mul") == [0, 1]


class Adds(nn.Module):
    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return x + residual


def test_layers_that_are_lists_themselves_are_what_their_modules_give_together() -> None:
    class Listed(nn.Module):
        """In the manner of x-transformers."""

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(40, WIDTH)
            self.layers = nn.ModuleList(
                nn.ModuleList([nn.ModuleList([nn.LayerNorm(WIDTH), None]), kind(), Adds()])  # type: ignore[list-item]
                for kind in (Attention, Feed, Attention, Feed)
            )

        def forward(self, ids: Tensor) -> Tensor:
            x = self.words(ids)
            for norms, block, adds in self.layers:
                x = adds(block(norms[0](x)), x)
            return x

    model = Listed()
    points, _ = watched(model, lambda: model(IDS))
    values = traced(points, lambda: model(IDS))
    assert torch.equal(values["HiddenStates", 3, ""], model(IDS))
    assert layers_of(points, "HiddenStates") == [0, 1, 2, 3]
    assert layers_of(points, "QKV_mat_mul") == [0, 2]
    assert layers_of(points, "MLP2_mat_mul") == [1, 3]
    is_what_attention_had(values, 2, model.layers[2][1])


class Recurrent(nn.Module):
    """A layer without attention, in the manner of Mamba."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.in_proj, self.out_proj = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 48),
            nn.Linear(24, WIDTH),
        )
        self.conv = nn.Conv1d(24, 24, 3, groups=24, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        u, z = self.in_proj(self.norm(x)).chunk(2, -1)
        u = functional.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        return x + self.out_proj(u.cumsum(1) * functional.silu(z))


def test_layers_without_attention_have_hidden_states_and_a_reason_for_the_rest() -> None:
    model = Stack(Recurrent(), Recurrent())
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "HiddenStates") == [0, 1]
    for flag in ATTENTION:
        assert layers_of(points, flag) == []
        assert "No attention was seen" in (points.flags[flag].reason or "")


@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_encoder_has_what_its_modules_give_and_says_what_it_computes_itself(
    batch_first: bool,
) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, dropout=0.0, batch_first=batch_first)
    words, model = nn.Embedding(40, WIDTH), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    whole = nn.Sequential(words, model)
    ids = IDS if batch_first else IDS.T
    points, _ = watched(whole, lambda: whole(ids))
    assert layers_of(points, "HiddenStates") == layers_of(points, "MLP1_mat_mul") == [0, 1]
    assert layers_of(points, "AttentionOutput_mat_mul") == [0, 1]
    assert modules_of(points, "MLP2_mat_mul", 1) == [model.layers[1].linear2]
    for flag, says in (
        ("QKV_mat_mul", "No module gives q, k, v: 1.layers.0.self_attn multiplies by a weight of its own"),
        ("ContextLayer_mat_mul", "No module is given what the attention gives: 1.layers.0.self_attn"),
    ):
        assert says in (points.flags[flag].reason or "")
    values = traced(points, lambda: whole(ids))
    output = whole(ids)
    assert torch.equal(values["HiddenStates", 1, ""], output if batch_first else output.transpose(0, 1))


class Convolved(nn.Module):
    """Projects by convolutions over positions, of which the channels are the features."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 24), "down": (24, WIDTH)}
        self.by = nn.ModuleDict({name: nn.Conv1d(*size, 1) for name, size in sizes.items()})

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT
        q, k, v = self.by["qkv"](x).view(B, 3, HEADS, HEAD, S).mT.unbind(1)
        x = x + self.by["out"](functional.scaled_dot_product_attention(q, k, v).mT.reshape(x.shape))
        return (x + self.by["down"](functional.gelu(self.by["up"](x)))).mT


def test_of_projections_by_convolutions_it_is_said_where_their_features_lie() -> None:
    model = Stack(Convolved(), Convolved())
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "HiddenStates") == [0, 1]
    for flag, name in (("QKV", "qkv"), ("ContextLayer", "out"), ("AttentionOutput", "out"), ("MLP1", "down")):
        said = points.flags[f"{flag}_mat_mul"].reason or ""
        assert f"0.by.{name} gives its features along axis 1, as a convolution does" in said


def test_torchs_own_pair_of_encoder_and_decoder_is_numbered_over_both() -> None:
    model = nn.Transformer(WIDTH, HEADS, 2, 2, 24, dropout=0.0, batch_first=True)
    x, y = torch.randn(B, S, WIDTH), torch.randn(B, 5, WIDTH)
    points, _ = watched(model, lambda: model(x, y))
    assert layers_of(points, "HiddenStates") == layers_of(points, "MLP2_mat_mul") == [0, 1, 2, 3]
    assert modules_of(points, "AttentionOutput_mat_mul", 2) == [model.decoder.layers[0].self_attn]
    decoder = model.decoder
    points, _ = watched(decoder, lambda: decoder(y, x))
    assert layers_of(points, "HiddenStates") == [0, 1]


class Biased(Attention):
    """Adds something learnt to its queries, and scales them, after the projection."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        q, k, v = (
            each.view(B, S, HEADS, HEAD).transpose(1, 2)
            for each in (self.a(x) * 0.5 + self.bias, self.b(x), self.c(x))
        )
        return self.d(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))


def test_what_is_done_with_queries_after_their_projection_is_said() -> None:
    model = stack(first=Biased)
    points, _ = watched(model, lambda: model(IDS))
    assert "q scaled, shifted after it" in points.flags["QKV_mat_mul"].evidence[0]
    assert "k scaled" not in points.flags["QKV_mat_mul"].evidence[0]


class Talking(Attention):
    """Mixes its heads before the softmax and after it; ``shown`` is given the softmax's result."""

    def __init__(self, mix: str = "", axes: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        super().__init__()
        make = {"linear": lambda: nn.Linear(HEADS, HEADS), "convolution": lambda: nn.Conv2d(HEADS, HEADS, 1)}
        self.by = nn.ModuleList([make[mix](), make[mix]()] if mix in make else [])
        self.weights = nn.Parameter(torch.randn(2, HEADS, HEADS))
        self.mix, self.axes, self.shown = mix, axes, nn.Identity()
        self.probabilities: Tensor | None = None

    def mixed(self, scores: Tensor, number: int) -> Tensor:
        if self.mix == "linear":
            return self.by[number](scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        if self.mix == "convolution":
            return self.by[number](scores)
        return torch.einsum("bhij,hg->bgij", scores, self.weights[number]) if self.mix else scores

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        q, k, v = (
            each.view(*x.shape[:2], HEADS, HEAD).transpose(1, 2) for each in (self.a(x), self.b(x), self.c(x))
        )
        self.given = q, k, v
        self.probabilities = self.mixed(q @ k.mT, 0).softmax(-1)
        self.shown(self.probabilities.permute(self.axes))
        return self.d((self.mixed(self.probabilities, 1) @ v).transpose(1, 2).reshape(x.shape))


@pytest.mark.parametrize("mix", ["linear", "convolution", "einsum"])
def test_heads_that_are_mixed_with_one_another_stay_those_of_their_attention(mix: str) -> None:
    model = stack(first=lambda: Talking(mix))
    points, _ = watched(model, lambda: model(IDS))
    has_all(points, [0, 1])
    values = traced(points, lambda: model(IDS))
    for number, block in enumerate(model.blocks):
        is_what_attention_had(values, number, block.first)
        assert torch.equal(values["RawAttentionScore_mat_mul", number, ""], block.first.probabilities)


@pytest.mark.parametrize("samples", [B, HEADS, 1])
def test_probabilities_that_a_module_has_with_heads_before_samples_are_turned_round(samples: int) -> None:
    ids = torch.randint(0, 40, (samples, S))
    model = stack(first=lambda: Talking(axes=(1, 0, 2, 3)))
    points, _ = watched(model, lambda: model(ids))
    values = traced(points, lambda: model(ids))
    for number, block in enumerate(model.blocks):
        assert torch.equal(values["RawAttentionScore_mat_mul", number, ""], block.first.probabilities)


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 1, 3, 2), (2, 3, 0, 1), (0, 2, 1, 3)])
def test_probabilities_that_a_module_has_with_other_axes_are_not_taken_for_those_of_the_softmax(axes) -> None:
    model = stack(first=lambda: Talking(axes=axes))
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "RawAttentionScore_mat_mul") == []
    assert "with other axes" in (points.flags["RawAttentionScore_mat_mul"].reason or "")


class Modulated(nn.Module):
    """Norms and gates follow from a time, by a projection of a nonlinearity that is no MLP of the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.time, self.by = nn.Linear(1, WIDTH), nn.Linear(WIDTH, 6 * WIDTH)
        self.first, self.feed = Attention(), Feed()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        parts = self.by(functional.silu(self.time(time))).unsqueeze(1).chunk(6, -1)
        x = x + parts[2] * self.first(self.norm(x) * (1 + parts[0]) + parts[1])
        return x + parts[5] * self.feed(self.norm(x) * (1 + parts[3]) + parts[4])


def test_what_scales_and_gates_a_layer_by_a_time_is_not_taken_for_its_mlp() -> None:
    model, time = Stack(Modulated(), Modulated()), torch.rand(B, 1)
    points, _ = watched(model, lambda: model(IDS, time))
    has_all(points, [0, 1])
    for number, block in enumerate(model.blocks):
        assert modules_of(points, "MLP1_mat_mul", number) == [block.feed.one]
        assert modules_of(points, "MLP2_mat_mul", number) == [block.feed.two]


class Added(Attention):
    """Adds what its values are to what it gives, before the output projection."""

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        q, k, v = (each.view(B, S, HEADS, HEAD).transpose(1, 2) for each in (self.a(x), self.b(x), self.c(x)))
        self.given = q, k, v
        mixed = functional.scaled_dot_product_attention(q, k, v) + v
        return self.d(mixed.transpose(1, 2).reshape(x.shape))


class Neighbours(nn.Module):
    """A layer of a graph network, whose stream goes through the nonlinearity itself."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return (
            self.own(x) + torch.zeros_like(x).index_add(1, torch.arange(S).flip(0), self.others(x))
        ).relu()


def test_a_nonlinearity_between_layers_makes_no_mlp_of_the_next_projection() -> None:
    model = Stack(*(Neighbours() for _ in range(3)))
    points, _ = watched(model, lambda: model(IDS))
    assert [layers_of(points, flag) for flag in (*MLP, "HiddenStates")] == [[], [], [0, 1, 2]]


def test_what_is_added_to_what_the_attention_gives_is_said() -> None:
    model = stack(first=Added)
    points, _ = watched(model, lambda: model(IDS))
    has_all(points, [0, 1])
    assert "added to something else" in points.flags["ContextLayer_mat_mul"].evidence[0]


class Beside(nn.Module):
    """Attention and MLP beside one another, brought back to the stream by one projection of both."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.out = nn.Linear(WIDTH, 24), nn.Linear(WIDTH + 24, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = self.qkv(y).view(B, S, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return x + self.out(torch.cat([mixed, functional.gelu(self.up(y))], -1))


def test_what_is_given_to_one_projection_of_attention_and_mlp_is_not_taken_for_the_attentions() -> None:
    model = Stack(Beside(), Beside())
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "QKV_mat_mul") == [0, 1]
    assert layers_of(points, "ContextLayer_mat_mul") == []
    said = points.flags["ContextLayer_mat_mul"].reason or ""
    assert "blocks.0.out is given other features beside what the attention gives" in said


class Heads(nn.Module):
    """Every head has modules of its own, as in lectures."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.ModuleDict({part: nn.Linear(WIDTH, HEAD, bias=False) for part in ("key", "query", "value")})
            for _ in range(HEADS)
        )
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out = []
        for head in self.heads:
            weights = head["query"](x) @ head["key"](x).transpose(-2, -1) * HEAD**-0.5
            out.append(weights.softmax(-1) @ head["value"](x))
        return self.proj(torch.cat(out, -1))


def test_heads_with_modules_of_their_own_are_not_one_tensor() -> None:
    model = stack(first=Heads)
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "QKV_mat_mul") == []
    assert "4 attentions" in (points.flags["QKV_mat_mul"].reason or "")
    assert layers_of(points, "MLP1_mat_mul") == [0, 1]


class Shown(nn.Module):
    """Attention in plain operations, of which a dropout is given the probabilities."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.qkv, self.out, self.drop = nn.Linear(WIDTH, 48), nn.Linear(WIDTH, WIDTH), nn.Dropout(drop)
        self.probabilities: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).view(*x.shape[:2], 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].transpose(-2, -1) / math.sqrt(HEAD)
        self.probabilities = functional.softmax(scores, -1)
        return self.out((self.drop(self.probabilities) @ parts[2]).transpose(1, 2).reshape(x.shape))


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_probabilities_are_what_a_dropout_is_given(drop: float) -> None:
    model = stack(first=lambda: Shown(drop))
    points, _ = watched(model, lambda: model(IDS))
    (source,) = points.flags["RawAttentionScore_mat_mul"].layers[0]
    assert source.module is model.blocks[0].first.drop
    values = traced(points, lambda: model(IDS))
    assert torch.equal(values["RawAttentionScore_mat_mul", 1, ""], model.blocks[1].first.probabilities)
    if drop:
        assert source.side == "input"


class Forks(Shown):
    """Gives probabilities to a module in evaluation only."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.out(self.qkv(x).chunk(3, -1)[2])
        return super().forward(x)


def test_what_only_a_pass_without_gradients_shows_is_not_there_and_said() -> None:
    model = stack(first=lambda: Forks(0.0)).eval()
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "RawAttentionScore_mat_mul") == [0, 1]
    model.train()
    with PassWatch(points) as watch:
        model(IDS)
    seen = watch.finish().flags["RawAttentionScore_mat_mul"]
    assert not seen.layers
    assert "Without gradients it was seen: the very values that the softmax gave." in seen.reasons[0]


def test_probabilities_inside_of_a_function_are_not_there_and_a_sentence_says_why() -> None:
    model = Stack(Block(), Block())
    points, _ = watched(model, lambda: model(IDS))
    reason = points.flags["RawAttentionScore_mat_mul"].reason or ""
    assert "_scaled_dot_product" in reason
    assert "gives no probabilities" in reason


TABLE = {"layer": "blocks.{i}", "tokens": "words", "fc1": "feed.one", "fc2": "feed.two", "context": "first.d"}


def test_a_table_that_says_what_was_seen_is_confirmed() -> None:
    model = Stack(Block(), Block())
    table = Adapter(**TABLE, q="first.a", k="first.b", v="first.c", attention="first", heads=HEADS)
    points, watch = watched(model, lambda: model(IDS), table)
    assert watch.changed == set()
    assert layers_of(points, "QKV_mat_mul") == [0, 1]
    assert "reach the attention" in points.flags["QKV_mat_mul"].evidence[0]


def test_a_table_that_contradicts_what_was_seen_is_refused_with_both_sides_named() -> None:
    model = Stack(Block(), Block())
    table = Adapter(**TABLE, name="mine", q="first.b", k="first.a", v="first.c", heads=HEADS)
    points, watch = watched(model, lambda: model(IDS), table)
    assert layers_of(points, "QKV_mat_mul") == []
    # The table says nothing of the other.
    assert {flag for flag, _ in watch.changed} == {"QKV_mat_mul", "AttentionOutput_mat_mul"}
    reason = points.flags["QKV_mat_mul"].reason or ""
    assert "'mine' says" in reason
    assert "q = blocks.0.first.b" in reason
    assert "shows q = blocks.0.first.a" in reason
    assert layers_of(points, "MLP1_mat_mul") == [0, 1]


def test_a_table_may_name_what_a_module_is_given_as_the_probabilities() -> None:
    model = stack(first=lambda: Shown(0.5))
    table = {**TABLE, "context": "first.out", "heads": HEADS}
    points, _ = watched(model, lambda: model(IDS), Adapter(**table, probabilities="first.drop:input"))
    values = traced(points, lambda: model(IDS))
    assert torch.equal(values["RawAttentionScore_mat_mul", 1, ""], model.blocks[1].first.probabilities)
    points, _ = watched(model, lambda: model(IDS), Adapter(**table, probabilities="first.drop"))
    assert "shows blocks.0.first.drop:input" in (points.flags["RawAttentionScore_mat_mul"].reason or "")
    with pytest.raises(TracerError, match="dotted path"):
        Adapter(**TABLE, qkv="first.qkv:input")


def test_an_order_of_parts_that_a_table_gives_wrongly_is_refused() -> None:
    model = stack(first=lambda: Shown(0.0))
    table = {**TABLE, "context": "first.out", "heads": HEADS, "qkv": "first.qkv"}
    points, _ = watched(model, lambda: model(IDS), Adapter(**table))
    assert layers_of(points, "QKV_mat_mul") == [0, 1]
    points, _ = watched(model, lambda: model(IDS), Adapter(**table, qkv_order="grouped"))
    assert layers_of(points, "QKV_mat_mul") == []
    assert "q 0–15, k 16–31, v 32–47" in (points.flags["QKV_mat_mul"].reason or "")


def _plain(model: nn.Module) -> Tensor:
    return model(IDS).sum()


def _autocast(model: nn.Module) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model(IDS).float().sum()


def _inference(model: nn.Module) -> Tensor:
    with torch.inference_mode():
        return model(IDS).sum()


@pytest.mark.parametrize("way", [_plain, _autocast, _inference])
def test_it_is_seen_whatever_surrounds_the_pass(way: Callable[[nn.Module], Tensor]) -> None:
    model = Stack(Block(), Block())
    watch = PassWatch(find_points(model))
    state = torch.get_rng_state()
    with watch:
        seen = way(model)
    assert torch.equal(seen, way(model))
    assert torch.equal(state, torch.get_rng_state())
    points = watch.finish()
    has_all(points, [0, 1])


@pytest.mark.parametrize("reentrant", [True, False])
def test_it_is_seen_through_activation_checkpointing(reentrant: bool) -> None:
    class Checkpointed(Stack):
        def forward(self, ids: Tensor, *more: Tensor) -> Tensor:
            x = self.words(ids)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=reentrant)
            return x

    model = Checkpointed(Block(), Block())
    watch = PassWatch(find_points(model))
    with watch:
        loss = model(IDS).sum()
    points = watch.finish()
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    has_all(points, [0, 1])


def test_it_is_seen_where_a_compiled_model_runs_without_its_compiled_code() -> None:
    model = Stack(Block(), Block())
    compiled = torch.compile(model, backend="eager")
    compiled(IDS)
    watch = PassWatch(find_points(compiled))
    with torch.compiler.set_stance("force_eager"), torch.no_grad(), watch:
        compiled(IDS)
    points = watch.finish()
    has_all(points, [0, 1])
    compiled(IDS)


def test_a_pass_that_fails_teaches_nothing() -> None:
    model = Stack(Block(), Block())
    before = find_points(model)
    watch = PassWatch(before)
    with contextlib.suppress(IndexError), watch:
        model(IDS + 100)
    assert watch.finish() is before
    assert watch.changed == set()
    assert not any(module._forward_hooks for module in model.modules())


def test_a_model_that_catches_an_error_of_its_own_is_seen() -> None:
    class Catches(Stack):
        def forward(self, ids: Tensor, *more: Tensor) -> Tensor:
            with contextlib.suppress(IndexError):
                self.words(ids + 100)
            return super().forward(ids)

    model = Catches(Block(), Block())
    points, _ = watched(model, lambda: model(IDS))
    assert layers_of(points, "QKV_mat_mul") == [0, 1]


def test_the_table_shows_flag_layers_modules_and_evidence() -> None:
    model = Stack(Block(), Block())
    points, _ = watched(model, lambda: model(IDS))
    rows = {row.flag: row for row in points_table(points)}
    assert rows["QKV_mat_mul"].layers == "0–1"
    assert rows["QKV_mat_mul"].where == "q = blocks.*.first.a; k = blocks.*.first.b; v = blocks.*.first.c"
    assert rows["RawAttentionScore_mat_mul"].where == ""
    assert "not seen — The attention is computed by" in repr(points)
