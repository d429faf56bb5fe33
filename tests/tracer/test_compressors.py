"""Compressors, against values computed another way."""

import numpy as np
import pytest
import torch

from megalens.protocol import Empty, NoOp, Peaks, Projection, ProtocolError, Tile, compressor_from_setting
from megalens.tracer.moments.native.library import MOST_IN_GROUPS, MOST_PARTS, load
from megalens.tracer.tensors.compressors import NativeTiles, Stage, copy_values, make_kernel, plan_of

_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_KERNEL = load()
_LEVELS = () if isinstance(_KERNEL, str) else range(_KERNEL.level + 1)
_LAYOUTS = {
    "as it is": lambda data: data,
    "sequence first": lambda data: data.transpose(0, 1).contiguous().transpose(0, 1),
    "every second": lambda data: data[:, ::2],
    "in three strides": lambda data: data[:2, ::3, ::2],
    "from the middle": lambda data: data[..., 3:],
    "no neighbours": lambda data: data.transpose(-1, -2).contiguous().transpose(-1, -2),
}


@pytest.mark.parametrize("level", _LEVELS)
@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("reduction", ["mean", "rms"])
def test_the_library_makes_the_tiles_that_float64_gives(level, layout, reduction, monkeypatch) -> None:
    monkeypatch.setattr(_KERNEL, "level", level)
    rng = np.random.default_rng(0)
    for dtype in _TYPES:
        for features, tiles in ((96, 96), (97, 10), (45, 1), (6, 4), (1000, 7)):
            data = _LAYOUTS[layout](torch.from_numpy(rng.normal(1, 2, (3, 8, features))).to(dtype))
            kernel = make_kernel(Tile(tiles, reduction))
            assert isinstance(kernel, NativeTiles)
            assert (plan_of([kernel], [data], data.ndim) is None) == (
                layout in ("in three strides", "no neighbours")
            )
            values = data.double().numpy()
            width = -(-values.shape[-1] // tiles)
            pieces = np.split(values, range(width, values.shape[-1], width), axis=-1)
            # Tiles of single features are the values either way.
            signed = reduction == "mean" or width == 1
            means = [np.mean(piece if signed else piece**2, -1) for piece in pieces]
            expected = np.stack(means if signed else np.sqrt(means), -1)
            np.testing.assert_allclose(kernel(data, 1).numpy(), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("widths", [(10, 10, 10), (16, 4, 10)])
def test_all_parts_of_a_tensor_come_from_one_call_and_fill_the_stage_in_order(widths) -> None:
    data = torch.randn(2, 5, 30)
    kernel = make_kernel(Tile(4))
    stage = Stage(3 * 2 * 5 * 4)
    parts = data.split(widths, -1)
    plan = plan_of([kernel] * 3, parts, 3)
    found = plan.tiles(stage)
    assert np.concatenate(found).tolist() == stage.filled().tolist()
    for part, shape, tiles in zip(parts, plan.shapes, found, strict=True):
        assert np.shares_memory(tiles, stage.filled())
        np.testing.assert_allclose(tiles.reshape(shape), kernel._otherwise(part, 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("sequence_first", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
# Tiles within a group, over its border, of several groups, and of a row whose last one is shorter.
@pytest.mark.parametrize("tiles", [96, 24, 9, 5, 1])
def test_tiles_of_parts_in_groups_are_those_of_the_parts_in_one_piece(dtype, sequence_first, samples, tiles) -> None:  # fmt: skip
    data = torch.randn(5, 3, 4 * 28).transpose(0, 1) if sequence_first else torch.randn(3, 5, 4 * 28)
    parts = data.to(dtype)[:samples].unflatten(-1, (4, 28)).split([12, 6, 10], -1)
    kernels = [make_kernel(Tile(each)) for each in (tiles, 2, tiles)]
    plan = plan_of(kernels, parts, 3)
    for kernel, part, shape, found in zip(kernels, parts, plan.shapes, plan.tiles(Stage(0)), strict=True):
        whole = kernel._otherwise(part.flatten(-2), 1)
        assert shape == tuple(whole.shape)
        np.testing.assert_allclose(found.reshape(shape), whole, rtol=1e-6, atol=1e-6)


def test_what_one_call_cannot_read_is_made_otherwise() -> None:
    mean, rms = make_kernel(Tile(4)), make_kernel(Tile(4, "rms"))
    parts = torch.randn(2, 3, 5 * (MOST_PARTS + 1)).split(5, -1)
    assert plan_of([mean] * MOST_PARTS, parts[:MOST_PARTS], 3) is not None
    assert plan_of([mean] * len(parts), parts, 3) is None
    assert plan_of([mean, rms], parts[:2], 3) is None
    assert plan_of([mean, copy_values], parts[:2], 3) is None
    assert plan_of([mean], [torch.randn(1, 2, 4, MOST_IN_GROUPS // 4)], 3) is not None
    assert plan_of([mean], [torch.randn(1, 2, 4, MOST_IN_GROUPS // 4 + 1)], 3) is None
    assert plan_of([mean], [torch.randn(1, 2, 0)], 3) is None


def test_what_is_not_finite_stays_in_its_own_tile() -> None:
    data = torch.ones(1, 1, 40)
    data[..., 3], data[..., 25], data[..., 39] = torch.nan, torch.inf, -torch.inf
    for reduction, last in (("mean", -torch.inf), ("rms", torch.inf)):
        out = make_kernel(Tile(4, reduction))(data, 1).flatten()
        assert out[0].isnan()
        assert out[1:].tolist() == [1, torch.inf, last]


@pytest.mark.parametrize(
    ("features", "tiles", "count"), [(12, 4, 4), (13, 4, 4), (10, 4, 4), (5, 96, 5), (1, 3, 1), (9, 4, 3)]
)
def test_padding_never_enters_a_tile(features: int, tiles: int, count: int) -> None:
    data = torch.rand(2, 3, features) + 5
    out = make_kernel(Tile(tiles, "min"), None)(data, 1)
    width = -(-features // tiles)
    pieces = np.split(data.numpy(), range(width, features, width), axis=-1)
    expected = np.stack([piece.min(-1) for piece in pieces], -1)
    assert out.shape == (2, 3, count)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_the_last_partial_tile_is_averaged_over_its_own_features() -> None:
    out = make_kernel(Tile(2, "mean"))(torch.tensor([[1.0, 1.0, 1.0, 4.0, 4.0]]), 1)
    assert out.tolist() == [[1.0, 4.0]]


def test_half_precision_is_reduced_in_float32() -> None:
    data = torch.full((1, 1, 4096), 1.001, dtype=torch.bfloat16)
    out = make_kernel(Tile(1, "sum"))(data, 1)
    assert out.dtype == torch.float32
    assert out.item() == data.float().sum().item()


def test_no_compression_keeps_every_value_in_memory_of_its_own() -> None:
    data = torch.arange(6.0).reshape(1, 2, 3)
    out = make_kernel(NoOp())(data, 1)
    data.zero_()
    assert out.flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_no_compression_of_a_transposed_tensor_is_row_major() -> None:
    data = torch.arange(6.0).reshape(2, 3).T
    assert make_kernel(NoOp())(data, 1).numpy().reshape(-1).tolist() == [0, 3, 1, 4, 2, 5]


def test_empty_keeps_the_shape_only() -> None:
    assert make_kernel(Empty())(torch.ones(1, 4, 8), 1).shape == (1, 4, 0)


def test_a_projection_takes_the_layers_own_unit_vectors() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(3, 2, 8), dim=-1)
    data = torch.randn(1, 5, 8)
    out = make_kernel(Projection("v.npy"), vectors)(data, 2)
    expected = np.einsum("bsf,kf->bsk", data.numpy(), vectors[2].numpy())
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "cells", "sides"),
    [
        (8, 8, 8, (1, 1)),
        (9, 9, 8, (2, 2)),
        (33, 40, 8, (8, 8)),
        # One query that reads what was cached.
        (1, 300, 256, (1, 2)),
        (300, 1, 256, (2, 1)),
        (7, 5, 1, (8, 8)),
    ],
)
def test_peaks_are_the_maxima_of_blocks(dtype, queries: int, keys: int, cells: int, sides) -> None:
    data = torch.rand(2, 3, queries, keys, dtype=torch.float64).to(dtype)
    data[0, 1, 0, 0] = torch.nan
    peaks = Peaks(cells)
    out = make_kernel(peaks)(data, 1)
    down, across = sides
    assert (peaks.side(queries), peaks.side(keys)) == sides
    array = data.float().numpy() if dtype is not torch.float64 else data.numpy()
    expected = np.array(
        [
            [
                [
                    [head[q : q + down, k : k + across].max() for k in range(0, keys, across)]
                    for q in range(0, queries, down)
                ]
                for head in sample
            ]
            for sample in array
        ]
    ).astype(np.float32)
    assert out.dtype == torch.float32
    assert max(out.shape[-2:]) <= cells
    np.testing.assert_array_equal(out.numpy(), expected)
    kept = out.clone()
    data.zero_()
    assert torch.equal(out.nan_to_num(), kept.nan_to_num())


def test_peaks_of_nothing_are_nothing() -> None:
    assert make_kernel(Peaks(4))(torch.rand(0, 2, 9, 9), 1).shape == (0, 2, 3, 3)
    assert make_kernel(Peaks(4))(torch.rand(1, 2, 0, 9), 1).shape == (1, 2, 0, 3)


def test_a_compressor_is_read_back_from_its_message_and_says_itself() -> None:
    assert str(Peaks()) == "Peaks(cells=256)"
    assert compressor_from_setting(Peaks(64).to_setting()) == Peaks(64)
    with pytest.raises(
        ProtocolError, match=r"Peaks\(cells=…\) must be a whole number from 1 to 65536, got 0"
    ):
        compressor_from_setting({"name": "Peaks", "params": {"cells": 0}})


@pytest.mark.parametrize("features", [2, 7, 12, 13, 30, 64])
@pytest.mark.parametrize("tiles", [1, 4, 7, 96])
def test_the_mean_of_narrow_tiles_is_the_mean_of_each_piece(features: int, tiles: int) -> None:
    # A slice of a wider tensor, as queries are of a fused one.
    data = torch.randn(2, 5, features + 3)[..., 2:-1]
    width = -(-features // tiles)
    pieces = data.split(width, dim=-1)
    for text in ("mean", "data.mean(dim=-1)", "1 * mean"):
        out = make_kernel(Tile(tiles, text))(data, 1)
        torch.testing.assert_close(out, torch.stack([piece.mean(-1) for piece in pieces], -1))


@pytest.mark.filterwarnings("error")
def test_the_mean_of_narrow_tiles_keeps_non_finite_values() -> None:
    data = torch.tensor([[1.0, torch.nan, torch.inf, 1.0, torch.inf, -torch.inf, 3e38, 3e38]])
    out = make_kernel(Tile(4))(data, 1)
    assert out.isnan().tolist() == [[True, False, True, False]]
    assert out.isinf().tolist() == [[False, True, False, True]]
