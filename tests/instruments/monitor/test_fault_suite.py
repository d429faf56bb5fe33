"""The public suite of faults still runs, and what was put into a real training is what the first anomaly names."""

from __future__ import annotations

import pytest
from processes import run_job

from tests.kit.monitor_faults import ranks
from tests.kit.monitor_faults.judging import verdict_of
from tests.kit.monitor_faults.running import LOCAL, fault_alarms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "name",
    [
        "infinity in the gradient of blocks.1.attention.qkv",
        "lost optimizer state",
        "classifier: NaN in a weight",
        "experts: a router that forgot what it had learnt",
    ],
)
def test_a_fault_is_found_and_named_at_its_step(name: str) -> None:
    (number,) = (at for at, fault in enumerate(LOCAL) if fault.name == name)
    alarms, peer = fault_alarms(number)
    found = verdict_of(LOCAL[number], alarms, peer)
    assert (found.found, found.late, found.right) == (True, 0, 1), found.first


def test_the_suite_has_at_least_sixty_faults_and_no_name_twice() -> None:
    names = [fault.name for fault in LOCAL]
    assert len(names) == len({*names}) >= 60


def test_a_rank_with_other_data_is_named_by_its_loss() -> None:
    (fault,) = (fault for fault in ranks.FAULTS if fault.name == "broken tokenizer on rank 1 of 3")
    found = verdict_of(fault, *run_job(3, "tests.kit.monitor_faults.ranks:trained", fault.name)[0])
    # Eight steps show that it stays there.
    assert (found.found, found.right) == (True, 1), found.first
    assert found.late <= 8
