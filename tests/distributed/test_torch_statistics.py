"""Statistics of models cut by torch's own tools: those of one process, whatever lies where."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SUMS = ("count", "sum_1", "sum_2", "sum_3", "sum_4")
POWERS = np.array([0, 1, 2, 3, 4])


def sums(folder: Path) -> dict[tuple[str, str, int], np.ndarray]:
    """Raw sums by directory, name and step."""
    found = {}
    for file in folder.rglob("rank0.jsonl"):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            assert record["stat"] == file.parent.name
            assert record["consumed_train_samples"] == 4 * record["iter"]
            for name, values in record["values"].items():
                found[file.parent.name, name, record["iter"]] = np.array([values[each] for each in SUMS])
    return found


def hold(folder: Path, kind: str, way: str, replicas: int, absent: frozenset[str] = frozenset()) -> None:
    """Hold a cut model's statistics against those of one process."""
    whole = sums(folder / f"{kind} none {replicas}")
    found = sums(folder / f"{kind} {way} {replicas}")
    missing = {(stat, name) for stat, name, _ in whole.keys() - found.keys()}
    assert {name for _, name in missing} == absent, (way, sorted(missing))
    assert found.keys() <= whole.keys()
    for key, values in found.items():
        expected = whole[key]
        if key[0].startswith("grad"):
            # One process added up what others averaged.
            expected = expected / float(replicas) ** POWERS
        size = np.sqrt(expected[2] / expected[0])
        slack = 2e-4 * expected[0] * size**POWERS
        assert values[0] == expected[0], (way, key)
        assert np.all(np.abs(values - expected) <= slack), (way, key, values, expected)


def test_every_layout_has_the_statistics_of_one_process(tmp_path: Path) -> None:
    ones = [("gpt", "none", 2), ("gpt", "none", 4), ("llama", "none", 1), ("llama", "none", 2)]
    assert run_job(1, "torch_statistics_work:trained", ones, tmp_path) == [[[]] * 4]
    twos = [("gpt", "ddp", 2), ("gpt", "fsdp2", 2), ("llama", "tensor", 1), ("llama", "sequence", 1)]
    # The weight is cut, and its gradient is whole on every process.
    twos.append(("llama", "tensor and embedding", 1))
    # Under sequence parallelism each process has a part of the sum that is the gradient of a norm.
    norms = {
        f"model.layers.{layer}.{name}_layernorm.weight"
        for layer in (0, 1)
        for name in ("input", "post_attention")
    }
    norms.add("model.norm.weight")
    for warnings in run_job(2, "torch_statistics_work:trained", twos, tmp_path):
        assert [*warnings[:3], *warnings[4:]] == [[]] * 4
        assert all("Gradients of 5 parameters are left out" in text for text in warnings[3])
    fours = [("gpt", "hsdp", 4), ("llama", "fsdp2 and tensor", 2)]
    assert run_job(4, "torch_statistics_work:trained", fours, tmp_path) == [[[]] * 2] * 4
    for kind, way, replicas in (*twos, *fours):
        hold(tmp_path, kind, way, replicas, frozenset(norms if way == "sequence" else ()))


def test_activations_of_a_model_with_flat_parameters_are_those_of_one_process(tmp_path: Path) -> None:
    asked = {"activation": 1, "dgrad": 1}
    run_job(1, "torch_statistics_work:trained", [("gpt", "none", 2)], tmp_path, asked)
    assert run_job(2, "torch_statistics_work:trained", [("gpt", "fsdp", 2)], tmp_path, asked) == [[[]]] * 2
    hold(tmp_path, "gpt", "fsdp", 2)


def test_shares_of_casts_are_those_of_one_process_to_the_last_value(tmp_path: Path) -> None:
    formats = {"activation": "float16", "param": "float16", "dgrad": "float16"}
    asked = {"precision": 1, "formats": formats}
    run_job(1, "torch_statistics_work:trained", [("gpt", "none", 2)], tmp_path, asked)
    run_job(2, "torch_statistics_work:trained", [("gpt", "ddp", 2), ("gpt", "fsdp2", 2)], tmp_path, asked)
    whole = sums(tmp_path / "gpt none 2")
    assert any(values[1] > 0 for (stat, _, _), values in whole.items() if stat.startswith("subnormal"))
    for way in ("ddp", "fsdp2"):
        found = sums(tmp_path / f"gpt {way} 2")
        assert found.keys() == whole.keys()
        for key, values in found.items():
            # What other additions change is the last bit of a value, and at the first step of none that decides.
            if key[2] == 1 and key[0].startswith(("underflow", "overflow", "saturated", "subnormal")):
                assert values[0] == whole[key][0], (way, key)
                assert round(values[1]) == round(whole[key][1]), (way, key)


def test_what_a_process_that_is_gone_had_a_part_in_is_left_out_and_named(tmp_path: Path) -> None:
    warnings, _ = run_job(2, "torch_statistics_work:parted", tmp_path)
    assert len(warnings) == 1
    assert "tensors of step 2 are left out: rank 1 (dp 1)" in warnings[0]
    (activations,) = tmp_path.rglob("activation*/rank0.jsonl")
    assert [json.loads(line)["iter"] for line in activations.read_text().splitlines()] == [1]
    (parameters,) = tmp_path.rglob("param*/rank0.jsonl")
    assert [json.loads(line)["iter"] for line in parameters.read_text().splitlines()] == [1, 2]
