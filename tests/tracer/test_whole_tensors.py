"""The moments of whole tensors that stand beside each row, against plain hooks and float64."""

import math

import numpy as np
import pytest
import torch

from megalens import Empty, NoOp, Projection, Tile
from megalens.protocol import STREAMS

WHOLE = ("count", "mean", "m2", "m3", "m4", "min", "max")


def by_hand(tensor: torch.Tensor) -> dict[str, float]:
    """The moments of the finite values, in float64."""
    every = tensor.detach().double().numpy().ravel()
    x = every[np.isfinite(every)]
    if not len(x):
        return {**dict.fromkeys(("mean", "min", "max"), math.nan), "count": 0, "m2": 0, "m3": 0, "m4": 0}
    d = x - x.mean()
    powers = {f"m{power}": (d**power).sum() for power in (2, 3, 4)}
    return {"count": len(x), "mean": x.mean(), "min": x.min(), "max": x.max(), **powers}


def same(row: dict, tensor: torch.Tensor) -> None:
    expected = by_hand(tensor)
    spread = math.sqrt(expected["m2"] / max(1, expected["count"]))
    for name in WHOLE:
        power = {"mean": 1, "m2": 2, "m3": 3, "m4": 4}.get(name, 0)
        # Odd moments cancel: what is lost of them is relative to the sum of the magnitudes.
        absolute = 1e-5 * spread**power * (expected["count"] if power > 1 else 1)
        assert row[name] == pytest.approx(expected[name], rel=1e-5, abs=absolute, nan_ok=True), name
    assert row["nan_count"] == int(tensor.isnan().sum())
    assert row["inf_count"] == int(tensor.isinf().sum())


@pytest.mark.parametrize("samples", [1, 2, None])
@pytest.mark.parametrize(
    "compressor", [Tile(4), Tile(16), Tile(5, "max"), NoOp(), Empty(), Projection("vectors.npy")], ids=str
)
def test_every_row_has_the_moments_of_the_whole_tensor_whatever_is_kept_of_it(
    gpt, ids, traced, small_hub, tmp_path, monkeypatch, compressor, samples
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("vectors.npy", np.eye(2, 64, dtype=np.float32))
    tracer = traced(
        gpt,
        flags={"MLP1_mat_mul": {"compressor": compressor, "samples": samples}},
        vectors_folders=[tmp_path],
    )
    seen = []
    for block in gpt.blocks:
        block.mlp.fc1.register_forward_hook(lambda m, a, output: seen.append(output.detach().clone()))
    for _ in range(2):
        with tracer.step():
            gpt(ids)
    rows = small_hub.next_rows(4)
    for row, tensor in zip(rows, seen, strict=True):
        assert row["source_shape"] == list(tensor.shape)
        same(row, tensor)


def test_parts_passes_and_phases_have_moments_of_their_own(gpt, ids, traced, small_hub) -> None:
    setting = {"compressor": Tile(8), "passes": ["forward", "backward"], "phases": ["train", "eval"]}
    tracer = traced(gpt, flags={"QKV_mat_mul": setting, "HiddenStates": setting}, layers="1")
    seen = {}

    def keep(flag):
        def hook(module, args, output):
            phase = "train" if module.training else "eval"
            seen[flag, phase, "forward"] = output.detach().clone()
            if output.requires_grad:
                output.register_hook(lambda grad: seen.__setitem__((flag, phase, "backward"), grad.clone()))

        return hook

    gpt.blocks[1].attention.qkv.register_forward_hook(keep("QKV_mat_mul"))
    gpt.blocks[1].register_forward_hook(keep("HiddenStates"))
    with tracer.step():
        gpt(ids)[0].square().mean().backward()
    with tracer.phase("eval"), torch.no_grad():
        gpt.eval()
        gpt(ids)
    rows = small_hub.next_rows(12)
    places = {(row["flag"], row["part"], row["phase"], row["pass"]) for row in rows}
    assert len(places) == 12
    for row in rows:
        tensor = seen[row["flag"], row["phase"], row["pass"]]
        part = {"": slice(None), "q": slice(0, 16), "k": slice(16, 32), "v": slice(32, 48)}[row["part"]]
        same(row, tensor[..., part])


@pytest.mark.parametrize("samples", [1, None])
def test_what_is_not_finite_stays_out_and_is_counted_in_every_sample(
    gpt, ids, traced, small_hub, samples
) -> None:
    seen = []

    def spoil(module, args, output):
        output = output.clone()
        output[2, 3, 5], output[0, 0, 0], output[1, 1, :2] = torch.nan, torch.inf, -torch.inf
        seen.append(output.detach())
        return output

    gpt.blocks[0].mlp.fc1.register_forward_hook(spoil)
    tracer = traced(gpt, flags={"MLP1_mat_mul": {"compressor": Tile(16), "layers": "0", "samples": samples}})
    with tracer.step():
        gpt(ids)
    (row,) = small_hub.next_rows(1)
    assert (row["nan_count"], row["inf_count"]) == (1, 3)
    same(row, seen[0])


def test_a_tensor_without_a_finite_value_has_a_count_of_zero(gpt, ids, traced, small_hub) -> None:
    with torch.no_grad():
        gpt.blocks[0].mlp.fc1.bias.fill_(torch.nan)
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(16)}, layers="0")
    with tracer.step():
        gpt(ids)
    (row,) = small_hub.next_rows(1)
    same(row, torch.full((3, 8, 64), torch.nan))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types_of_number_are_measured_as_they_are(gpt, ids, traced, small_hub, dtype) -> None:
    gpt.blocks[1].mlp.fc1.register_forward_hook(lambda m, a, output: output.to(dtype))
    gpt.blocks[1].mlp.fc2.register_forward_pre_hook(lambda m, args: tuple(x.float() for x in args))
    seen = []
    gpt.blocks[1].mlp.fc1.register_forward_hook(lambda m, a, output: seen.append(output.detach().clone()))
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(8)}, layers="1")
    with tracer.step():
        gpt(ids)
    (row,) = small_hub.next_rows(1)
    assert seen[0].dtype is dtype
    same(row, seen[0])


def test_token_ids_have_none(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"InputTokens": NoOp()})
    with tracer.step():
        gpt(ids)
    for row in small_hub.next_rows(2):
        assert all(math.isnan(row[name]) for name in WHOLE)
        assert (row["nan_count"], row["inf_count"]) == (0, 0)


def test_they_are_what_the_contract_says_may_be_absent() -> None:
    assert tuple(STREAMS["tensors"].absent) == ("compression_error", *WHOLE, "call")
