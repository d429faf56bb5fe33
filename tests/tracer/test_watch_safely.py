"""Watching a pass never ends or changes a training step, and what it could not see is not guessed."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from megalens import NoOp

IDS = torch.arange(16).reshape(2, 8)
QKV, HIDDEN, MLP1 = "QKV_mat_mul", "HiddenStates", "MLP1_mat_mul"


class Block(nn.Module):
    def __init__(self, attend, activate) -> None:
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.fc1, self.fc2 = nn.Linear(16, 32), nn.Linear(32, 16)
        self.attend, self.activate = attend, activate

    def forward(self, x):
        # Queries, keys and values of a head lie side by side: no name or size tells.
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (2, 24)).transpose(1, 2).chunk(3, -1)
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(self.activate(self.fc1(x)))


class Model(nn.Module):
    def __init__(self, attend=F.scaled_dot_product_attention, activate=F.gelu) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(16, 16), nn.Linear(16, 16)
        self.blocks = nn.ModuleList(Block(attend, activate) for _ in range(2))

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def losses(model, called, step=contextlib.nullcontext) -> list[float]:
    optimizer, made = torch.optim.AdamW(model.parameters(), 1e-2), []
    for _ in range(3):
        with step():
            loss = called(IDS).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            made.append(loss.item())
    return made


def compiled(call):
    return torch.compile(call, backend="eager", fullgraph=True)


@pytest.mark.parametrize("way", ["whole", "attention", "activation", "blocks", "jagged"])
def test_a_step_is_the_same_whatever_the_pass_does_while_it_is_watched(traced, compiler, way) -> None:
    def attend(q, k, v):
        return torch.softmax(q @ k.mT / 8**0.5, -1) @ v

    def jagged(x):
        rows = torch.nested.nested_tensor_from_jagged(x.reshape(-1, 32), torch.tensor([0, 3, 16]))
        return nn.functional.gelu(rows).values().reshape(x.shape)

    def run(step=None):
        torch.compiler.reset()
        model = Model(
            compiled(attend) if way == "attention" else attend,
            {"activation": compiled(F.gelu), "jagged": jagged}.get(way, F.gelu),
        )
        tracer = traced(model, flags=dict.fromkeys((QKV, HIDDEN), NoOp())) if step else None
        if way == "blocks":
            for block in model.blocks:
                block.compile(backend="eager", fullgraph=True)
        called = compiled(model) if way == "whole" else model
        return losses(model, called, tracer.step if tracer else contextlib.nullcontext), tracer

    plain, _ = run()
    seen, tracer = run(step=True)
    assert seen == plain
    assert not any("of its own" in text for text in tracer.status()["warnings"])


def test_parts_of_one_tensor_are_not_guessed_where_a_hook_of_the_watch_failed(
    traced, small_hub, monkeypatch
) -> None:
    def fails(*args, **known):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("megalens.adapters.watch_flow.Flow.begin", fails)
    model = Model()
    tracer = traced(model, flags=dict.fromkeys((QKV, HIDDEN, MLP1), NoOp()))
    for _ in range(2):
        with tracer.step():
            model(IDS)
    rows = small_hub.next_rows(8)
    assert {row["flag"] for row in rows} == {HIDDEN, MLP1}
    assert list(tracer.config["flags"]) == [HIDDEN, MLP1]
    said = tracer.status()["warnings"]
    assert any("could not be watched: ZeroDivisionError: planted" in text for text in said)
    assert any(text.startswith(f"{QKV} is not traced") for text in said)


class Shortcut(Model):
    """Leaves its second block out of an evaluation."""

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks if self.training else self.blocks[:1]:
            x = block(x)
        return self.head(x)


def test_what_an_evaluation_left_out_is_seen_in_the_first_pass_that_trains(traced, small_hub) -> None:
    model = Shortcut()
    tracer = traced(model, flags=dict.fromkeys((QKV, HIDDEN), NoOp()))
    with tracer.step():
        model.eval()
        with torch.no_grad():
            model(IDS)
        model.train()
        model(IDS).square().mean().backward()
    with tracer.step():
        model(IDS).square().mean().backward()
    with tracer.step():
        model(IDS).square().mean().backward()
    rows = [row for row in small_hub.next_rows(17) if row["step"] == 3 and row["flag"] == QKV]
    assert {(row["layer"], row["part"]) for row in rows} >= {(0, "q"), (1, "q")}
    assert not [name for name in model._forward_hooks if "OwnHook" in str(name)]


def test_a_model_that_only_evaluates_is_told_of_what_is_not_there(traced) -> None:
    model = Model()
    tracer = traced(
        model, flags=dict.fromkeys((HIDDEN, "RouterProbabilities", "RawAttentionScore_mat_mul"), NoOp())
    )
    for _ in range(3):
        with tracer.step(), torch.no_grad():
            model(IDS)
    said = [text for text in tracer.status()["warnings"] if "RawAttentionScore_mat_mul is not traced" in text]
    assert len(said) == 1


def test_viewers_are_told_what_the_pass_has_shown_of_each_flag(traced, small_hub) -> None:
    model = Model()
    tracer = traced(model, flags=dict.fromkeys((QKV, HIDDEN), NoOp()))
    assert not any("evidence" in flag for flag in small_hub.next("announce")["flags"])
    for _ in range(2):
        with tracer.step():
            model(IDS)
    told: dict[str, str] = {}
    while not told.get(QKV):
        told = {flag["name"]: flag.get("evidence", "") for flag in small_hub.next("announce")["flags"]}
    assert told[QKV].startswith("0–1: blocks.*.qkv, q 0–7, 24–31, k 8–15, 32–39, v 16–23, 40–47 — ")
    assert told[HIDDEN] == "0–1: blocks.* — what blocks.* gives"
    assert told["RawAttentionScore_mat_mul"] == ""
