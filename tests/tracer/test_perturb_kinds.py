"""Each kind of perturbation against its formula."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from megalens.protocol import PERTURBATIONS, BitFlip, Noise1, Noise2, Offset
from megalens.tracer.perturb.arithmetic import FLOATS, perturbed

KEY = (7, "weight", 1)
COUNT = 200_000
# Five standard deviations: with the seeds fixed here nothing is left to chance.
SIGMAS = 5
BITS = {dtype: 8 * dtype.itemsize for dtype in FLOATS}
KINDS = (Noise1(0.3), Noise2(0.3), BitFlip(0.3), Offset(2.0, 0.3))


def flat(dtype: torch.dtype = torch.float32, count: int = COUNT) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def raw(x: torch.Tensor) -> torch.Tensor:
    return x.view(FLOATS[x.dtype])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_noise1_adds_gaussian_noise_of_the_given_deviation(dtype: torch.dtype) -> None:
    x = flat(dtype)
    noise = (perturbed(x, Noise1(0.5), KEY).double() - x.double()) / 0.5
    # Half a unit in the last place at |y| < 8.
    slack = 8 * torch.finfo(dtype).eps
    assert abs(noise.mean()) < SIGMAS / math.sqrt(COUNT) + slack
    assert abs(noise.std() - 1) < SIGMAS / math.sqrt(2 * COUNT) + slack
    for at, share in ((1.0, 0.841345), (2.0, 0.977250), (-1.0, 0.158655)):
        found = (noise < at).double().mean()
        assert abs(found - share) < SIGMAS * math.sqrt(share * (1 - share) / COUNT) + slack


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_noise2_multiplies_by_uniform_noise_of_the_given_width(dtype: torch.dtype) -> None:
    x = flat(dtype)
    x = x[x.abs() > 0.1]
    factor = perturbed(x, Noise2(0.2), KEY).double() / x.double()
    slack = 2 * torch.finfo(dtype).eps
    assert 0.8 - slack <= factor.min() < 0.801 + slack
    assert 1.199 - slack < factor.max() <= 1.2 + slack
    deviation = 0.2 / math.sqrt(3)
    assert abs(factor.mean() - 1) < SIGMAS * deviation / math.sqrt(len(x)) + slack
    # The variance of (u - mean)² of a uniform distribution is 4/45 of its half width to the fourth.
    assert abs(factor.var() - deviation**2) < SIGMAS * math.sqrt(4 / 45 * 0.2**4 / len(x)) + slack


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bit_flip_changes_the_given_bit_of_the_given_share_and_no_other(dtype: torch.dtype) -> None:
    x = flat(dtype)
    for bit in (0, BITS[dtype] // 2, BITS[dtype] - 1):
        differs = raw(perturbed(x, BitFlip(0.1, bit), KEY)) ^ raw(x)
        wanted = 1 << bit if bit < BITS[dtype] - 1 else -(1 << bit)
        assert set(differs.unique().tolist()) == {0, wanted}
        share = (differs != 0).double().mean()
        assert abs(share - 0.1) < SIGMAS * math.sqrt(0.1 * 0.9 / COUNT)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_any_bit_is_each_of_them_alike(dtype: torch.dtype) -> None:
    bits = BITS[dtype]
    x = flat(dtype)
    differs = raw(perturbed(x, BitFlip(1.0, "any"), KEY)) ^ raw(x)
    counts = torch.stack([((differs >> bit) & 1).sum() for bit in range(bits)])
    # Exactly one bit in each element.
    assert counts.sum() == COUNT
    assert ((counts / COUNT - 1 / bits).abs() < SIGMAS * math.sqrt(1 / bits / COUNT)).all()


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1e-9, 1e-6])
def test_rare_faults_are_as_rare_as_asked(rate: float) -> None:
    x = torch.zeros(1_000_000)
    draws = 60
    expected = rate * draws * x.numel()
    bounds = [perturbed(x, BitFlip(rate, 0), (number,)).count_nonzero() for number in range(draws)]
    assert abs(sum(int(count) for count in bounds) - expected) < SIGMAS * math.sqrt(expected) + 1


def test_offset_is_added_to_all_or_to_the_given_share() -> None:
    x = flat()
    assert torch.equal(perturbed(x, Offset(0.5), KEY), x + 0.5)
    added = perturbed(x, Offset(0.5, 0.25), KEY)
    hit = added != x
    assert torch.equal(added[hit], x[hit] + 0.5)
    assert abs(hit.double().mean() - 0.25) < SIGMAS * math.sqrt(0.25 * 0.75 / COUNT)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", [*KINDS, Noise2(5.0), Offset(1.0)], ids=str)
def test_nan_and_infinity_pass_through_bit_by_bit(kind, dtype: torch.dtype) -> None:
    x = flat(dtype, 30)
    x[::3], x[1::3] = math.nan, math.inf
    x[1] = -math.inf
    # A NaN with a payload of its own.
    raw(x)[0] = raw(x)[0] | 3
    changed = perturbed(x, kind, KEY)
    still = ~x.isfinite()
    assert torch.equal(raw(changed)[still], raw(x)[still])
    assert not torch.equal(changed[~still], x[~still])


def test_what_cannot_be_perturbed_says_why() -> None:
    with pytest.raises(ValueError, match="bfloat16 has the bits 0 to 15, and no 16"):
        perturbed(torch.zeros(3, dtype=torch.bfloat16), BitFlip(0.5, 16), KEY)
    with pytest.raises(TypeError, match="float8"):
        perturbed(torch.zeros(3, dtype=torch.float8_e5m2), Noise1(), KEY)
    with pytest.raises(TypeError, match="sparse"):
        perturbed(torch.eye(3).to_sparse(), Noise1(), KEY)


@pytest.mark.parametrize("kind", [Noise1(0.3), Noise2(0.3), Offset(2.0), Offset(2.0, 0.5)], ids=str)
def test_gradients_are_those_of_the_function(kind) -> None:
    x = flat(torch.float64, 12).view(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: perturbed(x, kind, KEY), x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_gradient_of_each_kind_by_its_formula(kind, dtype: torch.dtype) -> None:
    x = flat(dtype, 64)
    x[5] = math.nan
    x = x.requires_grad_()
    y = perturbed(x, kind, KEY)
    weights = flat(dtype, 64).flip(0)
    (got,) = torch.autograd.grad(y, x, weights)
    expected = weights.clone()
    if isinstance(kind, Noise2):
        finite = x.detach().isfinite()
        factor = (y.detach().double() / x.detach().double()).nan_to_num(1.0)
        expected = torch.where(finite, weights.double() * factor, weights.double()).to(dtype)
        # The factor is read off from rounded numbers.
        torch.testing.assert_close(got, expected, rtol=4 * torch.finfo(dtype).eps, atol=0)
    else:
        assert torch.equal(got, expected)


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from([*KINDS, BitFlip(0.5, 3), Offset(1.0)]),
    dtype=st.sampled_from(list(FLOATS)),
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=4),
    key=st.tuples(st.integers(0, 2**53), st.text(max_size=5)),
)
def test_the_same_key_gives_the_same_whatever_lies_how_in_memory(kind, dtype, shape, key) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    before, state = x.clone(), torch.get_rng_state()
    changed = perturbed(x, kind, key)
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert (changed.shape, changed.dtype) == (x.shape, x.dtype)
    assert torch.equal(raw(perturbed(x, kind, key)), raw(changed))
    turned = x.mT.contiguous().mT if x.ndim > 1 else x.expand(x.shape)
    assert torch.equal(raw(perturbed(turned, kind, key).contiguous()), raw(changed.contiguous()))


def test_another_key_gives_other_numbers() -> None:
    x = flat(count=100)
    keys = [(seed, step, name) for seed in (0, 1) for step in (1, 2) for name in ("a", "b")]
    outcomes = {tuple(perturbed(x, Noise1(1.0), key).tolist()) for key in keys}
    assert len(outcomes) == len(keys)


def test_every_kind_that_is_announced_can_be_done() -> None:
    for kind in PERTURBATIONS.values():
        assert perturbed(flat(count=10), kind(), KEY, torch.ones(10)).shape == (10,)


@pytest.mark.parametrize("kind", [*KINDS, Offset(1.0), BitFlip(1.0, 3)], ids=str)
def test_nothing_is_read_back_from_the_device(kind) -> None:
    # A tensor of which nothing but its shape exists: whatever asks for a value raises.
    with FakeTensorMode() as mode:
        x = mode.from_tensor(flat(count=12)).requires_grad_()
        y = perturbed(x, kind, KEY)
        y.sum().backward()
        with pytest.raises(DataDependentOutputException):
            y.sum().item()
    assert (y.shape, x.grad.shape) == ((12,), (12,))
