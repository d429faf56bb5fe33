"""A split training is the ordinary one: the same losses and weights after many steps."""

import pytest
import torch
from processes import run_job
from split_models import Case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DOUBLE = torch.float64
CASES = {
    2: [
        Case(steps=50),
        Case(masters=True, dtype=torch.bfloat16),
        Case(dropout=0.3, calls=2, clip=0.5, optimizer="sgd", ahead=3),
    ],
    3: [
        Case(pipeline=2, last_forward=False, dropout=0.2, clip=1.0),
        Case(tensor=2, forward_tensor=1, dtype=DOUBLE, dropout=0.2, clip=0.5),
    ],
    4: [
        Case(pipeline=2, kind="stage"),
        Case(pipeline=2, dropout=0.3, calls=3, clip=0.3, ahead=2),
        Case(pipeline=2, masters=True, dtype=torch.bfloat16, clip=0.5),
        Case(tensor=2, dtype=DOUBLE, clip=0.5, optimizer="sgd"),
        Case(data=2, dtype=DOUBLE, dropout=0.2),
    ],
    6: [
        Case(pipeline=3, dropout=0.2, ahead=2),
        Case(pipeline=2, tensor=2, forward_tensor=1, dtype=DOUBLE, clip=0.5, optimizer="sgd"),
        Case(data=3, micro_batches=2, dtype=DOUBLE, calls=2, clip=0.5, dropout=0.2),
    ],
    8: [
        Case(pipeline=2, data=2, dtype=DOUBLE, clip=0.5),
    ],
}


@pytest.mark.parametrize("processes", sorted(CASES))
def test_losses_and_weights_are_those_of_ordinary_training(processes: int) -> None:
    for rank in run_job(processes, "split_work:trainings", CASES[processes]):
        assert max(rank) <= 1e-6, rank
