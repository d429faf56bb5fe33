"""Every tensor that can be measured says the same as float64 numpy on the whole of it."""

import math

import numpy as np
import pytest
import torch

from megalens.protocol import MOMENT_COLUMNS, merge_moments
from megalens.tracer import TracerError
from megalens.tracer.moments import kernel_name, measure, measure_natively, merge_rows
from megalens.tracer.moments.measure import measure_plainly

COLUMNS = len(MOMENT_COLUMNS)
COUNTS = 4
TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def by_numpy(tensor, eps):
    """The row that float64 numpy gives."""
    values = tensor.detach().double().numpy().ravel()
    finite = values[np.isfinite(values)]
    if not len(finite):
        known = [0, math.nan, 0, 0, 0, math.nan, math.nan]
    else:
        d = finite - finite.mean()
        known = [len(finite), finite.mean(), *((d**k).sum() for k in (2, 3, 4)), finite.min(), finite.max()]
    counts = [np.isnan(values), np.isinf(values), np.isneginf(values), np.abs(values) < eps]
    return np.array([*known, *(each.sum() for each in counts)], dtype=np.float64)


def assert_same(row, tensor, eps=1e-8):
    expected = by_numpy(tensor, eps)
    row = np.asarray(row)
    scale = math.sqrt(expected[2] / max(expected[0], 1))
    loose = np.array([0, 1e-7 * scale, 0, expected[0] * scale**3 * 1e-5, 0, 0, 0, *[0] * COUNTS])
    tight = np.array([0, 1e-7, 1e-6, 1e-5, 1e-5, 0, 0, *[0] * COUNTS])
    apart = np.abs(row - expected) > loose + tight * np.abs(expected)
    assert not apart.any(), f"{np.array(MOMENT_COLUMNS)[apart]}: {row} is not {expected}"
    assert (np.isnan(row) == np.isnan(expected)).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    "shape",
    [(), (0,), (3, 0), (1,), (2,), (5, 1), (31,), (4096,), (4097,), (130, 257), (2, 3, 5, 7)],
    ids=str,
)
def test_every_type_and_shape(dtype, shape) -> None:
    tensor = (torch.randn(shape) * 3 + 40).to(dtype)
    assert_same(measure([tensor])[0], tensor)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_views_are_measured_as_what_they_show(dtype) -> None:
    whole = torch.randn(24, 40, 30).to(dtype)
    views = [
        whole.transpose(0, 2), whole[:, 3:17], whole[..., ::3], whole[::2, :, 5], whole[1:, 1:, 1:].permute(2, 0, 1),
        whole[:, :1].expand(24, 9, 30), whole[3, 4, 5], whole[0, 0].expand(7, 30), whole.flip(0), whole[:, 2:2],
    ]  # fmt: skip
    for row, view in zip(measure(views), views, strict=True):
        assert_same(row, view)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("length", [3, 64, 5000])
