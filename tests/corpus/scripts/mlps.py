"""MLPs: fused halves in both orders, other activations, experts, and beside the attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..job import Job, add_script, script, see
from ..parts import GPT, MLP, WIDTH, Block, train

INNER = 24
Halves = Callable[[Tensor], Sequence[Tensor]]


class Fused(nn.Module):
    """One layer for gate and up. ``halves`` gives (gate, up) of it."""

    def __init__(self, layer: int, halves: Halves, activate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.halves, self.activate = layer, halves, activate
        self.proj_in, self.proj_out = nn.Linear(WIDTH, 2 * INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.halves(self.proj_in(x))
        see("MLP1_mat_mul", self.layer, gate=gate, up=up)
        out = self.proj_out(self.activate(gate) * up)
        see("MLP2_mat_mul", self.layer, out)
        return out


def fused(name: str, about: str, halves: Halves, activate: Callable[[Tensor], Tensor] = F.silu) -> None:
    """Add the script of one way to cut the layer."""

    def run(job: Job) -> None:
        train(job, GPT(mlp=lambda layer: Fused(layer, halves, activate)))

    add_script(run, name, about, quick=name == "swiglu_gate_first")


fused(
    "geglu_gate_second",
    "x, gate = proj(x).chunk(2): the second half is the gate, as in x-transformers and diffusers.",
    lambda x: x.chunk(2, dim=-1)[::-1],
    F.gelu,
)
fused(
    "swiglu_gate_first",
    "gate, up = proj(x).chunk(2): the first half is the gate.",
    lambda x: x.chunk(2, dim=-1),
)
fused(
    "swiglu_gate_second",
    "The same with silu on the second half.",
    lambda x: (x[..., INNER:], x[..., :INNER]),
)
fused(
    "swiglu_interleaved",
    "Gate and up take turns, feature by feature, as GPT-OSS has them.",
    lambda x: (x[..., ::2], x[..., 1::2]),
)


@script()
def swiglu_names_swapped(job: Job) -> None:
    """Two layers whose names say the opposite of what is done with them."""

    class Swapped(nn.Module):
        def __init__(self, layer: int) -> None:
            super().__init__()
            self.layer = layer
            self.gate_proj, self.up_proj = nn.Linear(WIDTH, INNER), nn.Linear(WIDTH, INNER)
            self.down_proj = nn.Linear(INNER, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            gate, up = self.up_proj(x), self.gate_proj(x)
            see("MLP1_mat_mul", self.layer, gate=gate, up=up)
            out = self.down_proj(up * F.silu(gate))
            see("MLP2_mat_mul", self.layer, out)
            return out

    train(job, GPT(mlp=Swapped))


@script()
def mlp_in_sequential(job: Job) -> None:
    """Linear, GELU, Dropout, Linear in one Sequential, as tutorials write it."""

    class Tutorial(nn.Sequential):
        def __init__(self, layer: int) -> None:
            super().__init__(nn.Linear(WIDTH, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, WIDTH))
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            for number, module in enumerate(self):
                x = module(x)
                if number in (0, 3):
                    see("MLP2_mat_mul" if number else "MLP1_mat_mul", self.layer, x)
            return x

    train(job, GPT(mlp=Tutorial))


@script()
def attention_beside_mlp(job: Job) -> None:
    """Both read one norm's output and are added at once, as in GPT-J."""

    class Parallel(Block):
        def forward(self, x: Tensor) -> Tensor:
            normed = self.ln1(x)
            x = x + self.attn(normed) + self.mlp(normed)
            see("HiddenStates", self.layer, x)
            return x

    train(job, GPT(block=Parallel))


@script()
def bare_layers_in_block(job: Job) -> None:
    """The MLP's two layers stand in the block itself, with drop path on the residual."""

    class Bare(Block):
        def __init__(self, layer: int, attention: type[nn.Module], mlp: type[nn.Module]) -> None:
            super().__init__(layer, attention, mlp)
            del self.mlp
            self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attn(self.ln1(x))
            inner = self.up(self.ln2(x))
            see("MLP1_mat_mul", self.layer, inner)
            out = self.down(torch.relu(inner))
            see("MLP2_mat_mul", self.layer, out)
            x = x + F.dropout(out, 0.1, self.training)
            see("HiddenStates", self.layer, x)
            return x

    train(job, GPT(mlp=MLP, block=Bare))
