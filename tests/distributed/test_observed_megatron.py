"""Where Megatron-Core tells of its tensors itself, the rows are those that hooks give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from moment_rows import rows_of
from processes import run_job
from rows import finished
from shape import STEPS, Shape

# The first one of them waits for Megatron-Core to be imported.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVERY = dict.fromkeys(("activation", "dgrad", "residual"), 1)
SHAPES = {
    1: {
        "dense": Shape(tied=True),
        "experts, several tokens predicted": Shape(experts=4, predictors=1),
        "all computed again": Shape(recompute=True),
    },
    2: {
        "tensor parallel": Shape(tp=2),
        "experts, sequence parallel": Shape(experts=4, tp=2, sequence_parallel=True),
        "pipeline, interleaved": Shape(layers=8, pp=2, vpp=2),
    },
}
EXTRA = {"residual_contribution", "output_logits", "mtp_logits.0", "router_logits", "router"}
NAMES = [(processes, name) for processes, shapes in SHAPES.items() for name in shapes]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> tuple[Any, dict[int, list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("observed")
    said = {
        processes: run_job(processes, "observed_work:observed", shapes, EVERY, folder / str(processes))
        for processes, shapes in SHAPES.items()
    }
    return folder, said


def tensors(folder: Any) -> dict[tuple[Any, ...], np.ndarray]:
    """Every traced tensor."""
    found: dict[tuple[Any, ...], np.ndarray] = {}
    for row in finished(folder).tensors().to_pylist():
        key = tuple(row[name] for name in ("step", "micro_batch", "flag", "layer", "part"))
        assert key not in found, f"{key} came twice"
        found[key] = np.asarray(row["values"], np.float32).reshape(row["shape"])
    return found


@pytest.mark.parametrize(("processes", "name"), NAMES)
def test_what_is_told_of_has_the_rows_that_hooks_give(processes: int, name: str, jobs) -> None:
    folder, said = jobs
    place = folder / str(processes) / name
    hooked, told = rows_of(place / "hooked"), rows_of(place / "told")
    assert hooked
    for key, row in hooked.items():
        other = told[key]
        # What several ranks have is merged in the order in which it comes.
        numbers = {name: value for name, value in row.items() if isinstance(value, float)}
        assert {name: other[name] for name in numbers} == pytest.approx(
            numbers, rel=1e-12, abs=1e-12, nan_ok=True
        ), key
        assert {**other, **numbers} == row, key
    more = {name.rpartition("/")[2] for _, _, name in told.keys() - hooked.keys()}
    assert {name.removeprefix(name.rpartition(".mlp.router")[0] + ".mlp.") for name in more} <= EXTRA
    hooked_tensors, told_tensors = tensors(place / "hooked"), tensors(place / "told")
    assert {key[2] for key in hooked_tensors} == {"HiddenStates", "AttentionOutput_mat_mul"}
    for key, data in hooked_tensors.items():
        np.testing.assert_array_equal(told_tensors[key], data, err_msg=str(key))
    for of_rank in said[processes]:
        one, other = of_rank[name]["hooked"], of_rank[name]["told"]
        assert other["losses"] == one["losses"]
        assert (one["warnings"], other["warnings"]) == ([], [])
        # What the last layer of each chunk gives is hooked still; of the residual stream one rank counts what several have.
        least = one["layers"] - (SHAPES[processes][name].vpp or 1)
        assert one["hooks"] - other["hooks"] in (least, 2 * least)
        assert one["left"] == other["left"]


@pytest.mark.parametrize(("processes", "name"), NAMES)
def test_what_no_hook_sees_is_what_was_computed(processes: int, name: str, jobs) -> None:
    folder, said = jobs
    place, shape = folder / str(processes) / name, SHAPES[processes][name]
    told, traced = rows_of(place / "told"), tensors(place / "told")
    hidden = {key: data for key, data in traced.items() if key[2] == "HiddenStates"}
    assert hidden
    for step in range(1, STEPS + 1):
        for layer in range(1, shape.layers):
            added = [
                data.astype(np.float64) - hidden[before]
                for key, data in hidden.items()
                if (key[0], key[3]) == (step, layer) and (before := (*key[:3], layer - 1, *key[4:])) in hidden
            ]
            same(told[step, "residual", f"decoder.layers.{layer}/residual_contribution"], added)
    # Every rank that has a piece counts it.
    logits = [each for of_rank in said[processes] for each in of_rank[name]["told"]["logits"]]
    predictors = shape.predictors or 0
    each = 1 + predictors
    for step in range(STEPS):
        per_step = len(logits) // len([r for r in said[processes] if r[name]["told"]["logits"]]) // STEPS
        for at, what in enumerate([*(f"mtp_logits.{k}" for k in range(predictors)), "output_logits"]):
            seen = [
                data
                for of_rank in said[processes]
                for data in of_rank[name]["told"]["logits"][step * per_step : (step + 1) * per_step][at::each]
            ]
            same(told[step + 1, "activation", f"output_layer/{what}"], seen)
    if shape.experts:
        for step in range(1, STEPS + 1):
            for layer in range(shape.layers):
                found = [
                    data.astype(np.float64)
                    for key, data in traced.items()
                    if key[2] == "RouterProbabilities" and (key[0], key[3]) == (step, layer)
                ]
                assert found
                for data in found:
                    assert data.shape[-1] == shape.experts
                    np.testing.assert_allclose(data.sum(-1), 1, rtol=1e-6)
                entropies = [-(data * np.log(data)).sum(-1) for data in found]
                same(told[step, "router_entropy", f"decoder.layers.{layer}.mlp.router"], entropies)


def same(row: dict[str, Any], seen: list[np.ndarray]) -> None:
    """Hold a row against all values that were seen."""
    values = np.concatenate([data.ravel() for data in seen])
    assert row["count"] == values.size
    rms = float(np.sqrt(np.square(values).mean()))
    assert row["mean"] == pytest.approx(values.mean(), rel=1e-6, abs=1e-6 * rms)
    assert np.sqrt(row["m2"] / row["count"]) == pytest.approx(values.std(), rel=2e-6)
    assert [row["min"], row["max"]] == pytest.approx([values.min(), values.max()], rel=1e-5)


def test_where_gradients_are_asked_for_layers_are_hooked(tmp_path) -> None:
    # All computed again: of what is told without a graph there would be no gradient.
    shapes, stats = {"again": Shape(recompute=True)}, {"residual": 1, "residual_dgrad": 1}
    (said,) = run_job(1, "observed_work:observed", shapes, stats, tmp_path)
    hooked, told = rows_of(tmp_path / "again" / "hooked"), rows_of(tmp_path / "again" / "told")
    assert {stat for _, stat, _ in hooked} == stats.keys()
    for key, row in hooked.items():
        assert str(told[key]) == str(row), key
    one, other = said["again"]["hooked"], said["again"]["told"]
    # But for the flag, of which no gradient was asked for.
    assert one["hooks"] - other["hooks"] == one["layers"] - 1


def test_an_observer_of_the_training_loop_records_what_a_step_around_each_iteration_records(tmp_path) -> None:
    steps, shape = 3, Shape(tp=2)
    said = run_job(2, "observed_work:through_pretrain", shape, steps, tmp_path)
    observed, stepped = (rows_of(tmp_path / name) for name in ("observer", "steps"))
    # The optimizer is known from the end of the first iteration on.
    wanted = {key: row for key, row in stepped.items() if key[0] > 1}
    assert sorted(observed) == sorted(wanted)
    for key, row in observed.items():
        figures = [row[name] for name in ("count", "mean", "m2", "min", "max")]
        expected = [wanted[key][name] for name in ("count", "mean", "m2", "min", "max")]
        assert figures == pytest.approx(expected, rel=1e-12), key
    hidden = tensors(tmp_path / "observer")
    assert {key[0] for key in hidden} == {1, 2, 3}
    for key, data in tensors(tmp_path / "steps").items():
        np.testing.assert_array_equal(hidden[key], data, err_msg=str(key))
    for of_rank in said:
        assert (of_rank["warnings"], of_rank["left behind"]) == ([], [])
        # Another observer hears of every layer in both micro-batches, and is called before each optimizer's step.
        assert of_rank["theirs"] == steps * shape.layers * 2
        assert of_rank["committed"] == [0, 1, 2]
