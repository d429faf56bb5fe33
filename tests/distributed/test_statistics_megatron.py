"""Statistics of Megatron-Core jobs are, tensor by tensor, those of the same model in one process, however it is cut."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from moment_rows import Rows, l2_of_gradients, rows_of
from processes import run_job
from shape import Optimizer, Shape

# The first one of them waits for Megatron-Core to be imported, and for the jobs of all.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVERY = dict.fromkeys(("param", "grad", "activation", "dgrad", "residual", "residual_dgrad"), 1)
DENSE, GATED, EXPERTS = (
    {"tied": True},
    {"groups": 2, "swiglu": True, "predictors": 1},
    {"experts": 4, "shared_expert": True},
)
LAYOUTS: dict[str, Shape] = {
    "tensor parallel": Shape(**DENSE, tp=2),
    "sequence parallel, fewer query groups, SwiGLU, MLP computed again": Shape(
        **GATED, tp=2, sequence_parallel=True, recompute_mlp=True
    ),
    "pipeline": Shape(**DENSE, pp=2),
    "pipeline, interleaved, several tokens predicted": Shape(**GATED, pp=2, vpp=2),
    "data parallel": Shape(**DENSE, dp=2),
    "experts on two ranks": Shape(**EXPERTS, dp=2, ep=2),
    "experts cut by tensor parallelism": Shape(**EXPERTS, tp=2, sequence_parallel=True),
    "whole experts between cut layers, computed again": Shape(
        **EXPERTS, tp=2, ep=2, expert_tp=1, sequence_parallel=True, recompute_mlp=True
    ),
    "context parallel, experts on two ranks": Shape(**EXPERTS, context=2, ep=2),
    "context parallel, sequences cut": Shape(**DENSE, context=2, cut_sequence=True),
    "tensor, sequence and context parallel, sequences cut": Shape(
        **DENSE, tp=2, context=2, cut_sequence=True, sequence_parallel=True
    ),
    "tensor and pipeline parallel, all computed again": Shape(
        **DENSE, tp=2, pp=2, sequence_parallel=True, recompute=True
    ),
    "experts on two of four ranks": Shape(**EXPERTS, tp=2, dp=2, ep=2, expert_tp=1, sequence_parallel=True),
    "experts on two ranks, pipeline": Shape(**EXPERTS, pp=2, dp=2, ep=2),
}

# Each kind of hook that is put on, and each schedule: trained once more without statistics.
UNLOGGED = (
    "sequence parallel, fewer query groups, SwiGLU, MLP computed again",
    "pipeline, interleaved, several tokens predicted",
    "context parallel, sequences cut",
    "tensor and pipeline parallel, all computed again",
    "experts on two ranks, pipeline",
)


@pytest.fixture(scope="module")
def alone() -> dict[Shape, Any]:
    """Every value of each model in one process, and the norms of its gradients."""
    shapes = sorted({shape.alone() for shape in LAYOUTS.values()}, key=repr)
    return run_job(1, "statistics_reference:references", shapes)[0]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> dict[str, tuple[Rows, list[dict[str, Any]]]]:
    """Rows of each layout and what its ranks said; the layouts of one size share their processes."""
    folder = tmp_path_factory.mktemp("jobs")
    found = {}
    for processes in (2, 4):
        wanted = {
            name: (shape, Optimizer()) for name, shape in LAYOUTS.items() if shape.processes == processes
        }
        said = run_job(processes, "statistics_work:logged", wanted, EVERY, folder / str(processes), UNLOGGED)
        for name in wanted:
            found[name] = rows_of(folder / str(processes) / name), [of_rank[name] for of_rank in said]
    return found


def is_a_summand(shape: Shape, stat: str, name: str) -> bool:
    """Whether no process has this tensor, but each a part of a sum: at experts that tensor parallelism cuts."""
    cut = "local_experts" in name and (shape.expert_tp or shape.tp) > 1
    return cut and name.endswith(
        {"activation": "linear_fc2/output0", "dgrad": "linear_fc1/input0"}.get(stat, "no such end")
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tensor_has_the_statistics_that_it_has_in_one_process(layout: str, alone, jobs) -> None:
    shape = LAYOUTS[layout]
    whole = {key: data for key, data in alone[shape.alone()][0].items() if not is_a_summand(shape, *key[1:])}
    rows, _ = jobs[layout]
    assert (sorted(whole.keys() - rows.keys()), sorted(rows.keys() - whole.keys())) == ([], [])
    assert {key: row["count"] for key, row in rows.items()} == {key: data.size for key, data in whole.items()}
    # float32 sums of the model in another order; gradients have the most of them behind them.
    for key, row in rows.items():
        # A replica divides its loss by its own micro-batches, and means over replicas are taken of parameters' gradients alone.
        data = whole[key] * (shape.replicas if "dgrad" in key[1] else 1)
        if data.size == 0:
            # An expert that got no tokens.
            assert math.isnan(row["mean"]), key
            continue
        rms = math.sqrt(np.square(data).mean())
        mean, std = row["mean"], math.sqrt(row["m2"] / row["count"])
        assert math.hypot(mean, std) == pytest.approx(rms, rel=2e-6, abs=1e-12), key
        assert std == pytest.approx(data.std(), rel=2e-6, abs=1e-6 * rms + 1e-12), key
        assert mean == pytest.approx(data.mean(), rel=1e-6, abs=1e-6 * rms + 1e-12), key
        largest = float(np.abs(data).max())
        assert [row["min"], row["max"]] == pytest.approx(
            [data.min(), data.max()], rel=0, abs=5e-6 * largest + 1e-12
        ), key
        assert (row["nan_count"], row["inf_count"], row["rounding"], row["loss_scale"]) == (0, 0, 0, 1), key


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_gradients_together_have_the_norm_that_megatron_clips_by(layout: str, alone, jobs) -> None:
    rows, said = jobs[layout]
    for of_rank in said:
        assert l2_of_gradients(rows) == pytest.approx(of_rank["norms"], rel=1e-6)
    assert l2_of_gradients(rows) == pytest.approx(alone[LAYOUTS[layout].alone()][1], rel=3e-6)
    # What came after clipping would be no larger than this.
    assert min(l2_of_gradients(rows)) > 2 * Optimizer().clip
    assert {row["gradient_stage"] for key, row in rows.items() if key[1] == "grad"} == {"pre_clip"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_is_the_same_without_it_and_nothing_is_left_behind(layout: str, jobs) -> None:
    for of_rank in jobs[layout][1]:
        assert of_rank["losses"] == of_rank.get("losses unlogged", of_rank["losses"])
        assert ("losses unlogged" in of_rank) is (layout in UNLOGGED)
        assert (of_rank["warnings"], of_rank["left behind"]) == ([], False)


def test_layers_and_experts_are_numbered_over_all_stages_and_ranks(jobs) -> None:
    layouts = (
        "pipeline, interleaved, several tokens predicted",
        "experts on two ranks, pipeline",
    )
    for layout in layouts:
        names = {name for _, _, name in jobs[layout][0]}
        layers = {
            int(name.split(".")[2].split("/")[0]) for name in names if name.startswith("decoder.layers.")
        }
        assert layers == {0, 1, 2, 3}
    for stat, end in (("param", "weight"), ("activation", "fc1/input0"), ("dgrad", "fc2/output0")):
        ends = [name for _, of, name in jobs["experts on two ranks"][0] if of == stat and name.endswith(end)]
        experts = {int(name.partition("local_experts.")[2].split(".")[0]) for name in ends if "local" in name}
        assert experts == {0, 1, 2, 3}


def test_a_tensor_tells_its_pipeline_stage(jobs) -> None:
    rows = jobs["pipeline"][0]
    assert {row["stage"] for key, row in rows.items() if "layers.0" in key[2]} == {0}
    assert {row["stage"] for key, row in rows.items() if "layers.3" in key[2]} == {1}
    # The copy of a tied embedding on the last stage is not one more.
    assert "output_layer.weight" not in {name for _, _, name in rows}
    assert {row["stage"] for row in jobs["tensor parallel"][0].values()} == {-1}


def test_what_cannot_work_is_refused_before_the_first_step() -> None:
    words = {
        "no optimizer": "pass the optimizer",
        "CUDA graphs": "CUDA graphs are on (cuda_graph_impl='local')",
        "experts overlapped": "overlap_moe_expert_parallel_comm runs layers in pieces",
        "pieces of gradients": "pass that as optimizer, not SGD",
        "one number twice": "stand for two tensors on two pipeline stages",
    }
    for said in run_job(2, "statistics_work:refused"):
        assert said.keys() == words.keys()
        for name, text in said.items():
            assert words[name] in text
        assert "decoder.layers.0." in said["one number twice"]
