"""Models cut by torch's own tools: what is traced is what one process has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from processes import run_job
from rows import finished

# The first one of them waits for Megatron-Core to be imported.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FLAGS = (
    "QKV_mat_mul",
    "RawAttentionScore_mat_mul",
    "ContextLayer_mat_mul",
    "MLP1_mat_mul",
    "MLP2_mat_mul",
    "AttentionOutput_mat_mul",
    "HiddenStates",
    "InputTokens",
)
SETTINGS = {flag: {"compressor": {"name": "NoOp"}, "samples": None, "replicas": "all"} for flag in FLAGS}


def has_moments_of(row: dict, values: np.ndarray) -> None:
    """Every value was kept, so that the moments of the whole tensor are theirs: no piece is missing or counted twice."""
    d = values - values.mean()
    sums = [
        values.size,
        values.mean(),
        *((d**power).sum() for power in (2, 3, 4)),
        values.min(),
        values.max(),
    ]
    found = [row[name] for name in ("count", "mean", "m2", "m3", "m4", "min", "max")]
    np.testing.assert_allclose(found, sums, rtol=1e-4, atol=1e-5 * np.abs(d).sum(), err_msg=row["flag"])


def rows(folder: Path) -> dict:
    """Values by step, flag, layer, part and replica."""
    found: dict = {}
    for row in finished(folder / "run").tensors().sort_by("rank").to_pylist():
        key = (row["step"], row["flag"], row["layer"], row["part"])
        values = np.asarray(row["values"], np.float32).reshape(row["shape"])
        if not row["flag"].startswith("Input"):
            has_moments_of(row, values.astype(np.float64))
        found.setdefault(key, []).append(values)
    # The replicas share the samples of a step, in their order.
    return {key: np.concatenate(values) for key, values in found.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Rows and losses of one process, for each kind of model."""
    known: dict = {}

    def of(kind: str):
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            losses = run_job(1, "torch_work:alone", kind, folder, SETTINGS)[0]
            known[kind] = rows(folder), losses
        return known[kind]

    return of


@pytest.mark.parametrize(
    ("kind", "way", "tp", "dp"),
    [
        ("gpt", "ddp", 1, 2),
        ("gpt", "fsdp", 1, 2),
        ("gpt", "fsdp2", 1, 2),
        ("llama", "tensor", 2, 1),
        ("llama", "fsdp2 and tensor", 2, 2),
        ("gpt2", "fsdp2", 1, 2),
        ("qwen", "fsdp", 1, 2),
        ("qwen", "sequence", 2, 1),
        ("gpt", "ddp, compiled", 1, 2),
        ("gpt", "fsdp2, compiled layer", 1, 2),
        ("gpt", "compiled ddp", 1, 2),
        ("gpt", "compiled fsdp2", 1, 2),
        ("llama", "sequence, compiled layer", 2, 1),
    ],
)
def test_every_flag_is_what_one_process_has(
    kind: str, way: str, tp: int, dp: int, whole, tmp_path: Path
) -> None:
    expected, losses = whole(kind)
    results = run_job(tp * dp, "torch_work:traced", kind, way, tmp_path, SETTINGS)
    assert [warnings for _, warnings, _ in results] == [[]] * (tp * dp)
    assert [place for _, _, place in results] == [{"tp": tp, "dp": dp}] * (tp * dp)
    means = np.mean([of_rank for of_rank, _, _ in results], axis=0)
    np.testing.assert_allclose(means, losses, rtol=1e-4)
    found = rows(tmp_path)
    assert (sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())) == ([], [])
    for key, values in found.items():
        np.testing.assert_allclose(values, expected[key], rtol=1e-3, atol=2e-4, err_msg=str(key))


def test_a_device_mesh_tells_the_place_of_a_pipeline_stage() -> None:
    places = run_job(4, "torch_work:in_mesh")
    assert [place.name for place in places] == [
        "rank 0 (tp 0, pp 0)",
        "rank 1 (tp 1, pp 0)",
        "rank 2 (tp 0, pp 1)",
        "rank 3 (tp 1, pp 1)",
    ]
    assert [place.tp_ranks for place in places] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert [place.leads for place in places] == [True, False, True, False]
