"""Histograms count exactly, in bins that are the same for every tensor, whoever counts."""

import numpy as np
import pytest
import torch

from megalens.protocol import Histogram, ProtocolError, compressor_from_setting
from megalens.tracer.moments.native.library import NativeKernel, load
from megalens.tracer.tensors import compressors
from megalens.tracer.tensors.compressors import make_kernel

LIBRARY = load()
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
HISTOGRAMS = [
    Histogram(),
    Histogram(100),
    Histogram(7, tiles=3),
    Histogram(1024, tiles=5),
    Histogram(64, log=False, limit=3.0),
    Histogram(16, log=False, tiles=4, limit=0.125),
]


def counted(histogram: Histogram, data: torch.Tensor) -> np.ndarray:
    """Return the counts by a search among the edges, with numpy alone."""
    values, edges = data.float().numpy().astype(np.float64), np.array(histogram.edges())
    features = values.shape[-1]
    width = -(-features // histogram.tiles)
    tiles = [values[..., at : at + width] for at in range(0, features, width)]
    found = np.zeros((len(values), len(tiles), 2 * histogram.bins + 1))
    for at, tile in enumerate(tiles):
        for sample, each in enumerate(tile):
            finite = each[np.isfinite(each)]
            above = np.searchsorted(edges, np.abs(finite), side="right")
            above[finite == 0] = 0
            np.add.at(found[sample, at], histogram.bins + np.where(finite < 0, -above, above), 1)
    return found


def hard_values(dtype: torch.dtype) -> torch.Tensor:
    """Return values of all sizes, among them edges, both zeros, and what is not finite."""
    drawn = torch.Generator().manual_seed(1)
    data = torch.randn(3, 70, 131, generator=drawn) * torch.exp(torch.randn(3, 70, 131, generator=drawn) * 8)
    flat = data.view(-1)
    flat[:5] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0])
    edges = torch.tensor(Histogram().edges())
    flat[5:133], flat[133:261] = edges, -edges
    return data.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("histogram", HISTOGRAMS, ids=str)
@pytest.mark.parametrize("kernel", ["torch", *range(0 if isinstance(LIBRARY, str) else LIBRARY.level + 1)])
def test_every_value_is_counted_in_the_bin_that_its_edges_say(dtype, histogram, kernel, monkeypatch) -> None:
    library = "left out" if kernel == "torch" else NativeKernel(LIBRARY.path, kernel)
    monkeypatch.setattr(compressors, "load", lambda: library)
    data = hard_values(dtype)
    for each in (data, data.transpose(0, 1), torch.cat((data, data), -1)[..., 100:231]):
        found = make_kernel(histogram)(each, 0)
        assert found.dtype == torch.float32
        np.testing.assert_array_equal(found, counted(histogram, each))


def common_values(kind: str, n: int) -> torch.Tensor:
    """Return values most of which lie in few bins, or in many."""
    drawn = torch.Generator().manual_seed(2)
    normal, even = torch.randn(n, generator=drawn), torch.rand(n, generator=drawn)
    return {
        "normal": lambda: normal * 0.02,
        "half of them zeros": lambda: normal.relu(),
        "negative ones small": lambda: torch.nn.functional.gelu(normal * 3),
        "heavy tails": lambda: normal / even,
        "equal": lambda: torch.full((n,), -0.3),
        "all zeros": lambda: torch.zeros(n),
        "60 octaves": lambda: torch.exp2(even * 60 - 37) * normal.sign(),
        "beyond the last bin": lambda: normal * 2.0**25,
        "other ones from the middle on": lambda: torch.where(torch.arange(n) < n // 2, normal, even * 1e4),
        "a tenth not finite": lambda: torch.where(
            even < 0.1, torch.inf * normal.sign() * (even - 0.05), normal
        ),
    }[kind]()


COMMON = ["normal", "half of them zeros", "negative ones small", "heavy tails", "equal", "all zeros", "60 octaves", "beyond the last bin", "other ones from the middle on", "a tenth not finite"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", COMMON)
@pytest.mark.skipif(isinstance(LIBRARY, str), reason="the kernel for CPUs is not built")
def test_values_that_are_counted_many_at_once_are_counted_exactly(dtype, kind) -> None:
    data = common_values(kind, 60_001).to(dtype)
    some = data[::7919]
    some[:4] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0]).to(dtype)
    for histogram in (
        Histogram(128),
        Histogram(64),
        Histogram(1024),
        Histogram(100),
        Histogram(5),
        Histogram(40, log=False, limit=0.1),
    ):
        # At any address, and of a length that fills no vector.
        for each in (data[1:][None], data[3:40_002].reshape(1, 3, 13_333), data[:2_600][None]):
            expected = counted(histogram, each)
            for level in range(LIBRARY.level + 1):
                scale = None if histogram.log else histogram.bins / histogram.limit
                found = NativeKernel(LIBRARY.path, level).count(each, each.shape[-1], histogram.bins, scale)
                np.testing.assert_array_equal(found, expected)


def test_counts_of_parts_add_up_to_those_of_the_whole() -> None:
    kernel = make_kernel(Histogram())
    whole = torch.randn(1, 64, 96)
    pieces = [kernel(piece, 0) for piece in whole.split(16, 1)]
    torch.testing.assert_close(sum(pieces), kernel(whole, 0), rtol=0, atol=0)
    assert kernel(whole, 0).sum() == whole.numel()


def test_counts_do_not_depend_on_the_number_of_threads() -> None:
    data, before = torch.randn(2, 1500, 257), torch.get_num_threads()
    kernel = make_kernel(Histogram(tiles=4))
    try:
        torch.set_num_threads(1)
        alone = kernel(data, 0)
        torch.set_num_threads(5)
        np.testing.assert_array_equal(kernel(data, 0), alone)
    finally:
        torch.set_num_threads(before)


def test_edges_of_logarithmic_bins_cut_each_octave_in_equal_parts() -> None:
    edges = np.array(Histogram(128).edges())
    assert edges[0] == 2.0**-40
    np.testing.assert_array_equal(edges[2::2] / edges[:-2:2], 2)
    np.testing.assert_array_equal(edges[1::2] / edges[::2], 1.5)
    assert edges[-1] == 1.5 * 2.0**23


def test_a_tensor_without_values_has_no_counts() -> None:
    assert make_kernel(Histogram(4))(torch.empty(2, 0, 8), 0).sum() == 0


def test_bins_that_are_too_many_are_refused_with_their_bounds() -> None:
    with pytest.raises(ProtocolError, match="from 4 to 1024"):
        compressor_from_setting({"name": "Histogram", "params": {"bins": 4096}})
