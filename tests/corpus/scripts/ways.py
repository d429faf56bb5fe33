"""Ways to run a model: checkpointed, in lower precision, compiled, tied, frozen, with adapters, wrapped,
resumed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..job import Job, script, see
from ..parts import (
    GPT,
    LAYERS,
    MLP,
    WIDTH,
    WORDS,
    Attention,
    Block,
    adam,
    batches,
    cross_entropy,
    join_heads,
    split_heads,
    train,
)


class Checkpointed(GPT):
    reentrant = False

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


@script(quick=True)
def checkpointing(job: Job) -> None:
    """Every block is computed again in the backward pass."""
    train(job, Checkpointed())


@script()
def checkpointing_reentrant(job: Job) -> None:
    """The same in the older way, whose first pass has no graph."""

    class Reentrant(Checkpointed):
        reentrant = True

    train(job, Reentrant())


@script()
def checkpointing_every_other(job: Job) -> None:
    """Only the first block is checkpointed, over accumulated micro-batches of other lengths."""

    class Half(GPT):
        def run(self, x: Tensor) -> Tensor:
            return self.blocks[1](checkpoint(self.blocks[0], x, use_reentrant=False))

    model = Half()
    optimizer = adam(model)
    job.watch(model, optimizer)
    for length in (5, 7, 6):
        with job.step():
            optimizer.zero_grad()
            for ids, targets in (*batches(2, length=length), *batches(1, size=2, length=length - 1)):
                loss = cross_entropy(model(ids), targets) / 3
                loss.backward()
                job.loss(loss)
            optimizer.step()


@script()
def autocast(job: Job) -> None:
    """Matrix products in bfloat16 under autocast."""

    def lower(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return cross_entropy(model(ids), targets)

    train(job, GPT(), loss=lower)


@script()
def all_in_bfloat16(job: Job) -> None:
    """Weights, gradients and activations in bfloat16, with float32 master weights of one's own."""
    model = GPT().bfloat16()
    masters = [each.detach().float() for each in model.parameters()]
    job.watch(model)
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            loss.backward()
            job.reduced()
            with torch.no_grad():
                for master, parameter in zip(masters, model.parameters(), strict=True):
                    master.sub_(parameter.grad.float(), alpha=0.1)
                    parameter.copy_(master)
            model.zero_grad()
            job.loss(loss)


@script()
def compiled_model(job: Job) -> None:
    """torch.compile of the model, by a backend that fuses nothing."""
    train(job, job.compile(GPT()), compiled=True)


@script()
def compiled_blocks(job: Job) -> None:
    """Each block compiled by itself, as in torchtitan."""
    model = GPT()
    for number, block in enumerate(model.blocks):
        model.blocks[number] = job.compile(block)
    train(job, model, compiled=True)


@script()
def compiled_optimizer(job: Job) -> None:
    """The optimizer's step is compiled, hooks and all."""
    model = GPT()
    optimizer = adam(model)
    job.watch(model, optimizer)
    step = torch.compile(optimizer.step, backend="aot_eager")
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            optimizer.zero_grad()
            loss.backward()
            step()
            job.loss(loss)


@script(quick=True)
def tied_weights(job: Job) -> None:
    """The head's weight is the embedding's."""
    model = GPT()
    model.head.weight = model.wte.weight
    train(job, model)


class Lora(nn.Module):
    """A frozen layer and a low-rank change of it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = (
            nn.Linear(base.in_features, 2, bias=False),
            nn.Linear(2, base.out_features, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 0.5 * self.b(self.a(x))


@script(quick=True)
def low_rank_adapters(job: Job) -> None:
    """LoRA by hand on the qkv layer and the MLP's second one; all else frozen."""
    model = GPT().requires_grad_(False)
    for block in model.blocks:
        block.attn.qkv, block.mlp.fc2 = Lora(block.attn.qkv), Lora(block.mlp.fc2)
        nn.init.normal_(block.mlp.fc2.b.weight, std=0.1)
    train(job, model)


