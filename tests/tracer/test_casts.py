"""What casts to fewer bits lose, against torch's own casts and a definition in numpy that shares nothing."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import megalens
from megalens.protocol import CAST_SHARES, CAST_STATS, MOMENT_COLUMNS, StepReadings, merge_moments
from megalens.tracer import TracerError
from megalens.tracer.moments.casts import FORMATS, Casts, cast_rows, held_rows
from megalens.tracer.moments.native import library
from megalens.tracer.moments.part import NameList

# Bits of the fraction, smallest exponent of a normal number, largest number.
BITS = {
    "float16": (10, -14, 65504.0),
    "bfloat16": (7, -126, 255 / 128 * 2.0**127),
    "e4m3": (3, -6, 448.0),
    "e5m2": (2, -14, 57344.0),
    "e2m1": (1, 0, 6.0),
}
FORMS = {
    name: name if name in BITS else "e2m1" if name == "nvfp4" else "e5m2" if "e5m2" in name else "e4m3"
    for name in FORMATS
}
FIGURE = {name: at for at, name in enumerate(MOMENT_COLUMNS)}


def rounded(values: np.ndarray, form: str) -> np.ndarray:
    """To the nearest number of a format without a largest one, ties to even, in float64."""
    bits, low, _ = BITS[form]
    exponent = np.maximum(np.frexp(values)[1] - 1, low)
    unit = np.ldexp(1.0, exponent - bits)
    return np.round(values / unit) * unit


def expected(x: np.ndarray, name: str) -> dict[str, object]:
    """Counts by stat and the scaled-back values of one tensor ``[rows, columns]`` of float32."""
    form = FORMS[name]
    largest = BITS[form][2]
    out = np.zeros(x.shape)
    counts = dict.fromkeys(CAST_SHARES, 0)
    scales, sizes = [], []
    whole = np.float32(np.abs(x[np.isfinite(x)]).max(initial=0))
    width = FORMATS[name].block or x.shape[1]
    groups = (
        [(r, slice(c, c + width)) for r in range(x.shape[0]) for c in range(0, x.shape[1], width)]
        if FORMATS[name].block
        else [(slice(None), slice(None))]
    )
    for place in groups:
        block = x[place].astype(np.float32)
        good = block[np.isfinite(block)]
        amax = np.float32(np.abs(good).max(initial=0))
        if name == "mxfp8":
            power = -127 if amax == 0 else math.ceil(math.log2(float(amax) / 448))
            encode, decode = np.float32(2.0**-power), 2.0**power
        elif name == "nvfp4":
            tensor = np.float32(6 * 448) / whole
            stored = np.float32(rounded(np.float64(np.float32(amax / np.float32(6)) * tensor), "e4m3"))
            encode = np.float32(0) if stored == 0 else np.float32(tensor / stored)
            decode = float(stored) / float(tensor)
        elif FORMATS[name].scaled:
            encode = np.float32(largest) / amax if amax else np.float32(1)
            decode = 1 / float(encode)
        else:
            encode, decode = np.float32(1), 1.0
        y = (block * encode).astype(np.float32).astype(np.float64)
        q = rounded(y, form)
        finite = np.isfinite(block)
        beyond = finite & (np.abs(q) > largest)
        if FORMATS[name].scaled:
            q = np.clip(q, -largest, largest)
        else:
            # What torch makes of a value that lies beyond differs by format and version.
            there = torch.tensor(block[beyond]).to(FORMATS[name].numbers.dtype)
            q[beyond] = there.double().numpy()
        normal = 2.0 ** BITS[form][1]
        counts["underflow"] += int((finite & (block != 0) & (q == 0)).sum())
        counts["overflow"] += int(beyond.sum())
        counts["saturated"] += int((beyond & np.isfinite(q)).sum())
        counts["subnormal"] += int((finite & (q != 0) & (np.abs(q) < normal)).sum())
        scales.append(decode)
        sizes.append(float(amax))
        out[place] = q * decode
    return {**counts, "finite": int(np.isfinite(x).sum()), "out": out, "scales": scales, "sizes": sizes}


def values(kind: str) -> Tensor:
    torch.manual_seed(3)
    if kind == "normal":
        return torch.randn(24, 96)
    if kind == "wide":
        return torch.randn(24, 96) * torch.logspace(-9, 6, 96)
    if kind == "ties":
        # Halves between neighbours of each format, at the ends of its range too.
        parts = [
            torch.tensor([1, -1]).repeat_interleave(n)[:n] * torch.arange(n) * step
            for n, step in ((384, 2.0**-11), (384, 0.125), (384, 4.0), (384, 2048.0))
        ]
        return torch.cat([*parts, torch.full((768,), 464.0)]).reshape(24, 96)
    return torch.cat([torch.randn(23, 90) * 1e-4, torch.full((1, 90), math.inf)])


@pytest.mark.parametrize("kind", ["normal", "wide", "ties", "odd"])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_each_format_loses_what_its_definition_says(name: str, kind: str) -> None:
    x = values(kind)
    np.seterr(invalid="ignore")
    if kind == "odd":
        x[3, 4] = math.nan
    found = {stat: row[0].tolist() for stat, row in cast_rows(x, FORMATS[name]).items()}
    assert set(found) == set(CAST_STATS)
    want = expected(x.numpy(), name)
    for stat in CAST_SHARES:
        count, mean, m2 = found[stat][:3]
        assert count == want["finite"]
        assert round(count * mean) == want[stat], stat
        assert m2 == pytest.approx(count * mean * (1 - mean), rel=1e-12)
    error = (np.asarray(want["out"]) - x.double().numpy())[np.isfinite(x.numpy())]
    kept = error[np.isfinite(error)]
    assert found["cast_error"][0] == len(kept)
    mean, m2 = found["cast_error"][1:3]
    assert m2 / len(kept) + mean**2 == pytest.approx(np.square(kept).mean(), rel=1e-5)
    assert found["cast_error"][FIGURE["nan_count"]] == np.isnan(error).sum()
    assert found["cast_error"][FIGURE["inf_count"]] == np.isinf(error).sum()
    scales, sizes = np.array(want["scales"]), np.array(want["sizes"])
    for stat, one in (("cast_scale", scales), ("cast_amax", sizes)):
        assert found[stat][FIGURE["count"]] == len(one)
        assert found[stat][FIGURE["max"]] == pytest.approx(one.max(), rel=1e-6)
        assert found[stat][FIGURE["min"]] == pytest.approx(one.min(), rel=1e-6)


@pytest.mark.skipif(isinstance(library.load(), str), reason="the kernel for CPUs is not built")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_kernel_for_cpus_finds_what_torchs_casts_lose(name: str, dtype: torch.dtype, monkeypatch) -> None:
    native, form = library.load(), FORMATS[name]
    parts = [values(kind).reshape(-1) for kind in ("normal", "wide", "ties", "odd")]
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16)
    parts += [every.view(torch.float16).float(), every.view(torch.bfloat16).float(), torch.zeros(64)]
    # Beyond the largest number of each format, and just below.
    parts += [
        torch.tensor([to.beyond * (1 + n * 2.0**-23) * sign for n in (-1, 0, 1)], dtype=torch.float32)
        for to in {each.numbers for each in FORMATS.values()}
        for sign in (1, -1)
    ]
    every = torch.cat(parts).to(dtype)
    small = every[every.abs() < 1e4]
    delayed = torch.tensor(3.7) if form.scaled == "delayed" else None
    for x in (every, small, small[1:4001].reshape(40, 100), small[5:5005].reshape(1000, 5).t(), every[7]):
        monkeypatch.setattr(library, "load", lambda: "left out")
        plain = cast_rows(x, form, delayed)
        for level in range(native.level + 1):
            kernel = library.NativeKernel(native.path, level)
            monkeypatch.setattr(library, "load", lambda kernel=kernel: kernel)
            found = cast_rows(x, form, delayed)
            for stat, row in plain.items():
                if stat == "cast_error" and float(row[0, 0]):
                    _same_errors(found[stat][0], row[0])
                    continue
                precision = 0 if stat in CAST_SHARES else 1e-12
                torch.testing.assert_close(found[stat], row, rtol=precision, atol=0, equal_nan=True)


def _same_errors(found: Tensor, want: Tensor) -> None:
    """Compare rows of moments: the mean and the third moment, which may cancel, by the size of the errors."""
    by = {name: (float(found[at]), float(want[at])) for name, at in FIGURE.items()}
    n, spread = by["count"][1], math.sqrt(by["m2"][1] / by["count"][1])
    largest = max(abs(by["min"][1]), abs(by["max"][1]))
    assert by["mean"][0] == pytest.approx(by["mean"][1], rel=1e-6, abs=1e-9 * largest)
    assert by["m3"][0] == pytest.approx(by["m3"][1], rel=1e-6, abs=1e-9 * n * largest * largest * spread)
    for name in set(by) - {"mean", "m3"}:
        assert by[name][0] == pytest.approx(by[name][1], rel=1e-6), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("kind", ["normal", "wide", "ties"])
def test_plain_casts_are_torchs_own_value_for_value(dtype: torch.dtype, kind: str) -> None:
    name = str(dtype).removeprefix("torch.")
    name = f"{name}_unscaled" if "float8" in name else name
    x = values(kind)
    after = x.to(dtype).float()
    rows = {stat: row[0].tolist() for stat, row in cast_rows(x, FORMATS[name]).items()}
    n = x.numel()
    assert round(rows["underflow"][1] * n) == int(((after == 0) & (x != 0)).sum())
    lost = int((~after.isfinite()).sum())
    assert round(rows["overflow"][1] * n) - round(rows["saturated"][1] * n) == lost
    assert rows["cast_error"][FIGURE["nan_count"]] + rows["cast_error"][FIGURE["inf_count"]] == lost
    tiny = torch.finfo(dtype).smallest_normal
    assert round(rows["subnormal"][1] * n) == int(((after != 0) & (after.abs() < tiny)).sum())


def test_scaled_float8_is_torchs_cast_of_the_scaled_and_clamped_values() -> None:
    x = values("wide").bfloat16()
    scale = torch.tensor(448.0) / x.float().abs().max()
    codes = (x.float() * scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    rows = cast_rows(x, FORMATS["float8_e4m3fn"])
    error = codes.double() / scale.double() - x.double()
    assert rows["cast_error"][0, 1].item() == pytest.approx(error.mean().item(), rel=1e-5)
    assert round(rows["underflow"][0, 1].item() * x.numel()) == int(((codes.float() == 0) & (x != 0)).sum())
    # Of the codes themselves, what can be known of them is the same.
    held = held_rows(codes, 1 / scale)
    assert set(held) == {"saturated", "subnormal", "cast_scale", "cast_amax"}
    assert torch.equal(held["subnormal"], rows["subnormal"])
    assert held["saturated"][0, 1].item() * x.numel() == pytest.approx(
        int((codes.float().abs() == 448).sum())
    )
    assert held["cast_amax"][0, 1].item() == pytest.approx(x.float().abs().max().item(), rel=1e-6)


def test_a_delayed_scale_that_is_too_large_saturates() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 1000.0])
    rows = cast_rows(x, FORMATS["float8_e4m3fn_delayed"], torch.tensor(4.0))
    assert [round(rows[stat][0, 1].item() * 4) for stat in CAST_SHARES] == [0, 1, 1, 0]
    assert rows["cast_scale"][0, 1].item() == 0.25


def test_shares_of_pieces_merge_to_those_of_the_whole_exactly() -> None:
    x = values("wide")
    form = FORMATS["mxfp8"]
    pieces = [cast_rows(part, form) for part in x.split((1, 7, 16))]
    whole = cast_rows(x, form)
    for stat in CAST_SHARES:
        rows = torch.cat([each[stat] for each in pieces]).numpy()
        columns = {name: rows[:, at] for name, at in FIGURE.items()}
        merged = merge_moments(columns, np.zeros(3, int), 1)
        assert merged["count"][0] == x.numel()
        assert merged["mean"][0] == pytest.approx(whole[stat][0, 1].item(), rel=1e-15)
        assert round(merged["mean"][0] * x.numel()) == round(whole[stat][0, 1].item() * x.numel())
        assert merged["m2"][0] == pytest.approx(whole[stat][0, 2].item(), rel=1e-12, abs=1e-300)


def test_nothing_and_zeros_have_no_losses() -> None:
    for form in FORMATS.values():
        empty = cast_rows(torch.empty(0, 5), form)
        assert all(row[0, 0] == 0 and row[0, 2:5].eq(0).all() for row in empty.values())
        zeros = cast_rows(torch.zeros(3, 5), form)
        assert all(zeros[stat][0, 1] == 0 for stat in (*CAST_SHARES, "cast_error", "cast_amax"))
        assert zeros["underflow"][0, 0] == 15


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(48, 48) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) * 1e-6
        return x.square().sum()


Row = dict[tuple[str, str], list[float]]


def logged(model: nn.Module, passes: list[list[Tensor]], **options: object) -> tuple[list[float], list[Row]]:
    """Train a step of each list of micro-batches; return losses and rows by stat and name of each step."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found: list[StepReadings] = []
    losses = []
    with megalens.log_statistics(model, optimizer, own=found.append, hub=None, **options) as statistics:
        for batches in passes:
            with statistics.step():
                for x in batches:
                    loss = model(x)
                    loss.backward()
                    losses.append(loss.item())
                optimizer.step()
                optimizer.zero_grad()
    return losses, [
        {
            (each.stat, name): row.tolist()
            for each in step.readings
            for name, row in zip(each.names, each.rows, strict=True)
        }
        for step in found
    ]


