"""What is done to gradients between the backward pass and the optimizer, and optimizers that are no
ordinary ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..job import Job, script
from ..parts import GPT, LENGTH, WIDTH, WORDS, adam, batches, cross_entropy, train


def train_with(
    job: Job,
    between: Callable[[nn.Module, int], None],
    make: Callable[[nn.Module], torch.optim.Optimizer] = adam,
    scale: float = 1.0,
) -> None:
    """The usual loop; ``between`` is what is done with gradients before the step, whose number it takes."""
    model = GPT()
    optimizer = make(model)
    job.watch(model, optimizer)
    for number, (ids, targets) in enumerate(batches()):
        with job.step():
            loss = cross_entropy(model(ids), targets)
            (loss * scale).backward()
            between(model, number)
            optimizer.step()
            optimizer.zero_grad()
            job.loss(loss)


def descent(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@script(quick=True)
def clipping_by_torch(job: Job) -> None:
    """clip_grad_norm_ in the middle of the usual loop, over two accumulated micro-batches."""
    model = GPT()
    optimizer = adam(model)
    job.watch(model, optimizer)
    data = [*batches(6)]
    for at in range(0, 6, 2):
        with job.step():
            optimizer.zero_grad(set_to_none=True)
            for ids, targets in data[at : at + 2]:
                loss = cross_entropy(model(ids), targets) / 2
                loss.backward()
                job.loss(loss)
            job.reduced()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()


@script()
def own_clipping(job: Job) -> None:
    """Clipped by hand: the norm of each parameter's gradient bounded in place."""

    def bound(model: nn.Module, _: int) -> None:
        job.reduced()
        for parameter in model.parameters():
            parameter.grad.mul_(min(1.0, 0.05 / (float(parameter.grad.norm()) + 1e-6)))

    train_with(job, bound)


@script()
def divided_by_micro_batches(job: Job) -> None:
    """Losses are summed over micro-batches; gradients are divided by their number right before the step."""
    model = GPT()
    optimizer = descent(model)
    job.watch(model, optimizer)
    data = [*batches(6)]
    for at in range(0, 6, 2):
        with job.step():
            for ids, targets in data[at : at + 2]:
                loss = cross_entropy(model(ids), targets)
                loss.backward()
                job.loss(loss)
            for parameter in model.parameters():
                parameter.grad.div_(2)
            optimizer.step()
            optimizer.zero_grad()


@script()
def own_reduction(job: Job) -> None:
    """One flat buffer of all gradients is summed, as by an all_reduce of one's own, and copied back as an
    average.
    """

    def reduce(model: nn.Module, _: int) -> None:
        flat = torch.cat([each.grad.flatten() for each in model.parameters()])
        # What the other process would send.
        flat = (flat + flat.roll(1)) / 2
        at = 0
        for parameter in model.parameters():
            parameter.grad.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()

    train_with(job, reduce)


@script()
def replaced_gradients(job: Job) -> None:
    """p.grad is set to another tensor, as by a projection that keeps another task's gradient."""

    def project(model: nn.Module, _: int) -> None:
        for parameter in model.parameters():
            parameter.grad = parameter.grad - parameter.grad.mean()

    train_with(job, project)


@script()
def scaled_by_hand(job: Job) -> None:
    """The loss times 128, gradients over 128 before the step: what a fixed loss scale is."""

    def unscale(model: nn.Module, _: int) -> None:
        torch._foreach_div_([each.grad for each in model.parameters()], 128.0)

    train_with(job, unscale, scale=128)