def test_values_that_are_not_finite_are_counted_and_left_out(dtype, length) -> None:
    tensor = torch.randn(length).to(dtype)
    for place, value in [(0, math.nan), (length // 2, math.inf), (length - 1, -math.inf)]:
        tensor[place] = value
        assert_same(measure([tensor])[0], tensor)
    for value in (math.nan, math.inf, -math.inf):
        assert_same(measure([torch.full((length,), value, dtype=dtype)])[0], torch.full((length,), value))


@pytest.mark.parametrize("plainly", [False, True], ids=["kernel", "plain"])
@pytest.mark.parametrize("eps", [1e-8, 2.0**-20, 6e-8, 1e-40, 0.0, 1.0, 1e300])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values_near_zero_are_counted_to_the_last_bit(dtype, eps, plainly) -> None:
    """Around eps, among the least normal and subnormal numbers of the type, zeros of both signs, and what is not finite."""
    tiny = torch.finfo(dtype).tiny
    around = [
        np.nextafter(np.float32(eps), np.float32(to)) for to in (-1, 0, 2)
    ] + [eps, tiny, tiny / 4, tiny * 2, 0.0, -0.0, 1.0, math.nan, math.inf]  # fmt: skip
    with np.errstate(over="ignore"):
        values = np.concatenate([around, np.negative(around)]).astype(np.float64)
    # Once alone, and in whole vectors with a rest behind them.
    for times in (1, 61, 700):
        for tensor in (
            torch.tensor(np.tile(values, times)),
            torch.tensor(np.tile(values[np.isfinite(values)], times)),
        ):
            tensor = tensor.to(dtype)
            row = measure_plainly(tensor, eps) if plainly else measure([tensor], eps=eps)[0]
            np.testing.assert_array_equal(row[-COUNTS:], by_numpy(tensor, eps)[-COUNTS:])


def test_rows_are_written_where_they_are_wanted() -> None:
    rows = torch.zeros(5, COLUMNS, dtype=torch.float64)
    tensors = [torch.randn(40), torch.randn(3, 7).t()]
    given = measure_natively(tensors, rows[2:4])
    if given is None:
        # Without a compiler there is no kernel to write them.
        assert (kernel_name(), rows.any()) == ("plain", False)
        return
    assert torch.equal(rows[2:4], measure(tensors))
    assert given.data_ptr() == rows[2:4].data_ptr()
    assert not rows[:2].any()
    assert not rows[4:].any()
    assert measure_natively([torch.arange(3)], rows[:1]) is None
    assert not rows[0].any()


def test_nothing_of_a_tensor_changes_and_no_graph_is_kept() -> None:
    parameter = torch.nn.Parameter(torch.randn(300))
    before, version = parameter.detach().clone(), parameter._version
    row = measure([parameter, parameter * 2])
    assert not row.requires_grad
    assert torch.equal(parameter, before)
    assert parameter._version == version
    with torch.inference_mode():
        made = torch.randn(300)
        assert_same(measure([made])[0], made)


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (torch.arange(3), "torch.int64"),
        (torch.zeros(3, dtype=torch.bool), "torch.bool"),
        (torch.zeros(3, dtype=torch.complex64), "torch.complex64"),
        (torch.zeros(3, device="meta"), "meta"),
        (torch.eye(3).to_sparse(), "sparse"),
    ],
    ids=["integers", "truths", "complex", "meta", "sparse"],
)
def test_what_cannot_be_measured_is_refused_by_name(tensor, says) -> None:
    with pytest.raises(TracerError, match=says):
        measure([tensor])


def test_tensors_of_two_devices_are_refused() -> None:
    with pytest.raises(TracerError, match="meta"):
        measure([torch.zeros(3), torch.zeros(3, device="meta")])


def test_no_tensors_give_no_rows() -> None:
    assert measure([]).shape == (0, COLUMNS)
    assert merge_rows(torch.zeros(4, 0, COLUMNS, dtype=torch.float64)).shape == (0, COLUMNS)


def test_passes_merge_as_the_contract_merges_them() -> None:
    rng = torch.Generator().manual_seed(0)
    passes, tensors = 6, 40
    parts = [[torch.randn(int(torch.randint(0, 50, (), generator=rng)), generator=rng) * 10.0**(i % 9 - 4) + i for i in range(tensors)]
             for _ in range(passes)]  # fmt: skip
    parts[2][5][:] = math.nan
    rows = torch.stack([measure(each) for each in parts])
    rows[3, 7, 1], rows[1, 8, 5], rows[1, 9, 7:] = math.inf, math.nan, math.nan
    columns = {name: rows[..., i].numpy().ravel() for i, name in enumerate(MOMENT_COLUMNS)}
    expected = merge_moments(columns, np.tile(np.arange(tensors), passes), tensors)
    merged = merge_rows(rows)
    for i, name in enumerate(MOMENT_COLUMNS):
        np.testing.assert_allclose(
            merged[:, i].numpy(), expected[name], rtol=1e-12, atol=1e-300, err_msg=name
        )


def test_passes_merged_are_the_whole() -> None:
    whole = torch.randn(5000, dtype=torch.float64) + 100
    rows = torch.stack([measure([part]) for part in whole.split([1, 0, 999, 4000])])
    assert_same(merge_rows(rows)[0], whole)


def test_rows_of_another_shape_are_refused() -> None:
    with pytest.raises(TracerError, match=rf"\[k, n, {COLUMNS}\]"):
        merge_rows(torch.zeros(3, COLUMNS, dtype=torch.float64))
