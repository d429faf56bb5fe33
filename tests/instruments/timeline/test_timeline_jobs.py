"""Spans of jobs of several processes on one machine, whose clocks are one: what must coincide, coincides."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pandas
import pyarrow
import pytest
from overlapped_work import ADDED_MS
from processes import run_job

from megalens.instruments.timeline import analyse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STEPS, MICRO_BATCHES = 3, 4
BUFFERS = "broadcast_buffers"
"""For which nobody but the receivers waits."""


def rows_of(ranks: int, kind: str, folder: Path, timeline="phases") -> pandas.DataFrame:
    (_, rows, _), *_ = run_job(ranks, "timeline_work:timed", kind, str(folder), timeline)
    return pandas.DataFrame(rows)


def meet(rows: pandas.DataFrame, ranks: int) -> None:
    """Each collective is on all ranks of its group, and ends on none before the last of them began it."""
    mutual = rows[(rows["kind"] == "collective") & (rows["name"] != BUFFERS)]
    together = mutual.groupby(["name", "group", "sequence"])
    assert len(together) > 0
    for (_, group, _), each in together:
        first, _, last = group.partition("-")
        wanted = range(int(first), int(last) + 1) if last else map(int, group.split(","))
        assert sorted(each["rank"]) == sorted(wanted)
        assert each["end"].min() >= each["start"].max()


def test_calls_have_their_group_their_bytes_and_their_waiting(tmp_path) -> None:
    rows = rows_of(3, "calls", tmp_path)
    meet(rows, 3)
    # One machine, one clock: nothing is calibrated, however late a rank is woken.
    assert rows["clock"].nunique() == 1
    assert rows["clock"].iloc[0] > 0
    clocks = analyse(pyarrow.Table.from_pandas(rows)).clocks
    assert clocks.offset_ns.tolist() == clocks.half_width_ns.tolist() == [0, 0, 0]
    assert clocks.between([0, 1, 2]) == 0
    for step, mine in rows.groupby("step"):
        reduced = mine[(mine["name"] == "all_reduce") & (mine["bytes"] == 4000)].set_index("rank")
        assert sorted(reduced.index) == [0, 1, 2]
        assert (reduced["group"] == "0-2").all()
        # Rank 2 comes 0.1 s late; the others wait for it.
        assert reduced.loc[[0, 1], "blocked"].min() > 0.08e9
        assert (reduced["blocked"] == reduced["end"] - reduced["start"]).all()
        assert reduced.loc[2, "start"] - reduced.loc[[0, 1], "start"].max() > 0.08e9
        gathered = mine[mine["name"] == "all_gather_into_tensor"]
        assert len(gathered) == 3
        assert (gathered["bytes"] == 12_000).all()
        # It goes on while the rank works.
        assert (gathered["end"] - gathered["start"]).min() >= 0.05e9
        assert (gathered["blocked"] < gathered["end"] - gathered["start"] - 0.04e9).all()
        assert set(mine[mine["group"] == "0,2"]["rank"]) == {0, 2}
        sent, received = (mine[mine["kind"] == kind] for kind in ("send", "receive"))
        assert sent[["rank", "peer", "sequence", "bytes"]].values.tolist() == [[0, 1, step - 1, 4000]]
        assert received[["rank", "peer", "sequence", "bytes"]].values.tolist() == [[1, 0, step - 1, 4000]]
        assert received["end"].iloc[0] >= sent["start"].iloc[0]
        assert len(mine[(mine["name"] == "all_reduce") & (mine["bytes"] == 2000)]) == 6


def test_replicas_reduce_once_a_step_after_the_backward_pass(tmp_path) -> None:
    rows = rows_of(2, "ddp", tmp_path)
    meet(rows, 2)
    # What DDP gives to all replicas before a forward pass comes from rank 0.
    buffers = rows[rows["name"] == BUFFERS]
    assert len(buffers) >= 2 * STEPS
    assert set(zip(buffers["group"], buffers["peer"], strict=True)) == {("0-1", 0)}
    assert (buffers["blocked"] == buffers["end"] - buffers["start"]).all()
    # The script's own barrier before its first step.
    rows = rows[~rows["name"].isin(["barrier", BUFFERS])]
    reduced = rows[rows["name"] == "reduce_gradients"]
    assert len(reduced) == 2 * STEPS
    for each in reduced.itertuples():
        mine = rows[(rows["rank"] == each.rank) & (rows["step"] == each.step)]
        assert Counter(mine["kind"]) == {
            "step": 1,
            "forward": 2,
            "backward": 2,
            "optimizer": 1,
            "collective": 1,
        }
        second = mine[(mine["kind"] == "backward") & (mine["micro_batch"] == 1)].iloc[0]
        assert second["start"] == each.start
        assert second["end"] <= each.end - each.blocked
        assert each.end <= mine[mine["kind"] == "optimizer"].iloc[0]["start"]


def test_shards_are_gathered_and_reduced(tmp_path) -> None:
    rows = rows_of(2, "fsdp", tmp_path)
    meet(rows, 2)
    names = set(rows[rows["kind"] == "collective"]["name"])
    assert any("gather" in name for name in names)
    assert any("reduce_scatter" in name for name in names)


def test_tensor_parallel_layers_are_reduced_in_their_passes(tmp_path) -> None:
    rows = rows_of(2, "tp", tmp_path, "layers")
    meet(rows, 2)
    for _, mine in rows.groupby(["rank", "step"]):
        forward = mine[(mine["kind"] == "forward") & (mine["name"] == "")].iloc[0]
        inside = mine[
            (mine["kind"] == "collective")
            & (mine["start"] >= forward["start"])
            & (mine["start"] <= forward["end"])
        ]
        # Each layer's second half gives a sum over ranks, which the loss waits for where it is the last.
        assert len(inside) >= 2


@pytest.mark.parametrize("ranks", [2, 4])
def test_messages_of_a_pipeline_are_sent_before_they_are_received(tmp_path, ranks) -> None:
    rows = rows_of(ranks, "pp", tmp_path)
    assert sorted(set(rows["stage"])) == list(range(ranks))
    key = ["from", "to", "sequence"]
    sent = rows[rows["kind"] == "send"].rename(columns={"rank": "from", "peer": "to"})
    received = rows[rows["kind"] == "receive"].rename(columns={"peer": "from", "rank": "to"})
    assert len(sent) == len(received)
    assert len(sent) >= 2 * (ranks - 1) * MICRO_BATCHES * STEPS
    both = sent.merge(received, on=key, suffixes=("", "_received"))
    assert len(both) == len(sent)
    assert (both["start"] <= both["end_received"]).all()
    for _, mine in rows[rows["name"] == ""].groupby(["rank", "step"]):
        for kind in ("forward", "backward"):
            assert list(mine[mine["kind"] == kind].sort_values("start")["micro_batch"]) == list(
                range(MICRO_BATCHES)
            )


def test_the_rank_that_does_more_is_named_while_it_trains_and_afterwards_with_what_it_costs(tmp_path) -> None:
    (_, rows, alarms), *_ = run_job(4, "timeline_work:timed", "slow", str(tmp_path), "phases")
    (alarm,) = alarms
    assert (alarm["rule"], alarm["rank"]) == ("slow_rank", 2)
    assert 30 <= alarm["step"] <= 40
    assert re.fullmatch(r"Rank 2 is \d+ % slower than the other ranks since step \d+\.", alarm["sentence"])
    assert alarm["value"] > alarm["expected"] + 10
    analysis = analyse(pyarrow.Table.from_pandas(pandas.DataFrame(rows)))
    culprits = [each for each in analysis.verdict().culprits if each.kind == "device"]
    assert [each.ranks for each in culprits] == [(2,)]
    # It works 20 ms more in each step.
    assert 8e6 < culprits[0].price_ns < 30e6


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tp", "pp"])
def test_losses_are_the_same_with_and_without_a_timeline(tmp_path, kind) -> None:
    timed, plain = (
        [losses for losses, *_ in run_job(2, "timeline_work:timed", kind, str(tmp_path / str(way)), way)]
        for way in ("operations", None)
    )
    assert timed == plain


@pytest.mark.parametrize(
    ("way", "kind", "ranks"),
    [
        ("none", "", ()),
        ("forward", "device", (2,)),
        ("backward", "device", (2,)),
        ("data", "data", (2,)),
        ("two", "device", (1, 2)),
    ],
)
def test_ranks_that_are_slow_while_gradients_are_reduced_cost_what_they_add(
    tmp_path, way, kind, ranks
) -> None:
    rows, *_ = run_job(4, "overlapped_work:trained", way, str(tmp_path))
    verdict = analyse(pyarrow.Table.from_pandas(pandas.DataFrame(rows))).verdict()
    assert verdict.healthy == (way == "none"), str(verdict)
    assert [(each.kind, each.ranks) for each in verdict.culprits] == ([(kind, ranks)] if ranks else [])
    for each in verdict.culprits:
        assert each.price_ns == pytest.approx(ADDED_MS * 1e6, rel=0.2)
