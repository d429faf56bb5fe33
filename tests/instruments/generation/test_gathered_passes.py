"""Passes that come quickly are told together, so that texts cost less to watch; of slow ones each is told at once."""

from itertools import chain
from types import SimpleNamespace

import pytest
import torch

from megalens.instruments.generation import writing
from megalens.instruments.generation.decoding import GenerationPass
from megalens.instruments.generation.token_rows import LocatedPass, PassCoordinates


@pytest.mark.parametrize(("apart", "together"), [(0.001, 50), (0.02, 3), (0.025, 2), (0.031, 1)])
def test_passes_are_told_together_for_50_ms_and_where_they_are_further_apart_than_30_one_by_one(
    monkeypatch, apart, together
) -> None:
    now, did = [100.0], []
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rows = SimpleNamespace(
        of=lambda passes: (
            did.append("made")
            or [{"step": [each.here.step for each in passes if each.done.logits.isfinite().all()]}]
        )
    )
    gathered = writing.GatheredPasses(
        lambda stream, columns, step: did.append((stream, columns["step"], step)),
        rows,
        None,
        pytest.fail,
        lambda: did.append("tensors"),
    )
    for number in range(200):
        now[0] += apart
        logits = torch.zeros(1, 1, 4)
        done = GenerationPass(number, number, torch.zeros(1, 1), torch.zeros(1), logits, None, None, (True,), (True,))  # fmt: skip
        gathered.add(LocatedPass(done, PassCoordinates(number, 0), PassCoordinates(number + 1, 0)), None)
        # A model may write into the same memory again.
        logits.fill_(torch.nan)
    gathered.flush()
    told = [each[1] for each in did if isinstance(each, tuple)]
    assert [*chain.from_iterable(told)] == list(range(200))
    # The one that read the prompts is told at once.
    assert {len(each) for each in told[1:-1]} == {together}
    # Nothing that is sent takes the interpreter from what is still to be made.
    assert did[:3] == ["made", "tensors", ("tokens", [0], 0)]
