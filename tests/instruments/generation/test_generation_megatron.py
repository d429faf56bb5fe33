"""Megatron-Core's GPT writes text in several processes, as it does in one."""

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from processes import run_job
from shape import Shape

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROMPTS = ["HELLO", "TO", "A"]
REQUESTS = [
    # Of one length: keys and values are kept. Of different ones: everything is read anew in every pass.
    {"prompts": PROMPTS[:1], "tokens": 6, "temperature": 0},
    {"prompts": PROMPTS, "tokens": 6, "temperature": 0},
    {"prompts": PROMPTS[:2], "tokens": 6, "seed": 3, "samples": 2, "top_k": 8},
]


@functools.cache
def alone(shape):
    with tempfile.TemporaryDirectory() as folder:
        return run_job(1, "generation_work:written", shape, Path(folder), REQUESTS)[0]


def same(found, expected):
    for ours, wanted in zip(found, expected, strict=True):
        assert ours["texts"] == wanted["texts"]
        assert ours["places"] == wanted["places"]
        assert np.allclose(ours["probability"], wanted["probability"], atol=1e-5, equal_nan=True)
        assert ours["arrays"].keys() == wanted["arrays"].keys()
        for place, array in ours["arrays"].items():
            assert array.shape == wanted["arrays"][place].shape, place
            assert np.allclose(array, wanted["arrays"][place], atol=1e-4, equal_nan=True), place


@pytest.mark.parametrize("shape", [Shape(layers=2), Shape(layers=2, swiglu=True, groups=2)])
def test_one_process_writes_what_the_model_does(shape):
    first, batch, _ = alone(shape)
    texts = run_job(1, "generation_work:greedy", shape, PROMPTS, 6)[0]
    assert batch["texts"] == texts
    assert first["texts"] == texts[:1]
    # Whether keys and values are kept or not, each position is reported once, with the same tensors.
    for flag, layer, sequence in first["arrays"]:
        kept, anew = (each["arrays"][flag, layer, sequence] for each in (first, batch))
        assert np.allclose(kept, anew, atol=1e-4, equal_nan=True), (flag, layer)
        # All but the last token, which is not read; of attention what a position may see.
        seen = kept[:-1] if kept.ndim == 2 else kept[:, -2, :-1]
        assert not np.isnan(seen).any()


@pytest.mark.parametrize(
    "shape",
    [
        Shape(layers=2, tp=2),
        Shape(layers=2, pp=2),
        Shape(layers=2, tp=2, swiglu=True, groups=2, sequence_parallel=True),
    ],
    ids=["tensor-parallel", "pipeline", "sequence-parallel"],
)
def test_two_processes_write_what_one_does_and_trace_the_same(tmp_path, shape):
    found, _ = run_job(2, "generation_work:written", shape, tmp_path, REQUESTS)
    same(found, alone(shape.alone()))


@functools.cache
def perturbed(shape):
    with tempfile.TemporaryDirectory() as folder:
        return run_job(shape.processes, "generation_work:perturbed", shape, Path(folder))[0]


@pytest.mark.parametrize(
    "shape", [Shape(layers=2, tp=2), Shape(layers=2, pp=2)], ids=["tensor-parallel", "pipeline"]
)
def test_a_perturbation_changes_in_two_processes_what_it_changes_in_one(shape):
    ours, wanted = perturbed(shape), perturbed(shape.alone())
    for name in ("texts", "clean", "again"):
        assert ours[name] == wanted[name]
    assert wanted["texts"] != wanted["clean"] == wanted["again"]
    assert np.allclose(ours["effects"], wanted["effects"], atol=1e-5, equal_nan=True)


def test_a_lab_that_waits_beats_takes_changes_and_cancels(tmp_path):
    told, _ = run_job(2, "generation_work:idle", Shape(layers=2, tp=2), tmp_path)
    assert told["hidden"] == [(8, 32)] * 2
    assert told["cancelled"] == ("cancelled", "finished")
    assert told["after"] == "finished"


def test_a_process_that_fails_fails_the_generation_and_not_the_lab(tmp_path):
    one, both, none = run_job(2, "generation_work:failing", Shape(layers=2, pp=2), tmp_path)[0]
    assert one == "failed: Rank 1 failed: ValueError: no step 1"
    assert both == "failed: Rank 0 failed: ValueError: no step 0 Rank 1 failed: ValueError: no step 1"
    assert none.startswith("finished")


def test_a_process_that_goes_ends_the_lab_with_an_error(tmp_path):
    run_job(2, "generation_work:leaving", Shape(layers=2, tp=2), tmp_path, gone=True)
    said = json.loads((tmp_path / "said.json").read_text())
    assert (said["state"], said["kind"]) == ("failed", "LostJobError")
    assert said["message"] == said["error"]
    assert "gone" in said["error"]
