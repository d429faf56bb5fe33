"""Sequences cut over context-parallel ranks: what each rank traces is its own positions of what one process has, and it is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_job
from rows import finished
from shape import MICRO_BATCHES, SEQUENCE, STEPS, Shape

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WHOLE = {"compressor": {"name": "NoOp"}, "samples": None}


def positions_of(rank: int, ranks: int) -> np.ndarray:
    """Return which positions Megatron-Core gives to a context-parallel rank: a chunk from the front and the one as far from the end."""
    chunks = np.split(np.arange(SEQUENCE), 2 * ranks)
    return np.concatenate([chunks[rank], chunks[-1 - rank]])


@pytest.mark.parametrize(
    "shape",
    [Shape(context=2, cut_sequence=True), Shape(tp=2, context=2, cut_sequence=True)],
    ids=["context parallel", "tensor and context parallel"],
)
def test_every_rank_traces_its_own_positions_and_none_are_mixed(shape: Shape, tmp_path: Path) -> None:
    expected, alone, _ = run_job(1, "megatron_reference:reference", shape.alone())[0]
    flags = {flag: {**WHOLE, "replicas": "all"} for flag in {key[2] for key in expected}}
    done = run_job(shape.processes, "megatron_work:traced", shape, tmp_path, {"all": flags})
    # The exchange of the test's attention is right: the job learns as one process does. Each rank gives its part of the loss.
    means = shape.context * np.mean([losses[0] for losses, _ in done], axis=0)
    assert means == pytest.approx(alone, rel=1e-4)
    run = finished(tmp_path / "all")
    layout = json.loads((run.folder / "run.json").read_text())["layout"]
    assert (layout["cp"], layout["dp"], layout["world_size"]) == (2, 2, shape.processes)
    part_of = {place["rank"]: place["dp"] for place in layout["ranks"]}
    found: dict[Any, set[int]] = {}
    for row in run.tensors().to_pylist():
        key = (row["step"], row["micro_batch"], row["flag"], row["layer"], row["part"])
        part = part_of[row["rank"]]
        assert part not in found.setdefault(key, set()), f"{key} came twice"
        found[key].add(part)
        # Of `[B, H, query, key]` the queries are cut, of `[B, S, *]` the positions.
        axis = 2 if row["flag"] == "RawAttentionScore_mat_mul" else 1
        own = np.take(expected[key], positions_of(part, 2), axis)
        assert row["source_shape"] == row["shape"] == list(own.shape), key
        values = np.asarray(row["values"], np.float32).reshape(own.shape)
        np.testing.assert_allclose(values, own, rtol=1e-3, atol=2e-4, err_msg=str(key))
    assert found == {key: {0, 1} for key in expected}
    assert len({key[:2] for key in found}) == STEPS * MICRO_BATCHES
    said = [status[0]["warnings"] for _, status in done]
    assert [("2 context-parallel ranks" in " ".join(warnings)) for warnings in said] == [
        True,
        *[False] * (shape.processes - 1),
    ]
    assert any("not joined" in warning for warning in said[0])
