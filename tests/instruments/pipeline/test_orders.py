"""What a greedy order does first of what has arrived."""

from __future__ import annotations

import pytest

from megalens.instruments.pipeline.orders import GreedyOrder
from megalens.instruments.pipeline.plan_type import Placement


@pytest.mark.parametrize(
    ("prefer", "wanted"),
    [("breadth", ["0B0", "0B1", "0F2", "0F3"]), ("depth", ["0B0", "0F2", "0B1", "0F3"])],
)
def test_backward_passes_come_first_and_by_depth_take_turns_with_forward_passes(
    prefer: str, wanted: list[str]
) -> None:
    order = GreedyOrder(Placement("loop", 2, 1, 4), [0], prefer, None)
    done = []
    for _ in range(2):
        operation = order.next()
        assert operation is not None
        order.ended(operation)
    order.arrived("B", 0, 0)
    order.arrived("B", 0, 1)
    while (operation := order.next()) is not None:
        done.append(str(operation))
        order.ended(operation)
    assert done == wanted
    assert not order.over
    order.arrived("B", 0, 2)
    order.arrived("B", 0, 3)
    assert [str(order.next()), str(order.next())] == ["0B2", "0B3"]
