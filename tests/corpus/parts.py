"""What several scripts are made of: a small language model whose attention and MLP can be exchanged, and
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .job import Job, Shaped, see

WORDS, WIDTH, HEADS, LAYERS, LENGTH = 41, 16, 4, 2, 7


def batches(
    count: int = 3, size: int = 3, length: int = LENGTH, seed: int = 7
) -> Iterator[tuple[Tensor, Tensor]]:
    """Give batches of ids, each with the ids that follow."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        ids = torch.randint(0, WORDS, (size, length + 1), generator=generator)
        yield ids[:, :-1], ids[:, 1:]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), lr=1e-2)


def next_words(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(model(ids), targets)


def train(
    job: Job,
    model: nn.Module,
    data: Iterable[tuple[Tensor, Tensor]] | None = None,
    *,
    loss: Callable[..., Tensor] = next_words,
    optimizer: torch.optim.Optimizer | None = None,
    clip: float | None = None,
    **tracing: Any,
) -> None:
    """The plainest loop, for scripts that are about the model, or about the ``loss`` of it and a batch."""
    optimizer = optimizer or adam(model)
    job.watch(model, optimizer, **tracing)
    for batch in data or batches():
        with job.step():
            value = loss(model, *batch)
            optimizer.zero_grad()
            value.backward()
            if clip is not None:
                job.reduced()
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            job.loss(value)


def split_heads(x: Tensor, heads: int = HEADS) -> Tensor:
    """``[B, S, H·d]`` to ``[B, H, S, d]``."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """``[B, H, S, d]`` to ``[B, S, H·d]``."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Attention(nn.Module):
    """Causal attention by ``scaled_dot_product_attention``; what makes q, k and v is said by those who
    inherit.
    """

    causal = True
    shaped: Shaped | None = None
    """Brings what comes with other axes into the order of ``see``; so it is of an MLP and a block."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.build()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def build(self) -> None:
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return each as ``[B, H, S, d]``."""
        q, k, v = (split_heads(each) for each in self.qkv(x).chunk(3, -1))
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if k.shape[1] != q.shape[1]:
            k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
        return self.projected(join_heads(self.attend(q, k, v)))

    def projected(self, context: Tensor) -> Tensor:
        see("ContextLayer_mat_mul", self.layer, context, shaped=self.shaped)
        out = self.proj(context)
        see("AttentionOutput_mat_mul", self.layer, out, shaped=self.shaped)
        return out


class MLP(nn.Module):
    activate = staticmethod(F.gelu)
    shaped: Shaped | None = None

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.fc1, self.fc2 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.fc1(x)
        see("MLP1_mat_mul", self.layer, inner, shaped=self.shaped)
        out = self.fc2(self.activate(inner))
        see("MLP2_mat_mul", self.layer, out, shaped=self.shaped)
        return out


class Block(nn.Module):
    shaped: Shaped | None = None

    def __init__(
        self,
        layer: int,
        attention: Callable[[int], nn.Module] = Attention,
        mlp: Callable[[int], nn.Module] = MLP,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = attention(layer), mlp(layer)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        x = x + self.mlp(self.ln2(x))
        see("HiddenStates", self.layer, x, shaped=self.shaped)
        return x


class GPT(nn.Module):
    """Embeddings, blocks, a norm and a head. Give other classes of attention or MLP, or other blocks."""

    def __init__(
        self,
        attention: Callable[[int], nn.Module] = Attention,
        mlp: Callable[[int], nn.Module] = MLP,
        layers: int = LAYERS,
        block: Callable[..., nn.Module] = Block,
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH + 3, WIDTH)
        self.blocks = nn.ModuleList(block(layer, attention, mlp) for layer in range(layers))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def embed(self, ids: Tensor) -> Tensor:
        see("InputTokens", -1, ids=ids)
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def features(self, ids: Tensor) -> Tensor:
        return self.ln_f(self.run(self.embed(ids)))

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.features(ids))
