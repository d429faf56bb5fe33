"""Attentions that are written out: with a softmax in them, rotations, norms, an einsum, or a module without
a call.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..job import Job, script, see
from ..parts import GPT, HEADS, LENGTH, MLP, WIDTH, Attention, Block, join_heads, split_heads, train

HEAD = WIDTH // HEADS


def rotate(x: Tensor) -> Tensor:
    """Rotary positions, halves."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2]), 10.0 ** (-torch.arange(half) / half))
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


@script(quick=True)
def softmax_and_dropout(job: Job) -> None:
    """The softmax's result goes into a dropout module, as in minGPT: no module gives the probabilities."""

    class Written(Attention):
        def build(self) -> None:
            super().build()
            self.attn_dropout = nn.Dropout(0.1)
            self.register_buffer("mask", torch.ones(LENGTH, LENGTH).tril().bool())

        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            length = q.shape[2]
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
            scores = scores.masked_fill(~self.mask[:length, :length], -torch.inf)
            probabilities = F.softmax(scores, dim=-1)
            see("RawAttentionScore_mat_mul", self.layer, probabilities)
            return self.attn_dropout(probabilities) @ v

    train(job, GPT(Written))


@script()
def softmax_module(job: Job) -> None:
    """The softmax is a module, with separate layers for q, k and v of other names: the transformer of a
    course.
    """

    class Course(Attention):
        def build(self) -> None:
            self.lin_query, self.lin_key, self.lin_value = (nn.Linear(WIDTH, WIDTH) for _ in "qkv")
            self.softmax = nn.Softmax(dim=-1)

        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = (split_heads(each(x)) for each in (self.lin_query, self.lin_key, self.lin_value))
            return q, k, v

        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = torch.matmul(q, k.mT) * HEAD**-0.5
            scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1)
            probabilities = self.softmax(scores)
            see("RawAttentionScore_mat_mul", self.layer, probabilities)
            return torch.matmul(probabilities, v)

    train(job, GPT(Course))


@script()
def einsum_attention(job: Job) -> None:
    """Everything by einsum, with key and value layers named the other way round than they are used."""

    class Einsum(Attention):
        def build(self) -> None:
            self.q_proj, self.v_proj, self.k_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in "qkv")

        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # What is called v_proj makes the keys.
            q, k, v = (split_heads(each(x)) for each in (self.q_proj, self.v_proj, self.k_proj))
            return q, k, v

        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = torch.einsum("bhid,bhjd->bhij", q, k) * HEAD**-0.5
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -1e9)
            probabilities = scores.softmax(-1)
            see("RawAttentionScore_mat_mul", self.layer, probabilities)
            return torch.einsum("bhij,bhjd->bhid", probabilities, v)

    train(job, GPT(Einsum))


class RMSNorm(nn.Module):
    def __init__(self, size: int = WIDTH) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Rotated(Attention):
    """Grouped queries with rotary positions, names as in llama2.c: wq, wk, wv."""

    few = 2

    def build(self) -> None:
        self.wq = nn.Linear(WIDTH, WIDTH, bias=False)
        self.wk, self.wv = (nn.Linear(WIDTH, self.few * HEAD, bias=False) for _ in "kv")

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return split_heads(self.wq(x)), split_heads(self.wk(x), self.few), split_heads(self.wv(x), self.few)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(rotate(q), rotate(k), v)


