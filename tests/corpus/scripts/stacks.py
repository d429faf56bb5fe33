"""Models that are no single list of equal decoder layers: pairs, towers, stages, shared layers, none at
all.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..job import Job, script, see
from ..parts import (
    GPT,
    HEADS,
    LENGTH,
    MLP,
    WIDTH,
    WORDS,
    Attention,
    Block,
    cross_entropy,
    join_heads,
    split_heads,
    train,
)


class Both(Attention):
    """Attention in both directions."""

    causal = False


class Cross(nn.Module):
    """Attention to another sequence; no flag is of it."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (
            split_heads(self.q_proj(x)),
            split_heads(self.k_proj(memory)),
            split_heads(self.v_proj(memory)),
        )
        return self.out_proj(join_heads(F.scaled_dot_product_attention(q, k, v)))


class CrossBlock(Block):
    def __init__(self, layer: int) -> None:
        super().__init__(layer)
        self.ln_cross, self.cross = nn.LayerNorm(WIDTH), Cross()

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        x = x + self.cross(self.ln_cross(x), memory)
        x = x + self.mlp(self.ln2(x))
        see("HiddenStates", self.layer, x)
        return x


def translated(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(model(source, target[:, :-1]), target[:, 1:])


@script(stacks=True)
def bart_like(job: Job) -> None:
    """Encoder and decoder with cross-attention, one embedding for both."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Embedding(WORDS, WIDTH)
            self.encoder = nn.ModuleList(Block(layer, Both) for layer in range(2))
            self.decoder = nn.ModuleList(CrossBlock(2 + layer) for layer in range(2))

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            see("InputTokens", -1, ids=source)
            see("InputTokens", -1, ids=target)
            memory = self.shared(source)
            for layer in self.encoder:
                memory = layer(memory)
            x = self.shared(target)
            for layer in self.decoder:
                x = layer(x, memory)
            return x @ self.shared.weight.T

    train(job, Pair(), loss=translated)


@script(stacks=True)
def t5_like(job: Job) -> None:
    """Sub-layers in a list of each block, relative positions that the first layer makes for all, no scaling
    of scores.
    """

    class Relative(Attention):
        def build(self) -> None:
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in "qkv")
            self.bias = nn.Embedding(2 * LENGTH, HEADS) if self.layer in (0, 2) else None

        def forward(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
            q, k, v = split_heads(self.q(x)), split_heads(self.k(x)), split_heads(self.v(x))
            see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
            if self.bias is not None:
                at = torch.arange(x.shape[1])
                bias = self.bias(at[None] - at[:, None] + LENGTH).permute(2, 0, 1)[None]
            probabilities = F.softmax((q @ k.transpose(2, 3) + bias).float(), dim=-1)
            see("RawAttentionScore_mat_mul", self.layer, probabilities)
            return self.projected(join_heads(F.dropout(probabilities, 0.1, self.training) @ v)), bias

    class Layer(nn.Module):
        def __init__(self, number: int, crosses: bool) -> None:
            super().__init__()
            self.number = number
            self.layer = nn.ModuleList([Relative(number), *([Cross()] if crosses else []), MLP(number)])
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in self.layer)

        def forward(self, x: Tensor, bias: Tensor | None, memory: Tensor | None) -> tuple[Tensor, Tensor]:
            out, bias = self.layer[0](self.norms[0](x), bias)
            x = x + out
            if len(self.layer) > 2:
                x = x + self.layer[1](self.norms[1](x), memory)
            x = x + self.layer[-1](self.norms[-1](x))
            see("HiddenStates", self.number, x)
            return x, bias

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Embedding(WORDS, WIDTH)
            self.encoder = nn.ModuleList(Layer(each, False) for each in range(2))
            self.decoder = nn.ModuleList(Layer(2 + each, True) for each in range(2))
            self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            see("InputTokens", -1, ids=source)
            see("InputTokens", -1, ids=target)
            memory, bias = self.shared(source), None
            for block in self.encoder:
                memory, bias = block(memory, bias, None)
            x, bias = self.shared(target), None
            for block in self.decoder:
                x, bias = block(x, bias, memory)
            return self.lm_head(x)

    train(job, Pair(), loss=translated)


@script(stacks=True)
def clip_like(job: Job) -> None:
    """A tower for pictures and one for words, and a contrastive loss of what both give."""

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.words = nn.Conv2d(3, WIDTH, 4, 4), nn.Embedding(WORDS, WIDTH)
            self.visual = nn.ModuleList(Block(layer, Both) for layer in range(2))
            self.textual = nn.ModuleList(Block(2 + layer) for layer in range(3))
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, pictures: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
            x = self.patches(pictures).flatten(2).transpose(1, 2)
            for block in self.visual:
                x = block(x)
            see("InputTokens", -1, ids=ids)
            y = self.words(ids)
            for block in self.textual:
                y = block(y)
            a, b = F.normalize(x.mean(1), dim=-1), F.normalize(y[:, -1], dim=-1)
            scores = self.scale.exp() * a @ b.T
            return scores, scores.T

    def contrasted(model: nn.Module, ids: Tensor, _: Tensor) -> Tensor:
        pictures = ids[:, :1, None, None].float().expand(-1, 3, 8, 8) * torch.linspace(0, 0.1, 8)
        by_picture, by_text = model(pictures, ids)
        own = torch.arange(ids.shape[0])
        return (F.cross_entropy(by_picture, own) + F.cross_entropy(by_text, own)) / 2

    train(job, Towers(), loss=contrasted)


def pictures(count: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(3, 3, 8, 8, generator=generator), torch.randint(0, 5, (3,), generator=generator))
        for _ in range(count)
    ]


def train_pictures(job: Job, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    train(
        job,
        model,
        pictures(),
        loss=lambda model, batch, kinds: F.cross_entropy(model(batch), kinds),
        optimizer=optimizer,
    )


@script(quick=True)
def vit_like(job: Job) -> None:
    """Patches, a class token, blocks that read qkv as (3, heads, d), a head on the class token."""

    class Outermost(Both):
        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
            return q, k, v

    class Vision(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch_embed = nn.Conv2d(3, WIDTH, kernel_size=4, stride=4)
            self.cls_token, self.pos_embed = (
                nn.Parameter(torch.zeros(1, 1, WIDTH)),
                nn.Parameter(torch.randn(1, 5, WIDTH) * 0.02),
            )
            self.blocks = nn.Sequential(*(Block(layer, Outermost) for layer in range(2)))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.patch_embed(x).flatten(2).transpose(1, 2)
            x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), 1) + self.pos_embed
            return self.head(self.norm(self.blocks(x))[:, 0])

    train_pictures(job, Vision())


@script(stacks=True)
def swin_like(job: Job) -> None:
    """Two stages of different widths, attention inside of windows, patches merged between them."""

    class Windowed(nn.Module):
        def __init__(self, layer: int, width: int) -> None:
            super().__init__()
            self.layer, self.heads = layer, width // 4
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            batch, height, wide, width = x.shape
            windows = (
                self.norm1(x)
                .view(batch, height // 2, 2, wide // 2, 2, width)
                .transpose(2, 3)
                .reshape(-1, 4, width)
            )
            q, k, v = self.qkv(windows).reshape(-1, 4, 3, self.heads, 4).permute(2, 0, 3, 1, 4)
            see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
            context = join_heads(F.scaled_dot_product_attention(q, k, v))
            see("ContextLayer_mat_mul", self.layer, context)
            out = self.proj(context)
            see("AttentionOutput_mat_mul", self.layer, out)
            x = x + out.view(batch, height // 2, wide // 2, 2, 2, width).transpose(2, 3).reshape(x.shape)
            inner = self.fc1(self.norm2(x))
            see("MLP1_mat_mul", self.layer, inner)
            out = self.fc2(F.gelu(inner))
            see("MLP2_mat_mul", self.layer, out)
            x = x + out
            see("HiddenStates", self.layer, x)
            return x

    class Stages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 8, 2, 2)
            self.stages = nn.ModuleList((
                nn.ModuleList(Windowed(layer, 8) for layer in range(2)),
                nn.ModuleList(Windowed(2 + layer, 16) for layer in range(2)),
            ))  # fmt: skip
            self.merge, self.head = nn.Linear(32, 16), nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.patch(x).permute(0, 2, 3, 1)
            for layer in self.stages[0]:
                x = layer(x)
            x = self.merge(
                torch.cat((x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]), -1)
            )
            for layer in self.stages[1]:
                x = layer(x)
            return self.head(x.mean((1, 2)))

    train_pictures(job, Stages())


@script()
def mamba_like(job: Job) -> None:
    """Layers without attention: a gated state-space mixer."""

    class Mixer(nn.Module):
        def __init__(self, layer: int, *_: object) -> None:
            super().__init__()
            self.layer = layer
            self.norm, self.in_proj, self.out_proj = (
                nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, 64),
                nn.Linear(32, WIDTH),
            )
            self.conv1d = nn.Conv1d(32, 32, 3, groups=32, padding=2)
            self.x_proj, self.A_log = nn.Linear(32, 32), nn.Parameter(torch.zeros(32))

        def forward(self, x: Tensor) -> Tensor:
            projected = self.in_proj(self.norm(x))
            see("MLP1_mat_mul", self.layer, projected, may=True)
            states, gate = projected.chunk(2, -1)
            states = F.silu(self.conv1d(states.mT)[..., : x.shape[1]].mT)
            decay = torch.sigmoid(self.x_proj(states) - self.A_log.exp())
            state, outs = torch.zeros_like(states[:, 0]), []
            for at in range(x.shape[1]):
                state = decay[:, at] * state + (1 - decay[:, at]) * states[:, at]
                outs.append(state)
            out = self.out_proj(torch.stack(outs, 1) * F.silu(gate))
            see("MLP2_mat_mul", self.layer, out, may=True)
            x = x + out
            see("HiddenStates", self.layer, x)
            return x

    train(job, GPT(block=Mixer))


@script()
def albert_like(job: Job) -> None:
    """One layer that is called three times a pass."""

    class Shared(GPT):
        def __init__(self) -> None:
            super().__init__(layers=1)

        def run(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = self.blocks[0](x)
            return x

    train(job, Shared())


@script()
def module_in_two_layers(job: Job) -> None:
    """Layers of their own that share one MLP, which a list holds twice."""
    model = GPT()
    model.blocks[1].mlp = model.blocks[0].mlp
    shared = model.blocks[0].mlp
    # What it shows is of the layer that calls it.
    for number, block in enumerate(model.blocks):
        job.show(
            lambda number=number, block=block: (
                block.ln2.register_forward_hook(lambda *_: setattr(shared, "layer", number)).remove
            )
        )
    train(job, model)


@script()
def no_transformer(job: Job) -> None:
    """A small convolutional net: nothing of a transformer is there."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    train_pictures(job, model)
