"""Statistics under Megatron-Core's optimizers: master weights, loss scales, skipped steps, and pieces of parameters on each rank."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from moment_rows import Rows, l2_of_gradients, rows_of
from processes import run_job
from shape import STEPS, Optimizer, Shape

# The first one of them waits for Megatron-Core to be imported, and for the jobs of all.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DENSE, EXPERTS = Shape(tied=True, dp=2), Shape(experts=4, shared_expert=True, dp=2, ep=2)
SCALE = 1024.0
JOBS: dict[str, tuple[Shape, Optimizer]] = {
    "whole": (DENSE, Optimizer("adam")),
    "distributed": (DENSE, Optimizer("adam", distributed=True)),
    "whole, experts": (EXPERTS, Optimizer("adam")),
    "distributed, experts": (EXPERTS, Optimizer("adam", distributed=True)),
    "whole, bfloat16": (DENSE, Optimizer("adam", dtype="bfloat16")),
    "distributed, bfloat16": (DENSE, Optimizer("adam", dtype="bfloat16", distributed=True)),
    "scaled": (DENSE, Optimizer(dtype="float16", loss_scale=SCALE)),
    "skipped": (DENSE, Optimizer(dtype="float16", loss_scale=2.0**40)),
}

UNLOGGED = ("whole", "distributed, experts", "distributed, bfloat16", "scaled")
"""Trained once more without statistics."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> dict[str, tuple[Rows, list[dict[str, Any]]]]:
    """Rows of each job and what its ranks said."""
    folder = tmp_path_factory.mktemp("jobs")
    stats = {"param": 1, "grad": 1, "dgrad": 1}
    said = run_job(2, "statistics_work:logged", JOBS, stats, folder, UNLOGGED)
    return {name: (rows_of(folder / name), [of_rank[name] for of_rank in said]) for name in JOBS}


@pytest.mark.parametrize("kind", ["", ", experts", ", bfloat16"])
def test_pieces_of_a_distributed_optimizer_are_the_whole_once(kind: str, jobs) -> None:
    whole, pieces = (
        {key: row for key, row in jobs[name + kind][0].items() if key[1] != "dgrad"}
        for name in ("whole", "distributed")
    )
    assert {key: row["count"] for key, row in whole.items()} == {
        key: row["count"] for key, row in pieces.items()
    }
    for key, row in whole.items():
        if key[0] > 1:
            # Adam makes as much of gradients that are nothing but rounding as of others.
            continue
        piece, n = pieces[key], row["count"]
        size = math.sqrt(row["m2"] / n + row["mean"] ** 2)
        # It rounds by where a piece begins, and values of one block are added up in float32.
        assert [piece["min"], piece["max"]] == pytest.approx(
            [row["min"], row["max"]], rel=1e-6, abs=1e-6 * size
        ), key
        for power, column in enumerate(("mean", "m2", "m3", "m4"), start=1):
            most = size**power * (1 if column == "mean" else n)
            assert piece[column] == pytest.approx(row[column], rel=1e-6, abs=1e-6 * most), (key, column)


@pytest.mark.parametrize("name", [name for name in JOBS if name != "skipped"])
def test_all_gradients_have_the_norm_that_megatron_clips_by(name: str, jobs) -> None:
    rows, said = jobs[name]
    for of_rank in said:
        assert l2_of_gradients(rows) == pytest.approx(of_rank["norms"], rel=1e-6)
        assert (of_rank["warnings"], of_rank["left behind"]) == ([], False)
        assert of_rank["losses"] == of_rank.get("losses unlogged", of_rank["losses"])
        assert ("losses unlogged" in of_rank) is (name in UNLOGGED)


def test_parameters_are_those_of_the_master_weights(jobs) -> None:
    rows, (first, _) = jobs["whole, bfloat16"]
    assert first["masters"].keys() == {name for _, stat, name in rows if stat == "param"}
    # They have more digits than the model's weights: the last half of their bits is not empty.
    assert any(
        (master.astype(np.float32).view(np.uint32) & 0xFFFF).any() for master in first["masters"].values()
    )
    for name, master in first["masters"].items():
        row = rows[STEPS, "param", name]
        assert row["count"] == master.size
        assert row["mean"] == pytest.approx(master.mean(), rel=1e-6, abs=1e-6 * master.std())
        assert row["m2"] == pytest.approx(master.var() * master.size, rel=1e-6)
        assert [row["min"], row["max"]] == [master.min(), master.max()]


def test_the_loss_scale_is_divided_out_of_all_gradients_and_recorded(jobs) -> None:
    scaled, plain = jobs["scaled"][0], jobs["whole"][0]
    checked = 0
    for (step, stat, name), row in plain.items():
        if step == 1 and stat != "param":
            found = scaled[step, stat, name]
            assert found["loss_scale"] == SCALE
            assert found["gradient_stage"] == {"grad": "pre_clip", "dgrad": "backward"}[stat]
            rms = math.sqrt(row["m2"] / row["count"] + row["mean"] ** 2)
            # float16 has three digits.
            assert math.sqrt(found["m2"] / found["count"] + found["mean"] ** 2) == pytest.approx(
                rms, rel=2e-2
            )
            checked += 1
    assert checked > 80


def test_a_step_that_is_skipped_for_infinite_gradients_has_none(jobs) -> None:
    rows, said = jobs["skipped"]
    assert [of_rank["updated"] for of_rank in said] == [[False] * STEPS] * 2
    assert {stat for _, stat, _ in rows} == {"param", "dgrad"}
    # Counted, not hidden.
    assert sum(row["inf_count"] + row["nan_count"] for row in rows.values()) > 0
