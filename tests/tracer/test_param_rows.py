"""A tensor of every parameter, measured at once in step after step."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from megalens.tracer.moments import measure
from megalens.tracer.moments.hooks.values import ParamRows


def test_rows_are_those_of_the_tensors_that_there_are() -> None:
    tensors: list[torch.Tensor | None] = [
        torch.randn(40),
        None,
        torch.randn(3, 7).t(),
        torch.randn(5).bfloat16(),
    ]
    rows = ParamRows([4, 5, 6, 7], [lambda at=at: tensors[at] for at in range(4)])
    for _ in range(2):
        ((ids, found),) = rows.measure()
        there = [tensor for tensor in tensors if tensor is not None]
        assert ids == [at for at, tensor in zip([4, 5, 6, 7], tensors, strict=True) if tensor is not None]
        assert torch.equal(found, measure(there))
        # One came and one went.
        tensors[0], tensors[1] = None, torch.full((9,), 2.0)
    tensors[:] = [None] * 4
    assert rows.measure() == []


def test_rows_of_the_next_step_are_written_where_these_are() -> None:
    tensor = torch.zeros(6)
    rows = ParamRows([0], [lambda: tensor])
    (_, first), (_, second) = rows.measure()[0], (tensor.add_(1), rows.measure()[0])[1]
    assert second[0, 1] == 1
    assert first.data_ptr() == second.data_ptr()


def test_what_cannot_be_measured_is_left_out_and_the_rest_is_not() -> None:
    whole = torch.randn(12)
    given = [torch.arange(3), torch.empty(0, 4), whole, torch.randn(3, 3).to_sparse_csr()]
    rows = ParamRows(range(4), [lambda at=at: given[at] for at in range(4)])
    ((ids, found),) = rows.measure()
    assert ids == [1, 2]
    assert torch.equal(found[1], measure([whole])[0])
    # An empty tensor has a row that says so.
    assert found[0, [0, 2, 3, 4, 7, 8]].tolist() == [0] * 6


def test_what_is_only_part_of_a_sum_is_named() -> None:
    part = SimpleNamespace(placements=[SimpleNamespace(is_partial=lambda: True)])
    tensor = torch.ones(2)
    rows = ParamRows([8, 9], [lambda: part, lambda: tensor])  # type: ignore[list-item, return-value]
    assert [ids for ids, _ in rows.measure()] == [[9]]
    assert rows.in_part == [8]
