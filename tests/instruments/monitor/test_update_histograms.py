"""How large Adam's updates are, beside the updates that torch makes."""

import numpy as np
import pytest
import torch

from megalens.instruments.monitor.trainermon.readings import update_histograms


def test_they_are_of_the_updates_that_torch_makes() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(1000, dtype=torch.float64))
    optimizer = torch.optim.Adam([weight], lr=0.5, betas=(0.8, 0.95), eps=0.1)
    for _ in range(4):
        before = weight.detach().clone()
        weight.grad = torch.randn(1000, dtype=torch.float64)
        optimizer.step()
    update = ((before - weight.detach()) / 0.5).numpy()
    state = optimizer.state[weight]
    found = update_histograms(state["exp_avg"], state["exp_avg_sq"], state["step"], (0.8, 0.95), 0.1)
    expected = np.histogram(update, 30, (-1, 1))[0]
    # Float32 may put one that is next to an edge on its other side.
    assert np.abs(found[0].numpy() - expected).max() <= 1
    assert found[0].sum() == pytest.approx(expected.sum(), abs=1)
    # Without eps they are larger, and more lie outside.
    assert found[1].sum() < found[0].sum()


def test_what_has_no_value_is_in_no_bin() -> None:
    mean, square = torch.tensor([0.0, 0.25, 3.0]), torch.tensor([0.0, 1.0, 1.0])
    # After very many steps nothing is corrected any more.
    update, ratio = update_histograms(mean, square, 10_000.0, (0.9, 0.99), 1e-8)
    assert update.sum() == 2
    assert ratio.sum() == 1
    assert ratio[int((0.25 + 1) / 2 * 30)] == 1
