"""Ways to make queries, keys and values of one layer, and to read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from ..job import Job, add_script, script
from ..layouts import LAYOUTS, per_group, thirds
from ..parts import GPT, HEADS, WIDTH, Attention, split_heads, train


def fused(cut: Callable[[Tensor], Sequence[Tensor]], share: float) -> None:
    """Add the script of one layout."""

    class Fused(Attention):
        def build(self) -> None:
            self.qkv = nn.Linear(WIDTH, int(share * WIDTH), bias=False)

        def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = cut(self.qkv(x))
            return q, k, v

    def run(job: Job) -> None:
        train(job, GPT(Fused))

    add_script(run, f"fused_{cut.__name__}", cut.__doc__ or "", quick=cut in (thirds, per_group))


for layout, features in LAYOUTS.items():
    fused(layout, features)


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
            kv = self.to_kv(x).view(*x.shape[:2], HEADS, 2, -1).transpose(1, 2)
            return split_heads(self.to_q(x)), kv[..., 0, :], kv[..., 1, :]

    train(job, GPT(KeyValue))
