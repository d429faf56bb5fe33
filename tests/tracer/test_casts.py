"""What casts to fewer bits lose, against torch's own casts and a definition in numpy that shares nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from megalens.protocol import CAST_SHARES, CAST_STATS, MOMENT_COLUMNS, merge_moments
from megalens.tracer.moments.casts import FORMATS, cast_rows, held_rows

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
    assert held["saturated"][0, 1].item() * x.numel() == pytest.approx(int((codes.float().abs() == 448).sum()))
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
