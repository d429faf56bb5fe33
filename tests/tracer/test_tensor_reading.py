"""Tensors that lie as earlier ones go a shorter way: to the same rows, to the last bit, and never to rows of another tensor."""

import numpy as np
import pytest
import torch
from as_supposed import AsSupposed
from torch import nn

from megalens import Tile
from megalens.adapters import Adapter
from megalens.adapters.structure import GPT_TABLE
from megalens.tracer.points import Source
from megalens.tracer.tensors.batch import TensorReading
from megalens.tracer.tensors.plan import _MEASURED as MEASURED_EVERY


def _shorter(monkeypatch) -> list[TensorReading]:
    """Count what goes the shorter way."""
    went: list[TensorReading] = []
    rows = TensorReading.rows
    monkeypatch.setattr(TensorReading, "rows", lambda self, *args: (went.append(self), rows(self, *args))[1])
    return went


@pytest.mark.parametrize("passes", ["forward", "backward"])
def test_later_steps_go_the_shorter_way_to_the_same_rows(
    gpt, ids, traced, small_hub, monkeypatch, passes
) -> None:
    went = _shorter(monkeypatch)
    flags = {"QKV_mat_mul": Tile(5, "rms"), "MLP1_mat_mul": Tile(7)}
    tracer = traced(gpt)
    tracer.configure(flags, passes=[passes], samples=1)
    found = []
    # In the first step, and every so many after it, the compressor's error is measured too.
    for _ in range(4):
        with tracer.step():
            gpt(ids).sum().backward()
        found.append(small_hub.next_rows(2 * 4))
        gpt.zero_grad()
    assert len(went) == 2 * 4
    for rows in found[2:]:
        for first, later in zip(found[1], rows, strict=True):
            # NaN is not equal to itself.
            assert repr({**later, "step": 2}) == repr(first)


def test_the_compressors_error_is_measured_as_often_as_before(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(4)}, layers="0")
    for _ in range(2 * MEASURED_EVERY + 1):
        with tracer.step():
            gpt(ids)
    rows = small_hub.next_rows(2 * MEASURED_EVERY + 1)
    known = [row["step"] for row in rows if not np.isnan(row["compression_error"])]
    assert known == [1, MEASURED_EVERY + 1, 2 * MEASURED_EVERY + 1]


@pytest.mark.parametrize("samples", [1, None])
@pytest.mark.parametrize("tiles", [6, 5])
def test_parts_of_unequal_size_that_lie_in_groups_are_read_where_they_lie(
    gpt, ids, traced, small_hub, monkeypatch, samples, tiles
) -> None:
    went = _shorter(monkeypatch)
    seen: list[torch.Tensor] = []
    gpt.blocks[0].attention.qkv.register_forward_hook(
        lambda module, args, output: seen.append(output.double())
    )
    # As the model is not: two groups of two queries, a key and a value, 6 features each.
    table = Adapter(layer="blocks.{i}", qkv="attention.qkv", qkv_order="grouped", fc1="mlp.fc1", fc2="mlp.fc2", tokens="embedding", heads=4, kv_heads=2)  # fmt: skip
    tracer = traced(
        gpt, adapter=AsSupposed(table), flags={"QKV_mat_mul": Tile(tiles)}, layers="0", samples=samples
    )
    for step in range(4):
        with tracer.step():
            gpt((ids + step) % 50)
        for row in small_hub.next_rows(3):
            begin, end = {"q": (0, 12), "k": (12, 18), "v": (18, 24)}[row["part"]]
            whole = seen[step].unflatten(-1, (2, 24))[..., begin:end].flatten(-2)
            kept = whole[:samples]
            width = -(-whole.shape[-1] // tiles)
            values = torch.stack([piece.mean(-1) for piece in kept.split(width, -1)], -1)
            assert row["shape"] == list(values.shape)
            assert row["source_shape"] == list(whole.shape)
            np.testing.assert_allclose(row["values"], values.detach().ravel(), rtol=1e-5, atol=1e-6)
            assert (row["count"], row["m2"]) == (whole.numel(), pytest.approx(float(whole.var(correction=0) * whole.numel()), rel=1e-5))  # fmt: skip
    # In the first step, and every so many after it, the compressor's error is measured too.
    assert len(went) == 2


class _Odd(nn.Module):
    """Gives what it is given, lying otherwise from step to step."""

    lie = 0

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        ways = (
            lambda: data.clone(),
            lambda: data.transpose(0, 1).contiguous().transpose(0, 1),
            lambda: data.to(torch.bfloat16),
            lambda: torch.cat((data, data), -1)[..., : data.shape[-1]],
            lambda: torch.full_like(data, torch.nan),
        )
        return ways[self.lie]()


def test_whatever_comes_next_gives_its_own_rows(gpt, traced, small_hub, monkeypatch) -> None:
    went = _shorter(monkeypatch)
    mlp = gpt.blocks[0].mlp
    odd = _Odd()
    mlp.fc1 = nn.Sequential(mlp.fc1, odd)
    mlp.fc2 = nn.Sequential(nn.Identity(), mlp.fc2)
    mlp.fc2[0].register_forward_hook(lambda module, args, output: output.float())
    seen: list[torch.Tensor] = []
    mlp.fc1.register_forward_hook(lambda module, args, output: seen.append(output.detach().double()[:2]))
    flags = {"MLP1_mat_mul": Tile(4, "rms")}
    tracer = traced(gpt, adapter=AsSupposed(GPT_TABLE), flags=flags, layers="0", samples=2)
    rng = np.random.default_rng(0)
    for step in range(60):
        if step % 2 == 0 or rng.random() < 0.5:
            odd.lie = int(rng.integers(5))
        with tracer.step():
            gpt(torch.randint(0, 50, (3, 8 if step % 7 else 9)))
        row = small_hub.next_rows(1)[0]
        values = seen[step].unflatten(-1, (4, -1)).pow(2).mean(-1).sqrt()
        assert (row["step"], row["shape"]) == (step + 1, list(values.shape))
        np.testing.assert_allclose(row["values"], values.ravel(), rtol=1e-5)
    assert 5 < len(went) < 55


def test_a_reading_is_never_of_memory_that_is_not_the_tensors_own(
    gpt, ids, traced, small_hub, monkeypatch
) -> None:
    went = _shorter(monkeypatch)
    # Its parts are copies: nothing of them lies where the tensor does.
    views = Source.views
    monkeypatch.setattr(Source, "views", lambda self, data: [part.clone() for part in views(self, data)])
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(4)})
    for _ in range(3):
        with tracer.step():
            gpt(ids)
    assert len(small_hub.next_rows(6)) == 6
    assert not went
