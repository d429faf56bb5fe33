"""``megalens.TrainerMon`` on replicas: each rank writes its own, and only the ranks that are to."""

from __future__ import annotations

import csv
import json

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