@script()
def frozen_parts(job: Job) -> None:
    """The embeddings and the first block are frozen; the norms in evaluation mode."""
    model = GPT()
    for part in (model.wte, model.wpe, model.blocks[0]):
        part.requires_grad_(False)
    model.ln_f.eval()
    train(job, model)


@script()
def gradual_unfreezing(job: Job) -> None:
    """Only the head is trained at first; from the second step on everything is."""
    model = GPT()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("head" in name)
    job.watch(model, optimizer)
    for number, (ids, targets) in enumerate(batches()):
        if number == 1:
            model.requires_grad_(True)
        with job.step():
            loss = cross_entropy(model(ids), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            job.loss(loss)


def train_changed(job: Job, change: Callable[[nn.Module], nn.Module]) -> None:
    """Train, and have ``change`` put a module into the model before the third step; it returns that."""
    model = GPT()
    optimizer = adam(model)

    def data() -> Iterator[tuple[Tensor, Tensor]]:
        for number, batch in enumerate(batches(4), 1):
            if number == 3:
                optimizer.add_param_group({"params": [*change(model).parameters()]})
            yield batch

    train(job, model, data(), optimizer=optimizer)


@script(quick=True)
def grown_model(job: Job) -> None:
    """A block is added in the middle of the run, as progressive stacking does."""

    def grow(model: nn.Module) -> nn.Module:
        model.blocks.append(new := Block(LAYERS))
        return new

    train_changed(job, grow)


@script()
def replaced_module(job: Job) -> None:
    """An MLP is replaced by a new one in the middle of the run, as an adapter or a repair does."""

    def replace(model: nn.Module) -> nn.Module:
        model.blocks[0].mlp = MLP(0)
        return model.blocks[0].mlp

    train_changed(job, replace)


@script(quick=True)
def resumed(job: Job) -> None:
    """Two steps, a checkpoint of the first, and the training again from there with a model that was made
    anew.
    """

    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = GPT()
        return model, adam(model)

    def steps(data: Iterator[tuple[Tensor, Tensor]], count: int) -> None:
        for _ in range(count):
            ids, targets = next(data)
            with job.step():
                loss = cross_entropy(model(ids), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                job.loss(loss)

    model, optimizer = made()
    job.watch(model, optimizer)
    steps(batches(1), 1)
    saved = copy.deepcopy((dict(model.state_dict()), optimizer.state_dict()))
    steps(batches(1, seed=8), 1)
    model, optimizer = made()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    job.restart(model, optimizer, first_step=2)
    steps(batches(2, seed=9), 2)


@script()
def wrapped_by_trainer(job: Job) -> None:
    """A module that holds the model and gives the loss, as Lightning's; what is watched is the outer one."""

    class Trainable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT()

        def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
            return cross_entropy(self.model(batch[0]), batch[1])

    train(job, Trainable(), loss=lambda module, *batch: module(batch))


@script()
def called_by_forward(job: Job) -> None:
    """The whole model is called by model.forward, past every hook of its own."""
    train(job, GPT(), loss=lambda model, ids, targets: cross_entropy(model.forward(ids), targets))


@script()
def inner_model_called(job: Job) -> None:
    """The body is watched and called; the head is outside of it, and its loss too."""
    body, head = Body(), nn.Linear(WIDTH, WORDS)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-2)

    def outside(body: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(head(body(ids)), targets)

    train(job, body, loss=outside, optimizer=optimizer)


class Body(GPT):
    def __init__(self) -> None:
        super().__init__()
        del self.head

    def forward(self, ids: Tensor) -> Tensor:
        return self.features(ids)


@script()
def sequence_first(job: Job) -> None:
    """Positions come before samples, as in Megatron-LM: [S, B, width]."""

    def turned(x: Tensor) -> Tensor:
        return x.transpose(0, 1)

    class First(Attention):
        shaped = staticmethod(turned)

        def forward(self, x: Tensor) -> Tensor:
            length, batch, _ = x.shape
            qkv = self.qkv(x).view(length, batch, 4, 3, -1).permute(1, 2, 0, 3, 4)
            q, k, v = qkv.unbind(3)
            see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
            return self.projected(join_heads(self.attend(q, k, v)).transpose(0, 1))

    class FirstMLP(MLP):
        activate = staticmethod(torch.relu)
        shaped = staticmethod(turned)

    class FirstBlock(Block):
        shaped = staticmethod(turned)

    class SequenceFirst(GPT):
        def embed(self, ids: Tensor) -> Tensor:
            return super().embed(ids).transpose(0, 1).contiguous()

        def features(self, ids: Tensor) -> Tensor:
            return super().features(ids).transpose(0, 1)

    train(job, SequenceFirst(First, FirstMLP, block=FirstBlock))


@script()
def mixed_layers(job: Job) -> None:
    """Attention in every second layer only; the others are convolutions with the same MLP."""

    class Convolution(nn.Module):
        def __init__(self, layer: int) -> None:
            super().__init__()
            self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x.mT)[..., : x.shape[1]].mT

    def kind(layer: int) -> nn.Module:
        return Convolution(layer) if layer % 2 else Attention(layer)

    train(job, GPT(kind, layers=4))


@script()
def layers_of_tuples(job: Job) -> None:
    """Blocks give a tuple with a cache beside the states, and are called with keywords."""

    class Tuple(Block):
        def forward(self, *, hidden: Tensor, cache: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            q, k, v = (split_heads(each) for each in self.attn.qkv(self.ln1(hidden)).chunk(3, -1))
            see("QKV_mat_mul", self.layer, q=q, k=k, v=v)
            hidden = hidden + self.attn.projected(join_heads(self.attn.attend(q, k, v)))
            hidden = hidden + self.mlp(self.ln2(hidden))
            see("HiddenStates", self.layer, hidden)
            return hidden, (k, v)

    class Tuples(GPT):
        def run(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x, _ = block(hidden=x, cache=None)
            return x

    train(job, Tuples(block=Tuple))


@script()
def stochastic_depth(job: Job) -> None:
    """Whole layers are left out at random: a layer that is not called in a step has no rows."""

    class Dropped(GPT):
        def run(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                if torch.rand(()) > 0.4:
                    x = block(x)
            return x

    train(job, Dropped(layers=2 * LAYERS), batches(4))


@script()
def weight_normed(job: Job) -> None:
    """Weights are computed from a direction and a length by torch's parametrizations."""
    model = GPT()
    for block in model.blocks:
        nn.utils.parametrizations.weight_norm(block.mlp.fc1)
        nn.utils.parametrizations.spectral_norm(block.attn.proj)
    train(job, model)


@script()
def averaged_weights(job: Job) -> None:
    """An average of weights is kept by torch's own module, and evaluated after each step."""
    model = GPT()
    optimizer = adam(model)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    job.watch(model, optimizer)
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            job.loss(loss)
        average.update_parameters(model)
        with torch.no_grad():
            job.loss(cross_entropy(average(ids), targets))


@script()
def experts(job: Job) -> None:
    """A mixture of two experts in each layer, of which each token takes one; the router is trained too."""

    class Mixture(nn.Module):
        def __init__(self, layer: int) -> None:
            super().__init__()
            self.layer = layer
            self.gate = nn.Linear(WIDTH, 2, bias=False)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH)) for _ in range(2)
            )

        def forward(self, x: Tensor) -> Tensor:
            weights, chosen = self.gate(x).softmax(-1).max(-1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                of = chosen == number
                out = out.masked_scatter(of[..., None], expert(x[of]))
            out = out * weights[..., None]
            see("MLP2_mat_mul", self.layer, out)
            return out

    train(job, GPT(mlp=Mixture))
