"""Which positions of a pass are reported."""

import torch

from megalens.tracer.tensors.probes import Window


def test_positions_and_keys_are_taken_by_sample_from_tensors_of_any_rank():
    positions, keys = torch.tensor([[4], [2]]), torch.tensor([[0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]])
    window = Window(positions, keys)
    ids, states = torch.arange(12).view(2, 6), torch.randn(2, 6, 3)
    attention = torch.randn(2, 2, 6, 6)
    assert window.of(ids).tolist() == [[4], [8]]
    assert torch.equal(window.of(states), torch.stack([states[0, 4:5], states[1, 2:3]]))
    found = window.of(attention)
    assert found.shape == (2, 2, 1, 6)
    assert torch.equal(found[0, :, 0], attention[0, :, 4, [0, 0, 1, 2, 3, 4]])
    assert torch.equal(found[1, :, 0], attention[1, :, 2])
    assert torch.equal(Window(positions).of(attention)[0, :, 0], attention[0, :, 4])
