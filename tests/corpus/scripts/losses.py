"""Losses that are not the model's first output, passes that are more than one, and modes that are not
training.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..job import Job, script, see
from ..parts import GPT, WIDTH, Attention, adam, batches, cross_entropy, train


class WithLoss(GPT):
    """Gives its own loss first, as Hugging Face's models do with labels."""

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.features(ids)
        logits = self.head(x)
        return cross_entropy(logits, targets), logits, x


@script(quick=True)
def distillation(job: Job) -> None:
    """The model gives its own loss first; what is trained on is a divergence of its logits from a
    teacher's.
    """
    teacher = GPT().eval()

    def diverges(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = teacher(ids).softmax(-1)
        _, logits, _ = model(ids, targets)
        return F.kl_div(logits.log_softmax(-1), wanted, reduction="batchmean")

    train(job, WithLoss(), loss=diverges, clip=0.1)


@script()
def weighted_loss(job: Job) -> None:
    """Tokens are weighted: the loss is of logits, the model's own is left."""

    def weighted(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        _, logits, _ = model(ids, targets)
        weights = 1.0 + (targets % 3 == 0)
        of_each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        return (of_each * weights.flatten()).mean()

    train(job, WithLoss(), loss=weighted, clip=0.5)


@script()
def loss_of_hidden_states(job: Job) -> None:
    """A contrastive loss of the last hidden states, which the model gives third; its logits get no
    gradient.
    """

    def contrasted(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        _, _, hidden = model(ids, targets)
        pooled = F.normalize(hidden.mean(1), dim=-1)
        return F.cross_entropy(pooled[:2] @ pooled[2:].T / 0.1, torch.arange(2))

    train(job, WithLoss(), batches(size=4), loss=contrasted, clip=0.1)


@script()
def several_outputs(job: Job) -> None:
    """Two heads, and the second one's loss is backpropagated first."""

    class TwoHeads(GPT):
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Linear(WIDTH, 1)

        def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
            x = self.features(ids)
            return self.head(x), self.value(x.detach()).squeeze(-1)

    model = TwoHeads()
    optimizer = adam(model)
    job.watch(model, optimizer)
    for ids, targets in batches():
        with job.step():
            optimizer.zero_grad()
            logits, values = model(ids)
            of_values, of_words = (values - targets / 41).square().mean(), cross_entropy(logits, targets)
            of_values.backward()
            of_words.backward()
            optimizer.step()
            job.loss(of_words + of_values)


@dataclass
class Output:
    loss: Tensor | None
    predictions: dict[str, list[Tensor]]


@script()
def nested_outputs(job: Job) -> None:
    """A dataclass with a dictionary of lists; the loss is deep inside."""

    class Nested(GPT):
        def forward(self, ids: Tensor) -> Output:
            x = self.features(ids)
            return Output(None, {"aux": [x.mean()], "words": [self.head(x[:, :-1]), self.head(x[:, -1:])]})

    def deep(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(torch.cat(model(ids).predictions["words"], 1), targets)

    train(job, Nested(), loss=deep, clip=0.1)


@script()
def training_in_eval_mode(job: Job) -> None:
    """The model stays in eval() while it is fine-tuned, as where dropout is not wanted."""
    model = WithLoss().eval()

    def of_logits(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model(ids, targets)[1], targets)

    train(job, model, loss=of_logits, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), clip=0.1)


@script(quick=True)
def preference_pairs(job: Job) -> None:
    """DPO: chosen and rejected by two passes of the policy, and both by a reference without gradients."""
    policy = GPT()
    reference = copy.deepcopy(policy).eval()

    def likelihood(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        return model(ids).log_softmax(-1).gather(-1, targets[..., None]).sum((1, 2))

    def preferred(policy: nn.Module, ids: Tensor, chosen: Tensor) -> Tensor:
        rejected = chosen.flip(1)
        better, worse = likelihood(policy, ids, chosen), likelihood(policy, ids, rejected)
        with torch.no_grad():
            old = likelihood(reference, ids, chosen) - likelihood(reference, ids, rejected)
        return -F.logsigmoid(0.1 * (better - worse - old)).mean()

    train(job, policy, loss=preferred, clip=1.0)


@script()
def evaluation_inside(job: Job) -> None:
    """Each step first samples a token without gradients, then evaluates in a phase, then trains: GRPO and
    its like.
    """
    model = GPT()
    optimizer = adam(model)
    job.watch(model, optimizer)
    for ids, targets in batches():
        with job.step():
            model.eval()
            with torch.no_grad():
                sampled = model(ids)[:, -1].argmax(-1)
            with job.phase("eval"), torch.no_grad():
                cross_entropy(model(ids), targets)
            model.train()
            logits = model(torch.cat((ids, sampled[:, None]), 1))
            loss = cross_entropy(logits[:, :-1], targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            job.loss(loss)


@script()
def gradient_penalty(job: Job) -> None:
    """The gradient's norm at the hidden states enters the loss: one forward pass, two backward passes."""

    class Penalised(GPT):
        def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
            x = self.embed(ids)
            return self.head(self.ln_f(self.run(x))), x

    class Written(Attention):
        # Fused attention has no second derivative.
        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            probabilities = (q @ k.mT / 2).softmax(-1)
            see("RawAttentionScore_mat_mul", self.layer, probabilities)
            return probabilities @ v

    def penalised(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
        logits, at = model(ids)
        own = cross_entropy(logits, targets)
        (slope,) = torch.autograd.grad(own, at, create_graph=True)
        return own + 0.5 * slope.square().sum()

    train(job, Penalised(Written), loss=penalised)


@script()
def two_losses_retain_graph(job: Job) -> None:
    """Two losses of one pass, each with its own backward pass."""
    model = GPT()
    optimizer = adam(model)
    job.watch(model, optimizer)
    for ids, targets in batches():
        with job.step():
            optimizer.zero_grad()
            logits = model(ids)
            first, second = cross_entropy(logits, targets), logits.logsumexp(-1).square().mean()
            first.backward(retain_graph=True)
            (0.1 * second).backward()
            optimizer.step()
            job.loss(first + second)


@script(quick=True)
def adversarial(job: Job) -> None:
    """Two models and two optimizers that take turns in a step, as a GAN's: the second loss gives the first
    model gradients that its optimizer never takes.
    """
    generator, critic = GPT(layers=1), GPT(layers=2)
    of_generator, of_critic = adam(generator), torch.optim.SGD(critic.parameters(), lr=0.05)
    job.watch(generator, of_generator)
    job.watch(critic, of_critic)
    for ids, _ in batches():
        with job.step():
            fake = generator(ids)
            scores = critic(ids)[..., 0].mean() - critic(fake.detach().argmax(-1))[..., 0].mean()
            of_critic.zero_grad()
            scores.backward()
            of_critic.step()
            loss = -(fake.softmax(-1) * critic(ids)).sum(-1).mean()
            of_generator.zero_grad()
            loss.backward()
            of_generator.step()
            job.loss(loss + scores.detach())