def test_a_training_has_the_shares_of_its_own_tensors_over_micro_batches() -> None:
    model, seen = Net(), []
    model.layers[1].register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
    weight = model.layers[1].weight.detach().clone()
    batches = [torch.randn(5, 48) * 1e-3, torch.randn(7, 48) * 3]
    losses, (rows,) = logged(
        model, [batches], precision=1, formats={"activation": "float16", "param": "mxfp8"}
    )
    n = sum(x.numel() for x in seen)
    name = "layers.1/input0/activation:float16"
    for stat, lost in (
        ("underflow", [(x.half() == 0) & (x != 0) for x in seen]),
        ("subnormal", [(x.half() != 0) & (x.half().abs() < 2**-14) for x in seen]),
    ):
        count, mean = rows[stat, name][:2]
        assert count == n
        assert round(count * mean) == sum(int(each.sum()) for each in lost) > 0
    assert rows["cast_amax", name][FIGURE["max"]] == max(x.abs().max().item() for x in seen)
    assert rows["cast_amax", name][0] == 2
    want = cast_rows(weight, FORMATS["mxfp8"])
    assert rows["cast_error", "layers.1.weight/param:mxfp8"] == want["cast_error"][0].tolist()
    assert {stat for stat, _ in rows} == set(CAST_STATS)
    # The training is the same without.
    plain = Net()
    assert losses == [plain(x).item() for x in batches]


