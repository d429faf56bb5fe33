"""What recent public training code does with a layer: streams that are mixed again, norms behind the branches,
rotations by small matrices, one more axis.
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
    batches,
    cross_entropy,
    join_heads,
    split_heads,
    train,
)
from .attentions import HEAD, Gated, RMSNorm, Rotated, Squared

LAYERS = 4


def norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],))


class ValueEmbedded(Attention):
    """Values are a weighted sum of a projection and rows of an embedding; a gate is on each head."""

    def build(self) -> None:
        self.c_q, self.c_k, self.c_v = (nn.Linear(WIDTH, WIDTH, False) for _ in "qkv")
        self.mix = nn.Parameter(torch.tensor([0.7, 0.3]))
        self.gate = nn.Linear(4, HEADS, False)

    def forward(self, x: Tensor, extra: Tensor | None) -> Tensor:
        q, k, v = (split_heads(each(x)) for each in (self.c_q, self.c_k, self.c_v))
        see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
        v = self.mix[0] * v if extra is None else self.mix[0] * v + self.mix[1] * split_heads(extra)
        heads = F.scaled_dot_product_attention(norm(q), norm(k), v, is_causal=True, scale=0.12)
        gates = torch.sigmoid(self.gate(x[..., :4])).transpose(1, 2).unsqueeze(-1)
        return self.projected(join_heads(heads * gates))


class Mixing(nn.Module):
    """A layer whose stream is mixed with the first one; one of them has no attention."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.attn = None if layer == 2 else ValueEmbedded(layer)
        self.mlp = Squared(layer)

    def forward(self, x: Tensor, first: Tensor, extra: Tensor | None, mix: Tensor) -> Tensor:
        x = mix[0] * x + mix[1] * first
        if self.attn is not None:
            x = x + self.attn(norm(x), extra)
        x = x + self.mlp(norm(x))
        see("HiddenStates", self.layer, x)
        return x


@script()
def speedrun_like(job: Job) -> None:
    """One long sequence, layers joined across the middle, embeddings of values, logits that are capped."""

    class Speedrun(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(WORDS, WIDTH)
            self.value_embeds = nn.ModuleList(nn.Embedding(WORDS, WIDTH) for _ in range(2))
            self.blocks = nn.ModuleList(Mixing(layer) for layer in range(LAYERS))
            self.scalars = nn.Parameter(torch.ones(LAYERS, 3))
            self.lm_head = nn.Linear(WIDTH, WORDS, False)

        def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
            see("InputTokens", -1, ids=ids)
            extra = [each(ids) for each in self.value_embeds]
            x = first = norm(self.embed(ids))
            skipped: list[Tensor] = []
            for number, (block, mix) in enumerate(zip(self.blocks, self.scalars, strict=True)):
                if number >= LAYERS // 2:
                    x = x + mix[2] * skipped.pop()
                x = block(x, first, extra[number % 2] if number in (0, 3) else None, mix)
                if number < LAYERS // 2:
                    skipped.append(x)
            logits = 15 * torch.tanh(self.lm_head(norm(x)).float() / 15)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    model = Speedrun()
    matrices = [each for each in model.blocks.parameters() if each.ndim > 1]
    others = [each for each in model.parameters() if all(each is not one for one in matrices)]
    optimizers = torch.optim.SGD(matrices, 1e-3, momentum=0.9, nesterov=True), torch.optim.Adam(others, 1e-2)
    job.watch(model, *optimizers)
    for ids, targets in batches(size=1):
        with job.step():
            loss = model(ids, targets)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            model.zero_grad(set_to_none=True)
            job.loss(loss)


@script()
def norms_behind(job: Job) -> None:
    """Norms stand behind attention and MLP, queries and keys are normed over all heads, layers lie in a
    dictionary, and the loss has a second part of the logits.
    """

    class Normed(Rotated):
        def build(self) -> None:
            super().build()
            self.q_norm, self.k_norm = RMSNorm(), RMSNorm(self.few * HEAD)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.wq(x), self.wk(x), self.wv(x)
            see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
            q, k = split_heads(self.q_norm(q)), split_heads(self.k_norm(k), self.few)
            return self.projected(join_heads(self.attend(q, k, split_heads(v, self.few))))

    class Behind(Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.ln1(self.attn(x))
            x = x + self.ln2(self.mlp(x))
            see("HiddenStates", self.layer, x)
            return x

    class Named(GPT):
        def __init__(self) -> None:
            super().__init__(Normed, Gated, block=Behind)
            self.blocks = nn.ModuleDict({str(number): each for number, each in enumerate(self.blocks)})  # type: ignore[assignment]

        def run(self, x: Tensor) -> Tensor:
            for block in self.blocks.values():  # type: ignore[operator]
                x = block(x)
            return x

    def of_two_parts(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        logits = model(ids)
        return cross_entropy(logits, targets) + 1e-4 * logits.logsumexp(-1).pow(2).mean()

    train(job, Named(), loss=of_two_parts)


@script(quick=True)
def rotated_by_matrices(job: Job) -> None:
    """Each pair of features is rotated by a matrix of two by two, and summed over the pair."""

    class Turned(Rotated):
        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            angles = torch.outer(torch.arange(LENGTH), 10.0 ** (-torch.arange(HEAD // 2.0)))
            turns = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), -1)
            turns = turns.view(LENGTH, HEAD // 2, 2, 2)[: q.shape[2]]
            q, k = ((x.reshape(*x.shape[:-1], -1, 1, 2) * turns).sum(-1).flatten(-2) for x in (q, k))
            return Attention.attend(self, q, k, v)

    train(job, GPT(Turned, Gated))


@script()
def one_more_axis(job: Job) -> None:
    """The stream has an axis of one between samples and positions."""

    def narrow(x: Tensor) -> Tensor:
        return x.squeeze(1)

    class Wide(Attention):
        shaped = staticmethod(narrow)

        def forward(self, x: Tensor) -> Tensor:
            flat = self.qkv(x)
            q, k, v = (split_heads(each.squeeze(1)) for each in flat.chunk(3, -1))
            see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
            return self.projected(join_heads(self.attend(q, k, v)).unsqueeze(1))

    class WideMLP(MLP):
        shaped = staticmethod(narrow)

    class WideBlock(Block):
        shaped = staticmethod(narrow)

    class WideGPT(GPT):
        def run(self, x: Tensor) -> Tensor:
            return super().run(x.unsqueeze(1)).squeeze(1)

    train(job, WideGPT(Wide, WideMLP, block=WideBlock))