class Gated(nn.Module):
    """w2(silu(w1(x)) * w3(x)), as in Llama's own code."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.w1, self.w2, self.w3 = (
            nn.Linear(WIDTH, 24, bias=False),
            nn.Linear(24, WIDTH, bias=False),
            nn.Linear(WIDTH, 24, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.w1(x), self.w3(x)
        see("MLP1_mat_mul", self.layer, gate=gate, up=up)
        out = self.w2(F.silu(gate) * up)
        see("MLP2_mat_mul", self.layer, out)
        return out


@script()
def llama_like(job: Job) -> None:
    """RMS norms, rotary positions, grouped queries, a gated MLP with the names w1, w2, w3."""

    class LlamaBlock(Block):
        def __init__(self, layer: int, attention: type[nn.Module], mlp: type[nn.Module]) -> None:
            super().__init__(layer, attention, mlp)
            self.ln1, self.ln2 = RMSNorm(), RMSNorm()

    train(job, GPT(Rotated, Gated, block=LlamaBlock))


class NoWeightsBlock(nn.Module):
    """Norms without weights are functions."""

    def __init__(self, layer: int, attention: type[nn.Module], mlp: type[nn.Module]) -> None:
        super().__init__()
        self.layer, self.attn, self.mlp = layer, attention(layer), mlp(layer)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(F.rms_norm(x, (WIDTH,)))
        x = x + self.mlp(F.rms_norm(x, (WIDTH,)))
        see("HiddenStates", self.layer, x)
        return x


class Squared(MLP):
    @staticmethod
    def activate(x: Tensor) -> Tensor:
        return F.relu(x).square()


@script(quick=True)
def nanochat_like(job: Job) -> None:
    """c_q, c_k, c_v with rotary positions and normed queries and keys, functional norms, relu squared;
    weights of the head not tied.
    """

    class Normed(Rotated):
        def build(self) -> None:
            self.c_q = nn.Linear(WIDTH, WIDTH, bias=False)
            self.c_k, self.c_v = (nn.Linear(WIDTH, self.few * HEAD, bias=False) for _ in "kv")

        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = self.c_q(x), self.c_k(x), self.c_v(x)
            return split_heads(q), split_heads(k, self.few), split_heads(v, self.few)

        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k = (F.rms_norm(rotate(each), (HEAD,)) for each in (q, k))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    train(job, GPT(Normed, Squared, block=NoWeightsBlock))


@script()
def forward_without_call(job: Job) -> None:
    """Blocks are called, what is in them by .forward: no hook of the inner modules runs."""

    class Direct(Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attn.forward(self.ln1.forward(x))
            x = x + self.mlp.forward(self.ln2.forward(x))
            see("HiddenStates", self.layer, x)
            return x

    class DirectAttention(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (split_heads(each) for each in self.qkv.forward(x).chunk(3, -1))
            see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
            context = join_heads(self.attend(q, k, v))
            see("ContextLayer_mat_mul", self.layer, context)
            out = self.proj.forward(context)
            see("AttentionOutput_mat_mul", self.layer, out)
            return out

    train(job, GPT(DirectAttention, block=Direct))


@script()
def functional_linear(job: Job) -> None:
    """Weights are used by F.linear: the layers that hold them are never called."""

    class Functional(Attention):
        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = (split_heads(each) for each in F.linear(x, self.qkv.weight, self.qkv.bias).chunk(3, -1))
            return q, k, v

    class FunctionalMLP(MLP):
        def forward(self, x: Tensor) -> Tensor:
            inner = F.linear(x, self.fc1.weight, self.fc1.bias)
            see("MLP1_mat_mul", self.layer, inner)
            out = self.fc2(F.gelu(inner))
            see("MLP2_mat_mul", self.layer, out)
            return out

    train(job, GPT(Functional, FunctionalMLP))


@script(quick=True)
def dropped_by_a_function(job: Job) -> None:
    """Probabilities go through a functional dropout, and the attention gives what comes of it too."""

    class Returning(Attention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            mask = torch.ones(q.shape[2], q.shape[2]).tril().bool()
            scores = (q @ k.mT / math.sqrt(HEAD)).masked_fill(~mask, -torch.inf)
            self.dropped = F.dropout(F.softmax(scores, -1), 0.2, self.training)
            see("RawAttentionScore_mat_mul", self.layer, self.dropped)
            return self.dropped @ v

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().forward(x), self.dropped

    class Taking(Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attn(self.ln1(x))[0]
            x = x + self.mlp(self.ln2(x))
            see("HiddenStates", self.layer, x)
            return x

    train(job, GPT(Returning, block=Taking))
