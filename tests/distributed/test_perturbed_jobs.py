"""Perturbed jobs of two processes: what is the same in them stays the same, and gradients are right."""

import functools

import numpy as np
import pytest
from perturbing import site
from processes import run_job

pytestmark = pytest.mark.slow

OUTPUTS = {"calculation": site("noise1", coefficient=0.5), "system": site("noise2", coefficient=0.5)}


@functools.cache
def ways() -> list[dict]:
    # An offset is the same in every piece of a weight: the cut model then does just what the whole one does.
    same = {**OUTPUTS, "weight": site("offset", coefficient=0.25)}
    return run_job(2, "perturb_work:all_ways", same, {**OUTPUTS, "weight": site("noise1", coefficient=9.0)})


def close(got: np.ndarray, expected: np.ndarray, name: str) -> None:
    exact = expected.dtype == np.float64
    np.testing.assert_allclose(
        got, expected, rtol=1e-9 if exact else 1e-4, atol=1e-9 if exact else 1e-6, err_msg=name
    )


@pytest.mark.parametrize("way", ["alone", "ddp", "fully_shard"])
def test_replicas_perturb_weights_alike_and_samples_each_in_its_own_way(way: str) -> None:
    (first, grads), (second, _) = (of_rank[way] for of_rank in ways())
    alone, expected = ways()[0]["alone"]
    for name in alone:
        assert np.array_equal(first[name], second[name]) == name.endswith("weight"), name
        close(first[name], alone[name], name)
    # Every replica has the mean gradient, as if each had been trained by itself with the same perturbations.
    for of_rank in ways():
        grads = of_rank[way][1]
        assert set(grads) == set(expected)
        for name, gradient in expected.items():
            close(grads[name], gradient, name)


def test_a_model_cut_over_processes_is_perturbed_as_the_whole_one() -> None:
    for rank, of_rank in enumerate(ways()):
        (seen, grads), (cut, cut_grads) = of_rank["whole"], of_rank["cut"]
        for name, value in seen.items():
            axis = 0 if "fc1" in name else 1
            close(cut[name], np.split(value, 2, axis)[rank] if is_cut(name) else value, name)
        assert set(grads) == set(cut_grads)
        for name, gradient in grads.items():
            close(cut_grads[name], gradient, name)


def test_pieces_of_a_weight_differ_and_what_both_processes_hold_is_one() -> None:
    (first, _), (second, _) = (of_rank["cut otherwise"] for of_rank in ways())
    for name in first:
        assert np.array_equal(first[name], second[name]) != is_cut(name), name


def is_cut(name: str) -> bool:
    return name.endswith(("fc1.weight", "fc2.weight"))
