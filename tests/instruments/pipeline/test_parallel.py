"""Pipelines whose stages are parallel themselves, or odd."""

import pytest
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tp"])
def test_stages_that_several_ranks_hold_have_the_gradients_of_one_process(kind: str) -> None:
    results = run_job(4, "parallel_work:shared", kind)
    # What the first rank of the first pipeline asks for comes into force at one step on both pipelines.
    greedy = "greedy (breadth first)"
    assert [ran for _, ran in results] == [["random 0"] * 2 + [greedy] * 3 + ["random 1"] * 3] * 4
    for off, _ in results:
        assert len(off) == 12
        assert {name: value for name, value in off.items() if not value < 1e-6} == {}


def test_stages_may_have_no_parameters_other_dtypes_and_tensors_without_gradients() -> None:
    assert max(run_job(3, "parallel_work:odd")) < 1e-6


def test_what_cannot_run_is_refused_before_anything_does() -> None:
    first, second = run_job(2, "parallel_work:refused")
    for found in (first, second):
        assert found["cycle"][:4] == ("cycle", "0B0", 0, 0)
        assert found["layout"][0] == found["micro-batches"][0] == "shape"
        assert "3 instead of 2 as stages" in found["layout"][4]
        assert "4 instead of 2 as micro-batches" in found["micro-batches"][4]
        assert "greedy, adaptive" in found["name"][4]
        assert "even number" in found["two ways"][4]
        assert "4 equal micro-batches, got 6" in found["batch"][4]
        assert found["used"][:4] == ("missing", "0B0", 0, 0)
        assert found["told"][:4] == ("shape", "1F0", 1, 0)
        assert "float32[2, 6]" in found["told"][4]
        assert "float32[2, 9]" in found["told"][4]


def test_an_error_of_the_model_names_operation_stage_and_micro_batch() -> None:
    first, second = run_job(2, "parallel_work:bad_model")
    assert second[:4] == ("failed", "1F0", 1, 0)
    assert "shapes cannot be multiplied" in second[4]
    assert first[0] in ("waited", "lost")
