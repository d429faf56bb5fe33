"""Layers that are called otherwise than one after the other: lists in lists, by .forward, by their names."""

from __future__ import annotations

from torch import Tensor, nn

from ..job import Job, script, see
from ..parts import GPT, MLP, WIDTH, Attention, Block, train


@script()
def list_with_none(job: Job) -> None:
    """Each layer is a ModuleList of norms, a block and None, in one flat list that alternates, as
    x-transformers has it.
    """

    class Alternating(GPT):
        def __init__(self) -> None:
            super().__init__()
            del self.blocks
            layers = []
            for number in range(2):
                for block in (Attention(2 * number), MLP(2 * number + 1)):
                    layers.append(
                        nn.ModuleList([nn.ModuleList([nn.LayerNorm(WIDTH), None, None]), block, None])
                    )
            self.layers = nn.ModuleList(layers)

        def run(self, x: Tensor) -> Tensor:
            for number, (norms, block, _) in enumerate(self.layers):
                x = x + block(norms[0](x))
                see("HiddenStates", number, x)
            return x

    train(job, Alternating())


@script()
def layers_by_name(job: Job) -> None:
    """No list: layer1 and layer2 are attributes, and one has no attention."""

    class Named(GPT):
        def __init__(self) -> None:
            super().__init__(layers=0)
            self.layer1, self.layer2 = Block(0), Block(1)

        def run(self, x: Tensor) -> Tensor:
            return self.layer2(self.layer1(x))

    train(job, Named())


@script(quick=True)
def added_outside(job: Job) -> None:
    """Layers are lists of an attention and an MLP with norms in them; the model adds the residuals."""

    class Attends(Attention):
        def build(self) -> None:
            super().build()
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(self.norm(x))

    class Feeds(MLP):
        def __init__(self, layer: int) -> None:
            super().__init__(layer)
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(self.norm(x))

    class Listed(GPT):
        def __init__(self) -> None:
            super().__init__()
            del self.blocks
            self.layers = nn.ModuleList(nn.ModuleList([Attends(at), Feeds(at)]) for at in range(2))

        def run(self, x: Tensor) -> Tensor:
            for number, (attention, feed) in enumerate(self.layers):
                x = attention(x) + x
                x = feed(x) + x
                see("HiddenStates", number, x)
            return x

    train(job, Listed())


@script()
def layers_by_forward(job: Job) -> None:
    """The layers themselves are called by .forward, what is in them as usual."""

    class Direct(GPT):
        def run(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block.forward(x)
            return x

    train(job, Direct())
