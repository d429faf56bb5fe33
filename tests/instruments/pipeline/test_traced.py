"""What the timeline holds of a pipeline, and what the settings of a run change in it."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

STEPS, MICRO_BATCHES = 3, 4
KINDS = {"F": "forward", "B": "backward", "I": "backward", "W": "wgrad"}


def wanted_of(operations: list[str], stages: int = 2) -> list[tuple[str, int, int]]:
    found = []
    for word in operations:
        kind = next(letter for letter in word if letter in KINDS)
        virtual, number = map(int, word.split(kind))
        found.append((KINDS[kind], virtual // stages, number))
    return found


def passes(rows: pandas.DataFrame, rank: int, step: int) -> list[tuple[str, int, int]]:
    mine = rows[
        (rows["rank"] == rank)
        & (rows["step"] == step)
        & rows["kind"].isin(KINDS.values())
        & (rows["name"] == "")
    ]
    assert set(mine["stage"]) == {rank}
    mine = mine.sort_values("start")
    # No two at once.
    assert (mine["start"].values[1:] >= mine["end"].values[:-1]).all()
    return list(zip(mine["kind"], mine["chunk"], mine["micro_batch"], strict=True))


@pytest.mark.parametrize("name", ["interleaved_1f1b", "breadth_first", "greedy"])
def test_spans_are_the_operations_that_ran(name: str, tmp_path: Path) -> None:
    ranks = run_job(2, "traced_work:spans", name, str(tmp_path))
    rows = pandas.DataFrame(ranks[0][1])
    for rank, (did, _) in enumerate(ranks):
        for step, operations in enumerate(did, 1):
            assert passes(rows, rank, step) == wanted_of(operations)
    for step in range(1, STEPS + 1):
        both = rows[(rows["step"] == step) & (rows["name"] == "pipeline")]
        sent, received = (both[both["kind"] == kind].sort_values("sequence") for kind in ("send", "receive"))
        # Of 4 virtual stages on 2 ranks every boundary is one between ranks: 3 of them, both ways.
        assert len(sent) == len(received) == 2 * 3 * MICRO_BATCHES
        for rank in (0, 1):
            mine = sent[sent["rank"] == rank]
            theirs = received[received["rank"] == 1 - rank]
            assert list(mine["sequence"]) == list(theirs["sequence"])
            assert list(mine["bytes"]) == list(theirs["bytes"])
            assert list(mine["micro_batch"]) == list(theirs["micro_batch"])
            assert (theirs["end"].values >= mine["start"].values).all()
        assert set(sent["bytes"]) == {4 * 2 * width for width in (7, 8, 9)}
        assert (received["blocked"] <= received["end"] - received["start"]).all()


def test_spans_of_torchs_own_schedule_say_micro_batch_chunk_and_wgrad(tmp_path: Path) -> None:
    ranks = run_job(2, "traced_work:torch_spans", str(tmp_path))
    rows = pandas.DataFrame(ranks[0][1])
    assert any("W" in word for word in ranks[0][0])
    for rank, (order, _) in enumerate(ranks):
        for step in range(1, STEPS + 1):
            assert sorted(passes(rows, rank, step)) == sorted(wanted_of(order))


def test_settings_of_the_run_change_the_order_at_one_step_on_all_ranks(tmp_path: Path) -> None:
    (first, (refused, said), _), (second, _, _) = ranks = run_job(2, "traced_work:configured", str(tmp_path))
    assert first == second
    assert max(worst for _, _, worst in ranks) < 1e-6
    names = list(dict.fromkeys(first))
    assert names == ["interleaved_1f1b", "breadth_first", "greedy (breadth first)", "depth_first"]
    assert first[-1] == "interleaved_1f1b"
    assert {field for _, field, _ in refused} == {"instruments.pipeline.plan", "instruments.pipeline.order"}
    assert [code for code, _, _ in refused] == ["bad-parameter"] * 5
    assert "schedule.use(" in refused[0][2]
    assert "0B0" in refused[1][2]
    assert "must be one of script, greedy" in refused[4][2]
    assert said["order"] == "script"
    assert said["running"] == "interleaved_1f1b"
    assert any("depth_first" in words for words in said["decisions"])


def test_a_rank_that_hears_of_settings_too_late_runs_the_same_order_as_the_others(tmp_path: Path) -> None:
    (first, _, _), (second, _, _) = ranks = run_job(2, "traced_work:configured", str(tmp_path), True)
    assert first == second
    assert "greedy (breadth first)" in second
    assert max(worst for _, _, worst in ranks) < 1e-6


def test_a_notebook_changes_the_order_at_the_step_that_it_is_answered(tmp_path: Path) -> None:
    (first, answered, said), (second, _, _) = run_job(2, "traced_work:from_a_notebook", str(tmp_path))
    assert first == second
    assert len(answered) == 3
    for (name, step), (_, then) in zip(answered, [*answered[1:], ("", len(first) + 1)], strict=True):
        assert first[step - 2] != name
        assert set(first[step - 1 : then - 1]) == {name}
    assert said == [{"order": "script"}]
