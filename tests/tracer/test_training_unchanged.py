"""A watched training is the training that it is unwatched, to the last bit, and what watched it is gone afterwards."""

import contextlib
import gc
import subprocess
import sys
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import megalens
from megalens import NoOp
from megalens.adapters.watch import PassWatch
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer.instrument import Instrument

IDS = torch.arange(16).reshape(2, 8)
EVERYTHING = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul", "HiddenStates", "AttentionOutput_mat_mul")
STATISTICS = ("param", "grad", "activation", "dgrad", "residual", "residual_dgrad")
SEEN = ("attention_entropy", "attention_max", "stable_rank", "kernel_norm", "precision")


class Odd(nn.Module):
    """Weights that are computed, a buffer and a number that count passes, random numbers of two kinds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = GPT(GPTConfig(vocabulary=16, layers=2, hidden=16, heads=2, sequence=8))
        parametrizations.spectral_norm(self.body.blocks[0].mlp.fc1)
        parametrizations.spectral_norm(self.body.blocks[0].attention.qkv)
        parametrizations.weight_norm(self.body.blocks[1].mlp.fc2)
        parametrizations.orthogonal(self.body.blocks[1].attention.projection)
        self.dropout = nn.Dropout(0.2)
        self.norm = nn.BatchNorm1d(16)
        self.register_buffer("passes", torch.zeros(()))
        self.count = 0
        self.random = torch.Generator().manual_seed(1)

    def forward(self, ids: Tensor) -> Tensor:
        self.count += 1
        self.passes += 1
        x = self.norm(self.dropout(self.body(ids)).mT).mT
        return x * (1 + torch.rand(1, generator=self.random)) * self.passes + self.count


def train(model: nn.Module, tracer=None) -> tuple[list[float], list[Tensor]]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if tracer is not None:
        tracing = tracer(model, optimizer)
    torch.manual_seed(2)
    losses = []
    for _ in range(4):
        with contextlib.nullcontext() if tracer is None else tracing.step():
            loss = nn.functional.cross_entropy(model(IDS).flatten(0, 1), IDS.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        losses.append(loss.item())
    return losses, [each.clone() for each in model.state_dict().values()]


class Following(Instrument):
    """Follows the passes, as an instrument of others may."""

    name = "following"
    passes = True


def with_all(traced, statistics: bool):
    def begin(model, optimizer):
        names = (*EVERYTHING, *(["RawAttentionScore_mat_mul"] if isinstance(model, GPT) else []))
        flags = {name: {"compressor": NoOp(), "passes": ["forward", "backward"]} for name in names}
        tracer = traced(model, flags=flags, instruments=[Following()])
        if statistics:
            every = dict.fromkeys((*STATISTICS, *SEEN), 1)
            megalens.log_statistics(model, optimizer, tracer=tracer, **every)
        return tracer

    return begin


def demo() -> GPT:
    torch.manual_seed(7)
    return GPT(GPTConfig(vocabulary=16, layers=2, hidden=16, heads=2, sequence=8))


@pytest.mark.parametrize(("kind", "statistics"), [(Odd, False), (Odd, True), (demo, False)])
def test_weights_buffers_and_random_numbers_are_those_of_a_training_that_nobody_watches(
    traced, kind, statistics
) -> None:
    losses, state = train(kind())
    watched, seen = train(kind(), with_all(traced, statistics))
    assert watched == losses
    assert all(map(torch.equal, seen, state))


def test_nothing_of_a_watch_is_left_once_its_pass_is_over(traced, monkeypatch) -> None:
    watches: list[weakref.ref[PassWatch]] = []
    begin = PassWatch.begin
    monkeypatch.setattr(
        PassWatch, "begin", lambda self, given: (watches.append(weakref.ref(self)), begin(self, given))[1]
    )
    model = demo()
    tracer = traced(model, flags=dict.fromkeys(EVERYTHING, NoOp()))
    with tracer.step():
        loss = model(IDS).sum()
        kept = weakref.ref(loss)
        loss.backward()
    del loss
    gc.collect()
    assert [each() for each in watches] == [None]
    assert kept() is None
    assert not torch.utils._python_dispatch._get_current_dispatch_mode()


@pytest.mark.slow
def test_watching_does_not_load_the_compiler() -> None:
    script = (
        "import sys, torch; from megalens.adapters import find_points; from megalens.demo.model import GPT, GPTConfig;"
        "model = GPT(GPTConfig(vocabulary=16, layers=1, hidden=16, heads=2, sequence=8)); ids = torch.zeros(1, 4).long();"
        "points = find_points(model); watch = points.watch(points); watch.begin(); model(ids); watch.end(); points = watch.finish();"
        "assert points.flags['QKV_mat_mul'].evidence; sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=120).returncode == 0
