"""``megalens.TrainerMon`` on replicas: each rank writes its own, and only the ranks that are to."""

from __future__ import annotations

import csv
import json
import math

import pytest
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_gradients_are_a_ranks_own_before_the_reduction_and_everybodys_after(tmp_path) -> None:
    _, norms = run_job(2, "trainermon_work:replicas", str(tmp_path))
    (folder,) = tmp_path.glob("*-rank*-*")
    assert "-rank1-" in folder.name
    for kind, expected in (("grad_unreduced", norms["own"]), ("grad_reduced", norms["all"])):
        rows = csv.DictReader((folder / f"{kind}_0-0.csv").open())
        found = {row["name"]: float(row["norm"]) for row in rows}
        assert found == pytest.approx(expected, abs=2e-6)
    assert norms["own"] != pytest.approx(norms["all"], rel=1e-2)


def cells(folder, rank):
    rows = []
    for path in sorted(folder.glob(f"*-rank{rank}-*/other_*.csv")):
        rows += csv.DictReader(path.open())
    return {
        (row["name"], int(row["step"])): [
            float(row[op]) for op in ("norm", "min", "max", "zeros", "nans", "mean")
        ]
        for row in rows
    }


def test_what_is_communicated_is_measured_over_all_calls_of_a_step(tmp_path) -> None:
    run_job(2, "trainermon_work:communication", str(tmp_path), {"cc_pre_hook": True})
    found = cells(tmp_path, 1)
    # Two calls of [0, 3, 4] and its double, times 2 on rank 1, and one of a single 1: norms are added, means and parts averaged.
    assert found["all_reduce.pre_0", 0] == pytest.approx(
        [10 + 20 + 1, 0, 16, 2 / 9, 0, (14 / 3 + 28 / 3 + 1) / 3], abs=1e-6
    )
    assert found["all_reduce.post_0", 0] == pytest.approx(
        [15 + 30 + 2, 0, 24, 2 / 9, 0, (7 + 14 + 2) / 3], abs=1e-6
    )
    assert found["all_reduce.pre_0", 1][0] == pytest.approx(61)
    assert found["broadcast.pre_0", 0] == [0, 0, 0, 1, 0, 0]
    assert found["broadcast.post_0", 1] == pytest.approx([50**0.5, 5, 5, 0, 0, 5], abs=1e-6)
    assert len(found) == 8


def test_only_calls_from_chosen_lines_are_measured(tmp_path) -> None:
    run_job(
        2,
        "trainermon_work:communication",
        str(tmp_path),
        {"cc_codeline": [r"trainermon_work\.py\[\d+\]   _elsewhere"]},
    )
    found = cells(tmp_path, 0)
    assert found.keys() == {("all_reduce.post_0", 0), ("all_reduce.post_0", 1)}
    assert found["all_reduce.post_0", 0] == [2, 2, 2, 0, 0, 2]


def test_the_calls_and_their_places_are_shown_by_one_rank_and_end_the_training(tmp_path) -> None:
    (said, raised), (silent, too) = run_job(2, "trainermon_work:shown", str(tmp_path))
    assert raised == too == "exit after first step when print cc stack"
    head, _, stacks = said.partition("\n")
    assert (head, silent) == ("> Used communication ops and corresponding stack", "")
    shown = json.loads(stacks)
    assert shown.keys() == {"all_reduce", "broadcast"}
    assert [frames[0].partition("]   ")[2] for frames in shown["all_reduce"]] == [
        "communication",
        "_elsewhere",
    ]
    assert not cells(tmp_path, 0)


def numbers(folder, rank, kind, step, op="norm"):
    (path,) = folder.glob(f"*-rank{rank}-*/{kind}_{step}-{step}.csv")
    return {row["name"]: float(row[op]) for row in csv.DictReader(path.open())}


def sizes(folder, rank, kind, step):
    (path,) = folder.glob(f"*-rank{rank}-*/{kind}_{step}-{step}.csv")
    return {row["name"]: math.prod(json.loads(row["shape"])) for row in csv.DictReader(path.open())}


def test_a_sharded_models_gradients_are_whole_before_the_reduction_and_a_ranks_own_shard_after(
    tmp_path,
) -> None:
    for rank, expected in enumerate(run_job(2, "trainermon_work:sharded", str(tmp_path))):
        for kind, step, wanted in (
            ("grad_unreduced", 0, "own"),
            ("grad_reduced", 0, "shard"),
            ("exp_avg", 1, "moment"),
        ):
            assert numbers(tmp_path, rank, kind, step) == pytest.approx(expected[wanted], rel=1e-5), kind


@pytest.mark.parametrize("is_distributed", [False, True])
def test_megatrons_gradients_and_state_are_those_of_each_ranks_part(is_distributed, tmp_path) -> None:
    run_job(2, "trainermon_work:megatron", str(tmp_path), 2, is_distributed, False)
    own = [numbers(tmp_path, rank, "grad_unreduced", 0, "mean") for rank in (0, 1)]
    whole = sizes(tmp_path, 0, "grad_unreduced", 0)
    assert own[0].keys() == own[1].keys() == whole.keys()
    reduced = [numbers(tmp_path, rank, "grad_reduced", 0, "mean") for rank in (0, 1)]
    parts = [sizes(tmp_path, rank, "grad_reduced", 0) for rank in (0, 1)]
    moments = [numbers(tmp_path, rank, "exp_avg", 1, "mean") for rank in (0, 1)]
    for name, size in whole.items():
        sums = [reduced[rank].get(name, 0.0) * parts[rank].get(name, 0) for rank in (0, 1)]
        if is_distributed:
            assert parts[0].get(name, 0) + parts[1].get(name, 0) == size
        else:
            assert parts[0][name] == parts[1][name] == size
            assert sums[0] == sums[1]
            sums = sums[:1]
        expected = (own[0][name] + own[1][name]) / 2 * size
        assert sum(sums) == pytest.approx(expected, rel=1e-4, abs=1e-6), name
    for rank in (0, 1):
        # What Adam keeps after its first step is a tenth of the gradient.
        assert moments[rank] == pytest.approx(
            {name: mean / 10 for name, mean in reduced[rank].items()}, rel=1e-4, abs=1e-9
        )
    assert not is_distributed or all(len(part) < len(whole) for part in parts)
    assert len(numbers(tmp_path, 0, "other", 1)) == len(parts[0])


def test_megatrons_gradients_are_measured_after_each_micro_batch(tmp_path) -> None:
    run_job(1, "trainermon_work:megatron", str(tmp_path), 1, False, True)
    (path,) = tmp_path.glob("*-rank0-*/grad_unreduced_0-0.csv")
    found: dict[str, list[float]] = {}
    for row in csv.DictReader(path.open()):
        found.setdefault(row["name"], []).append(float(row["norm"]))
    reduced = numbers(tmp_path, 0, "grad_reduced", 0)
    assert found.keys() == reduced.keys()
    for name, norms in found.items():
        assert len(norms) == 2
        # The second is the sum of both micro-batches, and one rank has nothing to reduce.
        assert norms[1] == pytest.approx(reduced[name], rel=1e-6), name
        assert norms[0] != pytest.approx(norms[1], rel=1e-3), name