@script()
def grad_scaler(job: Job) -> None:
    """torch's GradScaler, unscaled before clipping."""
    model = GPT()
    optimizer = adam(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    job.watch(model, optimizer)
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            job.reduced()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            job.loss(loss)


@script(quick=True)
def skipped_step(job: Job) -> None:
    """The GradScaler skips a step: its loss, and so its gradients, are infinite."""
    model = GPT()
    optimizer = adam(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    job.watch(model, optimizer)
    for number, (ids, targets) in enumerate(batches(4)):
        with job.step():
            loss = cross_entropy(model(ids), targets) * (float("inf") if number == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            job.reduced()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            job.loss(loss)


@script(quick=True)
def function_transforms(job: Job) -> None:
    """torch.func gives loss and gradients of parameters that are no longer the model's."""
    model = GPT()
    optimizer = adam(model)
    job.watch(model, optimizer)

    def loss_of(parameters: dict[str, Tensor], ids: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(torch.func.functional_call(model, parameters, (ids,)), targets)

    for ids, targets in batches():
        with job.step():
            parameters = {name: each.detach() for name, each in model.named_parameters()}
            gradients, loss = torch.func.grad_and_value(loss_of)(parameters, ids, targets)
            for name, parameter in model.named_parameters():
                parameter.grad = gradients[name]
            optimizer.step()
            job.loss(loss)


@script()
def zeroed_gradients(job: Job) -> None:
    """Every second step's gradients are thrown away as a spike: zeroed in place before the step."""

    def throw_away(model: nn.Module, number: int) -> None:
        job.reduced()
        if number % 2:
            for parameter in model.parameters():
                parameter.grad.zero_()
        job.reduced()

    train_with(job, throw_away)


@script()
def nan_gradients(job: Job) -> None:
    """One gradient becomes NaN and one infinite between backward and the step, as a faulty reduction makes
    them.
    """

    def spoil(model: nn.Module, number: int) -> None:
        job.reduced()
        if number == 2:
            model.head.weight.grad[0] = torch.nan
            model.blocks[0].attn.proj.bias.grad[0] = torch.inf
        job.reduced()

    train_with(job, spoil, descent)


@script()
def sparse_embedding(job: Job) -> None:
    """nn.Embedding(sparse=True) with SparseAdam beside AdamW."""

    class Sparse(GPT):
        def __init__(self) -> None:
            super().__init__()
            self.wte = nn.Embedding(WORDS, WIDTH, sparse=True)

    model = Sparse()
    dense = torch.optim.AdamW([each for name, each in model.named_parameters() if "wte" not in name], lr=1e-2)
    sparse = torch.optim.SparseAdam([model.wte.weight], lr=1e-2)
    job.watch(model, dense, sparse)
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            loss.backward()
            dense.step()
            sparse.step()
            model.zero_grad()
            job.loss(loss)


@script()
def embedding_bag(job: Job) -> None:
    """A recommender: EmbeddingBags with sparse gradients and a small MLP."""

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users = nn.EmbeddingBag(WORDS, WIDTH, mode="mean", sparse=True)
            self.items = nn.EmbeddingBag(WORDS, WIDTH, mode="sum")
            self.mlp = nn.Sequential(nn.Linear(2 * WIDTH, 8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, users: Tensor, items: Tensor) -> Tensor:
            return self.mlp(torch.cat((self.users(users), self.items(items)), -1)).squeeze(-1)

    def liked(model: nn.Module, users: Tensor, items: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(model(users, items), (items[:, 0] % 2).float())

    model = Recommender()
    train(job, model, loss=liked, optimizer=descent(model))


@script()
def optimizer_in_backward(job: Job) -> None:
    """An optimizer for each parameter, which steps as soon as its gradient is there and frees it."""
    model = GPT()
    optimizers = {each: torch.optim.SGD([each], lr=0.1) for each in model.parameters()}

    def update(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    job.watch(model, *optimizers.values())
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            loss.backward()
            job.loss(loss)


@script()
def fused_step(job: Job) -> None:
    """LOMO: weights are changed in the hook of their gradient, which is then dropped; there is no
    optimizer.
    """
    model = GPT()
    job.watch(model)

    def update(parameter: nn.Parameter) -> None:
        job.reduced(parameter)
        with torch.no_grad():
            parameter.add_(parameter.grad, alpha=-0.1)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            loss.backward()
            job.loss(loss)


@script()
def autograd_grad(job: Job) -> None:
    """torch.autograd.grad, and p.grad set by hand."""
    model = GPT()
    optimizer = adam(model)
    job.watch(model, optimizer)
    parameters = [*model.parameters()]
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = gradient
            optimizer.step()
            job.loss(loss)


@script()
def lbfgs(job: Job) -> None:
    """Several closures in one step, each with a pass forward and one backward."""
    model = GPT(layers=1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    job.watch(model, optimizer)
    for ids, targets in batches():

        def closure(ids: Tensor = ids, targets: Tensor = targets) -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(model(ids), targets)
            loss.backward()
            job.reduced()
            job.loss(loss)
            return loss

        with job.step():
            optimizer.step(closure)


@script()
def sharpness_aware(job: Job) -> None:
    """SAM: gradients at the weights, weights moved along them, gradients there, weights moved back, and
    then the step.
    """
    model = GPT()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job.watch(model, optimizer)
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            loss.backward()
            before = [each.detach().clone() for each in model.parameters()]
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.05 * parameter.grad / (parameter.grad.norm() + 1e-12))
            optimizer.zero_grad()
            cross_entropy(model(ids), targets).backward()
            with torch.no_grad():
                for parameter, old in zip(model.parameters(), before, strict=True):
                    parameter.copy_(old)
            optimizer.step()
            optimizer.zero_grad()
            job.loss(loss)


@script()
def complex_parameters(job: Job) -> None:
    """A Fourier mixer with complex weights between the attention and the MLP."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(LENGTH // 2 + 1, WIDTH, dtype=torch.cfloat) * 0.1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.irfft(torch.fft.rfft(x, dim=1) * self.weight, n=x.shape[1], dim=1)

    class Mixed(GPT):
        def __init__(self) -> None:
            super().__init__()
            self.mixer = Mixer()

        def features(self, ids: Tensor) -> Tensor:
            x = self.run(self.embed(ids))
            return self.ln_f(x + self.mixer(x))

    model = Mixed()
    train(job, model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-2))


@script()
def two_optimizers(job: Job) -> None:
    """Matrices by an orthogonalised momentum of one's own, all else by AdamW, as speed runs do."""

    class Orthogonal(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure: None = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    left, _, right = torch.linalg.svd(parameter.grad, full_matrices=False)
                    parameter.add_(left @ right, alpha=-group["lr"])

    model = GPT()
    inner = [each for each in model.blocks.parameters() if each.ndim == 2]
    others = [each for each in model.parameters() if not any(each is one for one in inner)]
    matrices, rest = Orthogonal(inner, {"lr": 0.02}), torch.optim.AdamW(others, lr=1e-2)
    job.watch(model, matrices, rest)
    for ids, targets in batches():
        with job.step():
            loss = cross_entropy(model(ids), targets)
            loss.backward()
            job.reduced()
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
            for optimizer in (matrices, rest):
                optimizer.step()
            model.zero_grad(set_to_none=True)
            job.loss(loss)


@script()
def hooks_on_parameters(job: Job) -> None:
    """A hook that halves a gradient as it arrives, and one embedding row that is kept as it is."""
    model = GPT()

    def keep_row(gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[0] = 0
        return gradient

    model.head.weight.register_hook(lambda gradient: gradient / 2)
    model.wte.weight.register_hook(keep_row)
    train(job, model, optimizer=descent(model))


@script()
def unused_parameters(job: Job) -> None:
    """A head that only every second batch uses: its gradient is None, and then it is not."""

    class Sometimes(GPT):
        def __init__(self) -> None:
            super().__init__()
            self.rare = nn.Linear(WIDTH, WORDS)

        def forward(self, ids: Tensor, rare: bool = False) -> Tensor:
            x = self.features(ids)
            return self.rare(x) if rare else self.head(x)

    model = Sometimes()
    optimizer = adam(model)
    job.watch(model, optimizer)
    for number, (ids, targets) in enumerate(batches()):
        with job.step():
            loss = cross_entropy(model(ids, rare=number % 2 == 1), targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            job.loss(loss)
