"""The error that a heatmap states of its compressor equals a plain float64 calculation of it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils._python_dispatch import TorchDispatchMode

from megalens.protocol import Empty, NoOp, Peaks, Projection, Tile
from megalens.tracer.tensors.compression_error import CompressionError
from megalens.tracer.tensors.compressors import make_kernel
from megalens.tracer.tensors.pieces import Cut
from megalens.tracer.tensors.probes import errors_of

SHAPES = hnp.array_shapes(min_dims=2, max_dims=4, min_side=1, max_side=9)
ANY = st.floats(width=32, allow_subnormal=False)
FINITE = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)


def compression_error(data, stored, compressor, vectors=None, layer=0):
    return CompressionError(compressor, vectors)(data, stored, layer)


def by_hand(x, again):
    """The definition, in float64."""
    x, again = np.asarray(x, np.float64), np.asarray(again, np.float64)
    both = np.isfinite(x) & np.isfinite(again)
    if x.size == 0:
        return 0.0
    if not both.any():
        return np.nan
    scale = np.abs(x[both]).max() or 1.0
    whole = np.sqrt(np.sum((x[both] / scale) ** 2))
    return float(np.sqrt(np.sum(((x - again)[both] / scale) ** 2)) / whole) if whole else 0.0


def same(error, expected, close=1e-6):
    assert error.shape == ()
    assert error.dtype == torch.float64
    np.testing.assert_allclose(float(error), expected, rtol=close, atol=1e-9)


@given(
    hnp.arrays(np.float32, SHAPES, elements=ANY),
    st.integers(1, 12),
    st.sampled_from(["mean", "sum", "median"]),
)
def test_tiles_repeat_their_centre(x, tiles, reduction):
    compressor = Tile(tiles, reduction)
    data = torch.from_numpy(x)
    kept = make_kernel(compressor)(data, 1)
    width = -(-x.shape[-1] // tiles)
    again = np.repeat(kept.numpy().astype(np.float64), width, -1)[..., : x.shape[-1]]
    if reduction == "sum":
        widths = [len(part) for part in np.split(np.arange(x.shape[-1]), range(width, x.shape[-1], width))]
        again = again / np.repeat(widths, widths)
    with np.errstate(all="ignore"):
        same(compression_error(data, kept, compressor), by_hand(x, again))


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 6), st.just(8)), elements=FINITE),
    st.integers(0, 9),
)
def test_a_projection_loses_what_lies_outside_of_its_span(x, seed):
    rng = np.random.default_rng(seed)
    count = 1 + seed % 4
    vectors = rng.normal(size=(2, count, 8)).astype(np.float32)
    if seed % 3 == 0:
        # Twice the same direction spans no more than once.
        vectors[:, -1] = -2 * vectors[:, 0]
    unit = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=-1)
    compressor = Projection("v.npy")
    data = torch.from_numpy(x)
    kept = make_kernel(compressor, unit)(data, 1)
    span = unit[1].double().numpy()
    again = x.astype(np.float64) @ np.linalg.pinv(span, rcond=1e-5) @ span
    same(compression_error(data, kept, compressor, unit, 1), by_hand(x, again), 1e-5)


@given(hnp.arrays(np.float64, SHAPES, elements=st.floats(-1e30, 1e30)))
def test_keeping_every_value_loses_the_rounding_to_float32(x):
    data = torch.from_numpy(x)
    kept = make_kernel(NoOp())(data, 1)
    error = compression_error(data, kept, NoOp())
    same(error, by_hand(x, x.astype(np.float32)))
    if np.abs(x).max() > 1e-20:
        assert float(error) < 1e-7


@pytest.mark.parametrize(
    "kind", [torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.int32, torch.bool]
)
def test_types_that_fit_into_float32_lose_nothing(kind):
    data = (torch.arange(24).reshape(2, 3, 4) % 2 * 3).to(kind)
    same(compression_error(data, make_kernel(NoOp())(data, 1), NoOp()), 0.0)


def test_shape_and_counts_only_lose_everything():
    data = torch.randn(2, 3, 4)
    same(compression_error(data, make_kernel(Empty())(data, 1), Empty()), 1.0)


@pytest.mark.parametrize("compressor", [NoOp(), Empty(), Tile(2), Tile(2, "sum")])
def test_zeros_and_nothing_lose_nothing(compressor):
    for shape in ((2, 3, 4), (0, 3, 4), (2, 0, 4), (2, 3, 0)):
        data = torch.zeros(shape)
        kept = make_kernel(compressor)(data, 1) if data.numel() else data
        same(compression_error(data, kept, compressor), 0.0)


@pytest.mark.parametrize(
    "reduction", ["max", "std", "norm", "data.abs().mean()", "mean(data > 0)", "2 * mean"]
)
def test_what_rebuilds_no_tensor_has_no_error(reduction):
    data = torch.randn(2, 3, 8)
    compressor = Tile(4, reduction)
    assert compression_error(data, make_kernel(compressor)(data, 1), compressor).isnan()


@pytest.mark.parametrize(
    "reduction", ["mean", " mean( ) ", "mean(data)", "data.mean()", "data.mean(dim=-1)", "data . mean(-1)"]
)
def test_every_spelling_of_the_mean_is_one(reduction):
    data = torch.randn(2, 3, 8)
    kept = make_kernel(Tile(4, reduction))(data, 1)
    assert compression_error(data, kept, Tile(4, reduction)) == compression_error(data, kept, Tile(4))


def test_only_finite_positions_count():
    data = torch.tensor([[1.0, 1.0, 2.0, 4.0, torch.inf, 5.0]])
    kept = make_kernel(Tile(3))(data, 1)
    same(compression_error(data, kept, Tile(3)), np.sqrt(2 / 22))
    data = torch.full((1, 2, 4), torch.nan)
    assert compression_error(data, make_kernel(Tile(2))(data, 1), Tile(2)).isnan()


def test_huge_and_tiny_values_neither_overflow_nor_vanish():
    for size in (1e37, 1e-37):
        data = torch.tensor([[size, 3 * size]])
        same(compression_error(data, make_kernel(Tile(1))(data, 1), Tile(1)), np.sqrt(2 / 10))


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=3, max_dims=4, min_side=1, max_side=9), elements=ANY),
    st.integers(1, 9),
)
def test_peaks_stand_for_their_whole_block(x, cells):
    data, compressor = torch.from_numpy(x), Peaks(cells)
    kept = make_kernel(compressor)(data, 1)
    again = kept.numpy()
    for axis in (-2, -1):
        again = np.repeat(again, compressor.side(x.shape[axis]), axis)
    again = again[..., : x.shape[-2], : x.shape[-1]]
    with np.errstate(all="ignore"):
        same(compression_error(data, kept, compressor), by_hand(x, again))
        if cells >= max(x.shape[-2:]):
            same(compression_error(data, kept, compressor), by_hand(x, x))


@pytest.mark.parametrize("compressor", [Peaks(4), Tile(8)])
def test_of_one_large_head_some_queries_are_measured(monkeypatch, compressor):
    monkeypatch.setattr("megalens.tracer.tensors.probes._MEASURED_VALUES", 100)
    data = torch.rand(2, 3, 30, 32)
    kept = make_kernel(compressor)(data, 1)
    probe = SimpleNamespace(flag=SimpleNamespace(error=CompressionError(compressor)), layer=1)
    (error,) = errors_of(probe, [data], [kept], [Cut(make_kernel(compressor))])
    # Whole blocks of 8 queries, though that is more; else three queries of 32 keys.
    rows = 8 if isinstance(compressor, Peaks) else 3
    part = data[0, 0, :rows].numpy()
    again = np.repeat(kept[0, 0, : rows // 8 or rows].numpy(), 32 // kept.shape[-1], -1)
    same(error, by_hand(part, np.broadcast_to(again, part.shape)))


def test_large_tensors_are_taken_in_pieces(monkeypatch):
    monkeypatch.setattr("megalens.tracer.tensors.compression_error._CHUNK", 64)
    data = torch.randn(7, 11, 10)
    kept = make_kernel(Tile(4))(data, 1)
    again = np.repeat(kept.numpy(), 3, -1)[..., :10]
    same(compression_error(data, kept, Tile(4)), by_hand(data.numpy(), again))


@pytest.mark.parametrize(
    "compressor", [NoOp(), Empty(), Tile(3), Tile(3, "sum"), Projection("v.npy"), Peaks(2)]
)
def test_no_value_is_read_back(compressor):
    class NothingRead(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            assert function not in (
                torch.ops.aten._local_scalar_dense.default,
                torch.ops.aten.nonzero.default,
            )
            return function(*args, **(kwargs or {}))

    vectors = torch.eye(4, 8).expand(2, 4, 8).contiguous()
    data = torch.randn(2, 5, 8, requires_grad=True)
    kept = make_kernel(compressor, vectors)(data.detach(), 1)
    measure = CompressionError(compressor, vectors)
    with NothingRead(), torch.autocast("cpu", torch.bfloat16):
        error = measure(data, kept, 1)
    assert not error.requires_grad
    assert error.dtype == torch.float64


@settings(max_examples=20)
@given(st.integers(1, 64))
def test_more_tiles_lose_less_when_they_divide_each_other(tiles):
    data = torch.randn(2, 4, 64, generator=torch.Generator().manual_seed(tiles))
    errors = [
        compression_error(data, make_kernel(Tile(n))(data, 1), Tile(n)) for n in (1, 2, 4, 8, 16, 32, 64)
    ]
    assert errors == sorted(errors, reverse=True)
    same(errors[-1], 0.0)
