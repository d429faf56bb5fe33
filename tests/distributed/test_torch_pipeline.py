"""Stages of torch's pipelines: layers, names, micro-batches and values are those of the whole model."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pipeline_stage_work import alone, parts
from processes import run_job
from torch import nn

import megalens
from megalens.adapters import torch_pipeline
from megalens.adapters.find import find_moments, find_points
from megalens.tracer import RankCoordinates

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def recorded(folder: Path) -> megalens.runs.recorded.RecordedRun:
    (run,) = [each.parent for each in folder.glob("*/run.json")]
    return megalens.open(run)


# What the schedule does to gradients is said; nothing else is out of the ordinary.
DIVIDED = "Between the last backward pass and the optimizer's step, more was done to gradients than clipping"
LATER = "Gradients were reduced when all backward passes were over"


@pytest.mark.parametrize(
    ("schedule", "replicas", "said"), [("GPipe", 1, DIVIDED), ("1F1B", 1, DIVIDED), ("1F1B", 2, LATER)]
)
def test_what_is_recorded_of_stages_is_that_of_one_process(
    schedule: str, replicas: int, said: str, tmp_path: Path
) -> None:
    work = "pipeline_stage_work:in_stages"
    ranks = run_job(2 * replicas, work, str(tmp_path), schedule, False, replicas > 1)
    assert [(place.pp, place.pp_size, place.dp, place.dp_size) for place, _ in ranks] == [
        (stage, 2, replica, replicas) for stage in range(2) for replica in range(replicas)
    ]
    for _, warnings in ranks:
        assert [text[: len(said)] for text in warnings] == [said]
    tensors, norms = alone()
    with recorded(tmp_path) as run:
        assert run.model["layers"] == 3
        rows = run.tensors().to_pylist()
        found = {(row["step"], row["micro_batch"], row["layer"], row["pass"]): row["values"] for row in rows}
        gradients = run.moments("grad", ["name"])
    assert len(rows) == len(found)
    assert found.keys() == tensors.keys()
    for key, values in found.items():
        np.testing.assert_allclose(values, tensors[key].flatten().numpy(), rtol=1e-4, atol=1e-6)
    measured = {(row.step, row.name): row.l2 for row in gradients.itertuples()}
    assert measured == pytest.approx(norms, rel=1e-4)


@pytest.mark.parametrize("axes", [*itertools.permutations(("pp", "dp", "tp"))])
def test_a_process_has_the_coordinates_of_its_mesh_in_any_order_of_the_axes(axes, monkeypatch) -> None:
    sizes = {"pp": 3, "dp": 2, "tp": 2}
    grid = np.arange(12).reshape([sizes[axis] for axis in axes])
    monkeypatch.setattr(torch_pipeline.distributed, "get_process_group_ranks", list)
    for rank in range(12):
        at = dict(zip(axes, map(int, np.argwhere(grid == rank)[0]), strict=True))

        def along(axis: str, at: dict[str, int] = at) -> tuple[int, ...]:
            here = tuple(slice(None) if each == axis else at[each] for each in axes)
            return tuple(grid[here].tolist())

        stage = SimpleNamespace(group=along("pp"), group_rank=at["pp"], group_size=3, num_stages=3)
        monkeypatch.setattr(torch_pipeline, "stages_here", lambda roots, stage=stage: [stage])
        before = RankCoordinates(
            rank=rank, tp=at["tp"], tp_ranks=along("tp"), world_size=12, tp_size=2, dp_size=6
        )
        place = torch_pipeline.stage_place([], before)
        assert (place.pp, place.pp_size, place.dp, place.dp_size) == (at["pp"], 3, at["dp"], 2)


def test_of_several_stages_in_a_process_a_sentence_says_that_layers_have_no_numbers() -> None:
    model = nn.ModuleList(parts())
    place = RankCoordinates(world_size=2, pp_size=2, vpp_size=2)
    points = torch_pipeline.in_pipeline(replace(find_points(model), place=place))
    assert points.numbered
    why = "This process has 2 stages of a pipeline of plain modules. Which layers of the whole model"
    assert points.flags["HiddenStates"].reason.startswith(why)
    assert "those of all stages together" in find_moments(model, None, points).left_out


def test_a_stage_that_is_made_after_tracing_began_is_said_to_be_one(tmp_path: Path) -> None:
    ranks = run_job(2, "pipeline_stage_work:in_stages", str(tmp_path), "GPipe", True)
    for rank, (place, warnings) in enumerate(ranks):
        assert place.pp_size == 1
        assert any(
            said.startswith(f"This model is stage {rank} of 2 of a pipeline, made after tracing began")
            for said in warnings
        )