def test_gradients_are_cast_as_they_come() -> None:
    model, seen = Net(), []
    hook = model.layers[1].register_full_backward_hook(lambda module, into, out: seen.append(out[0].clone()))
    _, (rows,) = logged(model, [[torch.randn(5, 48)]], precision=1, formats={"dgrad": "float8_e5m2"}, dgrad=1)
    hook.remove()
    name = "layers.1/output0/dgrad:float8_e5m2"
    want = cast_rows(seen[0], FORMATS["float8_e5m2"])
    assert {stat: rows[stat, name] for stat in CAST_STATS} == {k: v[0].tolist() for k, v in want.items()}
    assert rows["dgrad", "layers.1/output0"][0] == seen[0].numel()


def test_casts_have_an_interval_of_their_own() -> None:
    batches = [[torch.randn(3, 48)]] * 4
    _, steps = logged(Net(), batches, precision=2, activation=1)
    there = [("underflow", "layers.0/input0/activation:float8_e4m3fn") in step for step in steps]
    assert there == [False, True, False, True]
    assert all(("activation", "layers.0/input0") in step for step in steps)
    assert ("underflow", "layers.0.weight/param:float8_e4m3fn") in steps[1]
    assert ("underflow", "layers.0/output0/dgrad:float8_e5m2") in steps[1]


