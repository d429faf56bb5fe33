"""Ways to make queries, keys and values of one layer, and to read them."""

from __future__ import annotations

from torch import Tensor, nn

from ..job import Job, script
from ..parts import GPT, HEADS, WIDTH, Attention, split_heads, train

HEAD = WIDTH // HEADS


@script(quick=True)
def fused_thirds(job: Job) -> None:
    """q, k and v are thirds of one layer, as nanoGPT cuts them."""
    train(job, GPT())


@script()
def fused_per_head(job: Job) -> None:
    """Each head has its (q k v) beside one another: reshape(B, S, H, 3d).chunk(3, -1), as tutorials write
    it.
    """

    class PerHead(Attention):
        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            batch, length, _ = x.shape
            qkv = self.qkv(x).reshape(batch, length, HEADS, 3 * HEAD).permute(0, 2, 1, 3)
            q, k, v = qkv.chunk(3, dim=-1)
            return q, k, v

    train(job, GPT(PerHead))


@script()
def fused_h_d_qkv(job: Job) -> None:
    """The three are the innermost axis: view(B, S, H, d, 3)."""

    class Innermost(Attention):
        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            qkv = self.qkv(x).view(*x.shape[:2], HEADS, HEAD, 3)
            q, k, v = qkv.permute(4, 0, 2, 1, 3).unbind(0)
            return q, k, v

    train(job, GPT(Innermost))


@script()
def fused_qkv_h_d(job: Job) -> None:
    """The three are the outermost axis: reshape(B, S, 3, H, d).permute(2, 0, 3, 1, 4), as vision
    transformers have it.
    """

    class Outermost(Attention):
        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            qkv = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
            return qkv[0], qkv[1], qkv[2]

    train(job, GPT(Outermost))


@script()
def fused_v_first(job: Job) -> None:
    """Thirds in another order: values, keys, queries."""

    class Backwards(Attention):
        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            v, k, q = (split_heads(each) for each in self.qkv(x).split(WIDTH, dim=2))
            return q, k, v

    train(job, GPT(Backwards))


@script(quick=True)
def fused_per_group(job: Job) -> None:
    """Of each group its queries, its key, its value; the counts have names of their own, as litgpt's
    n_query_groups.
    """

    class Grouped(Attention):
        n_query_groups = 2

        def build(self) -> None:
            self.per_group = HEADS // self.n_query_groups
            self.attn = nn.Linear(WIDTH, (HEADS + 2 * self.n_query_groups) * HEAD, bias=False)

        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            batch, length, _ = x.shape
            qkv = self.attn(x).view(batch, length, self.n_query_groups, self.per_group + 2, HEAD)
            qkv = qkv.permute(0, 2, 3, 1, 4)
            q, k, v = qkv.split((self.per_group, 1, 1), dim=2)
            return (
                q.reshape(batch, -1, length, HEAD),
                k.reshape(batch, -1, length, HEAD),
                v.reshape(batch, -1, length, HEAD),
            )

    train(job, GPT(Grouped))


@script()
def fused_grouped_blocks(job: Job) -> None:
    """All queries, then the fewer keys, then the fewer values; their number is called n_kv."""

    class FewKeys(Attention):
        n_kv = 2

        def build(self) -> None:
            self.Wqkv = nn.Linear(WIDTH, WIDTH + 2 * self.n_kv * HEAD)

        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = self.Wqkv(x).split([WIDTH, self.n_kv * HEAD, self.n_kv * HEAD], dim=-1)
            return split_heads(q), split_heads(k, self.n_kv), split_heads(v, self.n_kv)

    train(job, GPT(FewKeys))


@script()
def fused_keys_values(job: Job) -> None:
    """A layer for queries, and one that gives keys and values, each key beside its value."""

    class KeyValue(Attention):
        def build(self) -> None:
            self.to_q, self.to_kv = (
                nn.Linear(WIDTH, WIDTH, bias=False),
                nn.Linear(WIDTH, 2 * WIDTH, bias=False),
            )

        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            kv = self.to_kv(x).view(*x.shape[:2], HEADS, 2, HEAD).transpose(1, 2)
            return split_heads(self.to_q(x)), kv[..., 0, :], kv[..., 1, :]

    train(job, GPT(KeyValue))
