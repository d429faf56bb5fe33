"""A split training ends, and goes on, as it should."""

import json

import pytest
import torch
from processes import run_job
from split_models import Case

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("which", "strike"), [(0, "kill"), (1, "kill"), (2, "kill"), (3, "kill"), (3, "stop")]
)
def test_a_process_that_dies_or_stops_ends_all_others_within_their_limit(
    which: int, strike: str, tmp_path
) -> None:
    run_job(
        4, "ends_work:stricken", which, strike, 60.0 if strike == "kill" else 8.0, str(tmp_path), gone=True
    )
    for rank in {0, 1, 2, 3} - {which}:
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        # Who has waited for the limit says so.
        assert said["code"] in (("lost",) if strike == "kill" else ("lost", "waited"))
        assert (said["rank"], said["stage"]) == (rank, rank // 2)
        assert said["role"] == ("backward" if rank % 2 else "forward")
        assert "goes on no more" in said["again"]
        assert f"Rank {rank} ({said['role']}, stage {rank // 2}) waited" in said["message"]
    if which == 3:
        said = json.loads((tmp_path / "1.json").read_text())
        assert "the gradient of micro-batch" in said["message"]
        assert "rank 3 (backward, stage 1)" in said["message"]
        assert said["micro_batch"] in (0, 1)


def test_an_error_of_the_model_names_operation_stage_and_micro_batch() -> None:
    ranks = run_job(4, "ends_work:broken_model")
    assert ranks[2][:3] == ["failed", "1F1", 1]
    assert ranks[3][:3] == ["failed", "1R1", 1]
    for rank in (2, 3):
        assert "out of paper" in ranks[rank][3]
    assert {ranks[0][0], ranks[1][0]} <= {"waited", "lost"}


def test_steps_that_are_not_right_are_refused_and_the_training_goes_on() -> None:
    ranks = run_job(4, "ends_work:misused")
    for rank, found in enumerate(ranks):
        assert found[0][1] == "args"
        assert found[-2][1] == "folder"
        assert "update=True" in found[-2][2]
        assert "it is closed" in found[-1][2]
        if rank < 2:
            assert found[1][0] == "shape"
            assert "4 equal micro-batches, got 7" in found[1][2]
    assert ranks[3][1][1] == "target"


def test_nobody_computes_while_it_waits() -> None:
    for wall, own in run_job(4, "ends_work:waiting"):
        assert wall > 1.9
        assert own < 0.25 * wall


@pytest.mark.parametrize(
    "case",
    [
        Case(pipeline=2, dropout=0.3, clip=0.5),
        Case(dtype=torch.bfloat16, masters=True, data=2, dropout=0.2),
        Case(tensor=2, dropout=0.2, optimizer="sgd"),
    ],
)
def test_a_training_that_goes_on_from_a_checkpoint_is_bit_for_bit_the_same(case: Case, tmp_path) -> None:
    assert run_job(4, "ends_work:resumed", case, str(tmp_path)) == [True] * 4
    names = sorted(path.name for path in tmp_path.iterdir())
    stages = [(p, t) for p in range(case.pipeline) for t in range(case.tensor)]
    assert names == ["manifest.json", *(f"step3-stage{p}-tensor{t}.pt" for p, t in stages)]


def test_checkpoints_that_cannot_be_read_or_written_are_told_and_change_nothing(tmp_path) -> None:
    for none, full, short, other in run_job(4, "ends_work:other_checkpoints", str(tmp_path)):
        assert none[:2] == full[:2] == ["refused", "folder"]
        assert "manifest.json" in none[2]
        assert "No space left on device" in full[2]
        assert "rank 3" in full[2]
        assert short[:2] == ["refused", "folder"]
        assert "rank 3 (backward, stage 1): EOFError: Ran out of input" in short[2]
        assert other[:2] == ["refused", "tensor"]
        assert "written with tensor 1, and this training has 2" in other[2]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["manifest.json", "step2-stage0-tensor0.pt", "step2-stage1-tensor0.pt"]