def test_delayed_scaling_takes_the_largest_sizes_of_the_steps_before() -> None:
    batches = [[torch.full((1, 48), size)] for size in (1.0, 2.0, 64.0, 3.0)]
    _, steps = logged(Net(), batches, precision=1, formats={"activation": "float8_e4m3fn_delayed"})
    name = "layers.0/input0/activation:float8_e4m3fn_delayed"
    scales = [step["cast_scale", name][1] * 448 for step in steps]
    assert scales == pytest.approx([1, 1, 2, 64], rel=1e-6)
    assert [step["saturated", name][1] for step in steps] == [0, 1, 1, 0]


def test_a_module_with_scales_of_its_own_is_cast_by_them() -> None:
    model = Net()
    # As Transformer Engine's modules have them: of input, weight and output; of the output's gradient.
    scales = {"scaling_fwd": (8.0, 2.0, 1.0), "scaling_bwd": (4.0, 1.0)}
    meta = {key: SimpleNamespace(scale=torch.tensor(each)) for key, each in scales.items()}
    model.layers[0].fp8_meta = {"recipe": None, **meta}
    formats = dict.fromkeys(("activation", "param", "dgrad"), "float8_e5m2_delayed")
    _, (rows,) = logged(model, [[torch.randn(3, 48)]], precision=1, formats=formats)
    ends = {"layers.0/input0/activation": 8.0, "layers.0.weight/param": 2.0, "layers.0/output0/dgrad": 4.0}
    for end, scale in ends.items():
        assert rows["cast_scale", f"{end}:float8_e5m2_delayed"][1] == 1 / scale


