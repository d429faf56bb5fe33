"""Models in stages, whole or cut over tensor-parallel processes, and their ordinary training in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from megalens.instruments.pipeline.split import seeded

WIDTH, HIDDEN, SAMPLES = 6, 8, 2


@dataclass(frozen=True)
class Case:
    """What is trained, and how."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    forward_tensor: int | None = None
    last_forward: bool = True
    dtype: torch.dtype = torch.float32
    dropout: float = 0.0
    calls: int = 1
    clip: float | None = None
    masters: bool = False
    ahead: int = 1
    micro_batches: int = 4
    steps: int = 12
    optimizer: str = "adamw"
    kind: str = "plain"

    @property
    def degrees(self) -> dict[str, Any]:
        names = ("tensor", "pipeline", "data", "forward_tensor", "last_forward")
        return {name: getattr(self, name) for name in names}

    @property
    def options(self) -> dict[str, Any]:
        names = ("clip", "masters", "ahead", "micro_batches")
        return {name: getattr(self, name) for name in names}


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        total = gradient.clone()
        distributed.all_reduce(total, group=ctx.group)
        return total, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class Stage(nn.Module):
    """One stage: what is cut has Megatron's attributes."""

    def __init__(
        self,
        stage: int,
        dtype: torch.dtype,
        dropout: float = 0.0,
        tensor: int = 0,
        size: int = 1,
        group: Any = None,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(100 + stage)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64) / 3

        up, bias, down, rest, scale, still = (
            drawn(HIDDEN, WIDTH),
            drawn(HIDDEN),
            drawn(WIDTH, HIDDEN),
            drawn(WIDTH),
            drawn(1),
            drawn(WIDTH),
        )
        self._group, self._dropout = group, dropout
        for name, value, cut in (
            ("up", up, 0),
            ("bias", bias, 0),
            ("down", down, 1),
            ("rest", rest, -1),
            ("scale", scale[0], -1),
        ):
            if cut >= 0 and size > 1:
                value = value.chunk(size, cut)[tensor]
            parameter = nn.Parameter(value.to(dtype).contiguous())
            if cut >= 0 and size > 1:
                parameter.tensor_model_parallel = True
                parameter.partition_dim = cut
            setattr(self, name, parameter)
        self.still = nn.Parameter(still.to(dtype), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        y = x if self._group is None else _Copy.apply(x, self._group)
        y = torch.tanh(functional.linear(y, self.up, self.bias))
        y = functional.linear(y, self.down)
        y = y if self._group is None else _Sum.apply(y, self._group)
        y = functional.dropout(y + self.rest, self._dropout, self.training)
        return torch.tanh(x * self.still + y * self.scale)


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    return (output.sum(-1) - target).square().mean()


def made_optimizer(case: Case) -> Any:
    if case.optimizer == "sgd":
        return lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    return lambda parameters: torch.optim.AdamW(parameters, lr=0.01)


def data(case: Case, call: int, replica: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * call + replica)
    count = SAMPLES * case.micro_batches
    x = torch.randn(count, WIDTH, generator=generator, dtype=torch.float64)
    return x.to(case.dtype), torch.randn(count, generator=generator, dtype=torch.float64).to(case.dtype)


def ordinary(case: Case, first: int = 0) -> tuple[list[list[float]], list[dict[str, Tensor]]]:
    """Train the whole model in this process; losses by call and replica, and the weights of each stage."""
    stages = [Stage(p, case.dtype, case.dropout) for p in range(case.pipeline)]
    parameters = [each for stage in stages for each in stage.parameters() if each.requires_grad]
    masters = [each.detach().float() for each in parameters] if case.masters else parameters
    masters = [nn.Parameter(each) for each in masters] if case.masters else parameters
    optimizer = made_optimizer(case)(masters)
    losses = []
    share = case.calls * case.data
    for step in range(case.steps):
        for call in range(case.calls * step, case.calls * (step + 1)):
            losses.append(
                [
                    _replica(case, stages, call, replica, share, parameters, masters)
                    for replica in range(case.data)
                ]
            )
        if case.clip is not None:
            nn.utils.clip_grad_norm_(masters, case.clip)
        optimizer.step()
        optimizer.zero_grad()
        if case.masters:
            with torch.no_grad():
                for each, master in zip(parameters, masters, strict=True):
                    each.copy_(master)
    return losses, [dict(stage.named_parameters()) for stage in stages]


def _replica(
    case: Case,
    stages: list[Stage],
    call: int,
    replica: int,
    share: int,
    parameters: list[nn.Parameter],
    masters: list[nn.Parameter],
) -> float:
    x, target = data(case, call, replica)
    count, total = case.micro_batches, 0.0
    for number, (part, wanted) in enumerate(zip(x.chunk(count), target.chunk(count), strict=True)):
        for p, stage in enumerate(stages):
            with seeded(7, call, replica * count + number, p):
                part = stage(part)
        loss = loss_fn(part, wanted)
        total += loss.item() / count
        (loss / count / share).backward()
        if case.masters:
            for each, master in zip(parameters, masters, strict=True):
                master.grad = each.grad.float() if master.grad is None else master.grad + each.grad
                each.grad = None
    return total


def part_of(name: str, whole: Tensor, tensor: int, size: int) -> Tensor:
    """What a tensor-parallel process has of a weight."""
    cut = {"up": 0, "bias": 0, "down": 1}.get(name)
    return whole if cut is None or size == 1 else whole.chunk(size, cut)[tensor]
