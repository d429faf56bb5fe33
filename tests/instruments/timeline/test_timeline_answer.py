"""What a picture of a timeline is told, against the job that was simulated."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_run import write_run
from span_rows import recorded

from megalens.instruments.timeline import timeline_answer
from megalens.instruments.timeline.timeline_answer import draft_timeline, read_timeline
from megalens.protocol import ProtocolError, stream_schema
from megalens.runs import ClientError, RunFolder, open_run
from megalens.runs.answers import RunAnswers
from tests.kit.simulated_jobs import Fault, Job

JOB = Job(1, 2, 2, micro_batches=2, steps=12, seed=21, faults=(Fault("device", (2,), 1.4, 1, 12),))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    table, truth = recorded(folder, JOB)
    with open_run(folder) as opened:
        yield RunAnswers(opened), table, truth


def ask(run, **request):
    return run[0].answer("timeline", {"request": request})[0]


def with_memory(folder, job):
    """Record a job whose phases and steps have sizes by chance; return the rows of both streams."""
    table, _ = recorded(folder, job)
    rng = np.random.default_rng(5)
    spans = [row for row in table.to_pylist() if row["kind"] in ("step", "forward", "backward", "optimizer")]
    rows = []
    for row in spans:
        before, allocated = (int(each) for each in rng.integers(1e9, 2e9, 2))
        top = max(before, allocated) + int(rng.exponential(2e8))
        here = {
            name: row[name] for name in ("step", "rank", "stage", "chunk", "micro_batch", "name", "start")
        }
        rows.append(
            {
                **here, "phase": row["kind"], "end": row["end"], "before": before, "allocated": allocated,
                "reserved": 3_000_000_000, "peak": top, "limit": 8_000_000_000, "limit_of": "device",
                "device": "cuda:0", "clock": 0,
            }
        )  # fmt: skip
    for step in (row for row in rows if row["phase"] == "step"):
        own = [row["peak"] for row in rows if row["step"] == step["step"] and row["rank"] == step["rank"]]
        # In every third step most was taken between two of its phases.
        step["peak"] = max(own) + (500_000_000 if step["step"] % 3 == 0 else 0)
    schema = stream_schema("memory")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "memory.parquet")
    return rows


def test_the_peak_of_memory_is_there_at_any_width_and_in_words(tmp_path):
    # What is stored goes by the run's id and steps.
    rows = with_memory(tmp_path / "one", replace(JOB, steps=13))
    with open_run(tmp_path / "one") as opened:
        run = (RunAnswers(opened),)
        for columns in (50, 200, 5000):
            whole = ask(run, columns=columns)
            memory = whole["memory"]
            assert memory["ranks"] == [0, 1, 2, 3]
            pieces = memory["pieces"]
            assert len(pieces["lane"]) <= 4 * 2 * (columns + 1)
            for lane, rank in enumerate(memory["ranks"]):
                mine = [each for each, at in zip(pieces["peak"], pieces["lane"], strict=True) if at == lane]
                assert max(mine) == max(row["peak"] for row in rows if row["rank"] == rank)
            assert all(size <= peak for size, peak in zip(pieces["allocated"], pieces["peak"], strict=True))
        top = max(row["peak"] for row in rows)
        assert memory["scale"] == memory["peak"]["bytes"] == top
        where = min((row for row in rows if row["peak"] == top), key=lambda row: row["end"] - row["start"])
        assert {name: memory["peak"][name] for name in ("rank", "step", "phase")} == {
            name: where[name] for name in ("rank", "step", "phase")
        }
        assert (memory["peak"]["limit"], memory["peak"]["limit_of"]) == (8_000_000_000, "device")
        # Zoomed in, each phase is a stretch of its own, with what it left behind.
        _, begin, end = whole["steps"][4]
        near = ask(run, window=[begin, end], columns=5000)["memory"]["pieces"]
        seen = {
            (near["step"][at], near["phase"][at], near["allocated"][at], near["peak"][at])
            for at in range(len(near["lane"]))
            if near["lane"][at] == 0
        }
        wanted = [row for row in rows if row["rank"] == 0 and row["step"] == 5 and row["phase"] == "forward"]
        assert {(5, "forward", row["allocated"], row["peak"]) for row in wanted} <= seen
        one = ask(run, ranks="2")["memory"]
        assert one["ranks"] == [2]
        assert one["scale"] == max(row["peak"] for row in rows if row["rank"] == 2)


def test_without_memory_there_is_no_memory(run):
    assert ask(run)["memory"] is None


def test_near_enough_every_span_is_there_as_it_is(run):
    whole = ask(run)
    begin = whole["steps"][4][1]
    answer = ask(run, window=[begin, begin + 20], columns=1000)
    pieces = answer["pieces"]
    assert set(pieces["count"]) == {1}
    assert min(pieces["row"]) >= 0
    assert [each["rank"] for each in answer["lanes"]] == [0, 1, 2, 3]
    assert [each["stage"] for each in answer["lanes"]] == [0, 0, 1, 1]
    kinds = Counter(answer["kinds"][kind] for kind in pieces["kind"])
    assert kinds["forward"] > 3
    assert all(end > begin for begin, end in zip(pieces["begin"], pieces["end"], strict=True))
    # What is blocked is drawn last.
    assert pieces["depth"] == sorted(pieces["depth"])


def test_from_far_sums_keep_what_takes_most_of_each_pixel_and_the_waiting(run):
    _, table, _ = run
    answer = ask(run, columns=60)
    pieces = answer["pieces"]
    phases = sum(count for count, depth in zip(pieces["count"], pieces["depth"], strict=True) if depth == 0)
    own = ("forward", "backward", "optimizer", "data")
    assert phases == sum(kind in own for kind in table["kind"].to_pylist())
    assert len(pieces["count"]) < 4 * 2 * 60
    waiting = sum(
        end - begin
        for begin, end, depth, lane in zip(
            *(pieces[name] for name in ("begin", "end", "depth", "lane")), strict=True
        )
        if depth == 2 and lane == 3
    )
    blocked = sum(
        ns / 1e6
        for ns, kind, rank in zip(
            *(table[name].to_pylist() for name in ("blocked", "kind", "rank")), strict=True
        )
        if kind in ("collective", "receive") and rank == 3
    )
    assert waiting == pytest.approx(blocked, rel=0.35)


def test_the_verdict_and_the_slow_ranks_come_with_it(run):
    answer = ask(run)
    (culprit,) = answer["verdict"]["culprits"]
    assert (culprit["kind"], culprit["ranks"]) == ("device", [2])
    slow = answer["slow"]
    assert slow["ranks"] == [0, 1, 2, 3]
    assert slow["steps"] == list(range(1, 13))
    assert all(0.1 < value < 0.3 for value in slow["values"][2])


def test_a_rank_that_is_alone_is_compared_with_its_own_usual_step(tmp_path):
    recorded(tmp_path / "one", Job(1, 1, 1, steps=12, seed=3))
    with open_run(tmp_path / "one") as opened:
        (values,) = ask((RunAnswers(opened),))["slow"]["values"]
    assert sorted(values)[len(values) // 2] == pytest.approx(0, abs=0.05)
    assert max(values) > 0 > min(values)


def test_a_messages_other_end_and_a_collectives_last_rank_are_what_a_span_depends_on(run):
    answer = ask(run, window=[0, ask(run)["steps"][0][2]], columns=1000)
    pieces = answer["pieces"]
    receive = answer["kinds"].index("receive")
    row = next(
        row for row, kind in zip(pieces["row"], pieces["kind"], strict=True) if kind == receive and row >= 0
    )
    (link,) = ask(run, row=row)["links"]
    assert abs(link["rank"] - link["other"]) == 2
    assert 0 <= link["other_at"] - link["at"] < 20
    reduce = next(
        row
        for row, name in zip(pieces["row"], pieces["name"], strict=True)
        if name == "all_reduce" and row >= 0
    )
    links = ask(run, row=reduce)["links"]
    assert len(links) == 3
    assert len({link["rank"] for link in links}) == 1
    assert ask(run, row=10**9)["links"] == []


def test_chosen_ranks_and_steps(run):
    answer = ask(run, ranks="1-2", first=3, last=5)
    assert [each["rank"] for each in answer["lanes"]] == [1, 2]
    assert answer["chosen"] == [3, 5]
    assert answer["steps_there"] == [1, 12]
    assert [step for step, *_ in answer["steps"]] == [3, 4, 5]
    assert (answer["ranks_there"], answer["ranks_chosen"]) == (4, 2)
    assert ask(run, first=99) == {"steps_there": None}


def test_of_many_ranks_those_of_culprits_are_among_the_lanes(tmp_path):
    recorded(tmp_path / "run", replace(JOB, data=40, steps=6, faults=(Fault("device", (79,), 1.5, 1, 6),)))
    with open_run(tmp_path / "run") as opened:
        answer = RunAnswers(opened).answer("timeline", {"request": {}})[0]
    ranks = [each["rank"] for each in answer["lanes"]]
    assert len(ranks) == 64
    assert ranks[-1] == 79
    assert (answer["ranks_there"], answer["ranks_chosen"]) == (80, 80)
    assert len(answer["pieces"]["row"]) <= 2 * 24_000


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"first": -1}, "first must be at least 0, got -1"),
        ({"window": [5, 5]}, "window must be two times in ms, the second larger"),
        ({"window": [0, float("inf")]}, "window must be two times"),
        ({"ranks": "x"}, "ranks must be"),
        ({"columns": 1.5}, "columns must be of type integer, got 1.5"),
        ({"colour": 1}, "colour is not known here. A request may have first, last"),
    ],
)
def test_what_is_asked_wrongly_is_said(run, request_, message):
    with pytest.raises((ProtocolError, ClientError), match=message):
        ask(run, **request_)


def test_a_run_without_spans_and_a_question_that_was_cancelled(tmp_path, run):
    with open_run(write_run(tmp_path / "run", steps=2, layers=1, nonfinite_at=None)) as opened:
        assert RunAnswers(opened).answer("timeline", {"request": {}})[0] == {"steps_there": None}
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ClientError, match="cancelled"):
        read_timeline(run[0]._rows, {"first": 2}, "other", cancelled)


def test_of_a_large_job_the_lanes_come_before_the_verdict(tmp_path, monkeypatch):
    job = Job(1, 2, 8, micro_batches=2, steps=12, seed=5, faults=(Fault("device", (12,), 1.4, 1, 12),))
    recorded(tmp_path / "many", job)
    rows, never = RunFolder(tmp_path / "many"), threading.Event()
    request = {"ranks": "0-3", "draft": True, "window": [0, 60], "columns": 2000}
    # So few rows are judged as soon.
    assert draft_timeline(rows, request, "few", never) is None
    monkeypatch.setattr(timeline_answer, "_DRAFT_ROWS", 100)
    draft = draft_timeline(rows, request, "many", never)
    whole = read_timeline(rows, request, "many", never)
    assert draft["draft"] is True
    assert "draft" not in whole
    assert (draft["verdict"]["culprits"], draft["slow"]["ranks"]) == ([], [])
    assert [each["ranks"] for each in whole["verdict"]["culprits"]] == [[12]]
    for name in ("steps_there", "chosen", "ranks_there", "ranks_chosen", "kinds"):
        assert draft[name] == whole[name], name
    assert (
        [each["rank"] for each in draft["lanes"]] == [0, 1, 2, 3] == [each["rank"] for each in whole["lanes"]]
    )
    assert draft["pieces"]["count"] == whole["pieces"]["count"]
    assert set(draft["pieces"]["count"]) == {1}
    # Its clocks are of fewer collectives.
    assert draft["pieces"]["begin"] == pytest.approx(whole["pieces"]["begin"], abs=0.1)
    # What is known already is not answered by half, and neither is a picture of most ranks.
    assert draft_timeline(rows, request, "many", never) is None
    assert draft_timeline(rows, {"draft": True}, "other", never) is None
    with pytest.raises(ProtocolError, match="draft must be of type boolean, got 1"):
        read_timeline(rows, {"draft": 1}, "other", never)
