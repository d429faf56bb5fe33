"""What a pipeline computes is what one process computes, in every order."""

import pytest
from own_plans import ALL
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize(("stages", "planned"), [(1, False), (3, False), (4, True)])
def test_gradients_of_every_schedule_are_those_of_one_process(stages: int, planned: bool) -> None:
    results = run_job(stages, "pipeline_work:schedules", stages, 8 if stages == 4 else 4, planned)
    for off in results:
        assert len(off) == 2 * len(ALL) + 2 * 8
        assert {name: value for name, value in off.items() if not value < 1e-6} == {}


def test_batches_may_differ_from_step_to_step_where_the_schedule_is_told_so() -> None:
    assert max(run_job(2, "pipeline_work:growing", 2)) < 1e-6
