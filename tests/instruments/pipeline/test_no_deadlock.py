"""No order that is right waits for ever, however late its stages are, and no rank waits for ever for one that is gone."""

import json

import pytest
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize(("stages", "count", "delay"), [(2, 48, 0.0), (3, 48, 0.004)])
def test_random_plans_run_one_after_the_other_and_give_the_gradients_of_one_process(
    stages: int, count: int, delay: float
) -> None:
    results = run_job(stages, "pipeline_work:random_plans", stages, 1000 * stages, count, delay)
    for off in results:
        assert len(off) == count
        assert {name: value for name, value in off.items() if not value < 1e-6} == {}


def test_the_greedy_order_ends_however_late_stages_are() -> None:
    assert max(run_job(4, "pipeline_work:greedy_runs", 4, 4, 0.004)) < 1e-6


def test_an_order_that_is_asked_for_comes_into_force_at_one_step_on_all_ranks() -> None:
    ranks = run_job(3, "pipeline_work:switching", 3, 16)
    names = [[name for name, _ in ran] for ran in ranks]
    assert names[0] == names[1] == names[2]
    # Several changes, or the test shows nothing.
    assert len(set(names[0])) >= 3


@pytest.mark.parametrize(
    ("order", "strike"), [("1f1b", "kill"), ("greedy", "kill"), ("1f1b", "stop"), ("greedy", "stop")]
)
def test_a_rank_that_dies_or_stops_ends_the_step_of_the_others_within_their_limit(
    order: str, strike: str, tmp_path
) -> None:
    run_job(
        3,
        "pipeline_work:stricken",
        order,
        strike,
        60.0 if strike == "kill" else 10.0,
        str(tmp_path),
        gone=True,
    )
    for rank in (0, 1):
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        # Who has waited for the limit says so.
        assert said["code"] in ("lost", "waited")
        assert (said["rank"], said["stage"]) == (rank, rank)
        assert "runs no more" in said["again"]
        assert f"Rank {rank} (stage {rank}) waited" in said["message"]
    # Rank 1, beside it.
    assert said["code"] == ("lost" if strike == "kill" else "waited")
    if order == "1f1b":
        assert "the gradient from rank 2 (stage 2) that 1B1 needs" in said["message"]
        assert (said["operation"], said["micro_batch"]) == ("1B1", 1)
    else:
        assert "rank 2" in said["message"] or "ranks 0, 2" in said["message"]


def test_the_greedy_order_does_what_has_arrived_and_waits_for_nothing_else() -> None:
    (first, _), (second, _) = run_job(2, "pipeline_work:arrivals", 1)
    # Rank 1 is late: all forward passes of rank 0 are done before a gradient comes.
    assert first == ["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2", "0B3"]
    # And it has a backward pass to do after each forward pass.
    assert second == ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "1F3", "1B3"]
    (first, _), (_, waited) = run_job(2, "pipeline_work:arrivals", 0)
    # Rank 0 is late: gradients are there while it still has forward passes to do, and they come first.
    assert first.index("0B0") < first.index("0F2")
    assert first.index("0B1") < first.index("0F3")
    assert waited > 0.1