def test_tensors_of_float8_in_a_model_tell_what_they_hold() -> None:
    model = Net()
    weight = torch.randn(48, 48)
    scale = weight.abs().max() / 448
    codes = (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    model.register_buffer("table", codes)
    model.register_buffer("table_scale", scale)
    _, (rows,) = logged(model, [[torch.randn(3, 48)]], precision=1)
    name = "table/param:float8_e4m3fn"
    assert {stat for stat, each in rows if each == name} == {
        "saturated",
        "subnormal",
        "cast_scale",
        "cast_amax",
    }
    assert rows["cast_scale", name][1] == pytest.approx(scale.item())
    assert rows["cast_amax", name][1] == pytest.approx(weight.abs().max().item(), rel=1e-6)
    size = codes.float().abs()
    assert rows["subnormal", name][1] == ((size > 0) & (size < 2**-6)).sum().item() / codes.numel()
    assert rows["saturated", name][1] == (size == 448).sum().item() / codes.numel()


class Held(Tensor):
    """A tensor of a class that holds numbers and a scale by which they were multiplied, as torchao's does."""

    @staticmethod
    def __new__(cls, codes: Tensor, scale: Tensor) -> Held:
        return Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.bfloat16)

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self._data, self._scale = codes, scale

    def __torch_dispatch__(
        self, func: object, types: object, args: object = (), kwargs: object = None
    ) -> None:
        raise NotImplementedError(func)


def test_classes_that_hold_float8_tell_what_they_hold() -> None:
    codes = torch.tensor([448.0, 2.0**-9, 1.0]).to(torch.float8_e4m3fn)
    casts = Casts({"activation": ("nvfp4",)}, NameList())
    names = casts._names
    rows = {stat: (names[at], row) for stat, at, row in casts.rows(
        "activation", names.index("up/input0"), Held(codes, torch.tensor(4.0)))}  # fmt: skip
    assert {name for name, _ in rows.values()} == {"up/input0/activation:float8_e4m3fn"}
    assert {stat: row[0, 1].item() for stat, (_, row) in rows.items()} == {
        "saturated": 1 / 3, "subnormal": 1 / 3, "cast_scale": 0.25, "cast_amax": 112,
    }  # fmt: skip


@pytest.mark.parametrize("formats", ["float9", {"grad": "mxfp8"}, {"param": ["mxfp8", 4]}])
def test_a_format_that_there_is_not_is_refused_with_those_there_are(formats: object) -> None:
    with pytest.raises(TracerError, match=r"formats=… .*(float16|param, activation)"):
        megalens.log_statistics(Net(), None, precision=1, formats=formats, hub=None, own=print)
