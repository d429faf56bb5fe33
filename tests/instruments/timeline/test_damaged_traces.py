"""Traces that are damaged, cut off, or would unfold to far more than they are."""

from __future__ import annotations

import gzip
import json

import pytest
from reading_costs import MOST_MIB, MOST_SECONDS, cost_of

import megalens
from megalens.instruments.timeline import megascan_files, span_columns, trace_folder
from megalens.instruments.timeline.megascan_files import TimelineError
from megalens.instruments.timeline.trace_events import TraceFile
from megalens.runs import ClientError, open_run


def text_of(number, **more):
    # Objects in lists, behind which commas stand as between events.
    inner = {"a": {"b": 1}, "stack": [{"x": 1}, {"y": 2}]}
    return json.dumps({"ph": "X", "name": f"n{number}", "ts": 10.5 * number, "dur": 2, "args": inner, **more})


def whole(events):
    tail = ',"traceName":"x","distributedInfo":{"rank":3,"world_size":4},"baseTimeNanoseconds":7}'
    return ('{"traceEvents":[' + ",\n ".join(events) + "]" + tail).encode()


def read(tmp_path, data):
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    file = TraceFile(path)
    return [each.name for _, events in file.pieces() for each in events], file


GOOD = [text_of(number) for number in range(6)]
NAMES = [f"n{number}" for number in range(6)]


@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize(
    "damaged",
    ['{"ph":"X" "name":5}', '{"ph":"X","name":"x,"ts":1,"args":{"a":[{"b":1}]}}', '{"ph":}', "{}", '"no event"', text_of(9, name=[[]] * 700_000)],
)  # fmt: skip
def test_one_damaged_event_costs_itself_and_is_named_with_its_place(tmp_path, at, damaged):
    events = [damaged if number == at else each for number, each in enumerate(GOOD)]
    names, file = read(tmp_path, whole(events))
    assert [each for each in names if each] == [each for number, each in enumerate(NAMES) if number != at]
    assert file.problems == [f"trace.json: event {at + 1} (counted from 1) is damaged and was left out."]
    assert (file.facts.base_ns, file.facts.job.rank) == (7, 3)


def test_many_events_with_some_damaged_are_read_in_pieces(tmp_path):
    events = GOOD * 10_000
    events[777], events[40_000] = '{"a":}', '{"ph":"X","name":"\\q"}'
    names, file = read(tmp_path, gzip.compress(whole(events)))
    assert len(names) == 60_000
    assert file.problems == ["trace.json: events 778, 40001 (counted from 1) are damaged and were left out."]


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [(b'"n3"', b'"n\xff3"', "n3"), (b'"n3"', b'{"a":[1]}', "n3"), (b'"ts": 31.5', b'"ts": 1e999', ""), (b'"ts": 31.5', b'"ts": -nan', "")],
)  # fmt: skip
def test_a_member_of_another_kind_costs_that_member(tmp_path, before, after, lost):
    names, file = read(tmp_path, whole(GOOD).replace(before, after))
    assert names == [None if each == lost else each for each in NAMES]
    assert file.problems == []


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("packed", [False, True])
def test_what_comes_before_the_end_of_a_cut_file_is_read(tmp_path, keep, packed):
    data = whole(GOOD * 1000)
    data = gzip.compress(data) if packed else data
    names, file = read(tmp_path, data[: int(keep * len(data))])
    assert names == (NAMES * 1000)[: len(names)]
    assert len(names) > 6000 * (keep - 0.2)
    assert file.problems == ["trace.json is cut off: its whole events are taken."]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"traceEvents":5}', b"\x1f\x8b\x08"])
def test_what_holds_no_events_ends_in_a_sentence(tmp_path, data):
    with pytest.raises(TimelineError, match=r"trace\.json must be a trace"):
        read(tmp_path, data)


def test_times_that_are_no_times_of_the_trace_cost_their_events(tmp_path):
    now = 1_693_000_000_000_000

    def step(number, ts, dur=1000):
        return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": ts, "dur": dur}

    events = [step(n, now + 1000 * n) for n in range(8)]
    events += [step(10, 0), step(11, -5), step(12, 1e300), step(13, now, -1), step(14, now, 10**25)]
    events += [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#15", "ts": now}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    with megalens.open(path) as run:
        rows = run.table("spans").to_pandas()
        assert any("events 9, 10, 11, 12, 13 and 1 more (counted" in each for each in run.warnings)
    assert rows["start"].tolist() == [(now + 1000 * n) * 1000 for n in range(8)]


BOMBS = {
    "one event of 40 million brackets": lambda: (
        b'{"traceEvents":[{"ph":"X","name":['
        + b"[]," * 13_000_000
        + b'[]],"ts":1,"dur":1}],"schemaVersion":1}'
    ),
    "a great many spans": lambda: (
        b"["
        + b",".join(
            b'{"ph":"X","name":"forward","ts":%d,"dur":1,"pid":0,"args":{"step":%d}}' % (n, n)
            for n in range(600_000)
        )
        + b"]"
    ),
    "a great many operations": lambda: (
        b'{"schemaVersion":1,"traceEvents":['
        + b",".join(
            b'{"ph":"X","cat":"cpu_op","name":"a","ts":%d,"dur":1}' % (2 * n) for n in range(1_200_000)
        )
        + b"]}"
    ),
    "beginnings without ends": lambda: (
        b"[" + b",".join(b'{"ph":"B","name":"x","ts":1,"tid":%d}' % n for n in range(1_000_000)) + b"]"
    ),
}

_RANK = "benchmark-data-0-pipeline-0-tensor-0.json"


def iteration_rows(number, rows, first=0):
    """Return an iteration as MegatronApp's tracer writes it."""
    place = {"dp_rk": 0, "pp_rk": 0, "tp_rk": number, "dev": 0, "g_rk": number}
    return [
        {"name": "iteration", "ph": "B", "pad_before": 5},
        *({"name": "forward", "ph": "BE"[at % 2], "rel_ts": first + at, **place} for at in range(rows)),
        {"name": "iteration", "ph": "E", "rel_ts": rows, "duration_wall": 2 * rows},
    ]


BOMBS |= {
    "a great many rows of MegatronApp": lambda: json.dumps(
        [row for number in range(420) for row in iteration_rows(0, 1000, number)]
    ).encode(),
    "brackets for rows of MegatronApp": lambda: (
        b'[{"name":"iteration","ph":"B","pad_before":5},' + b"[]," * 20_000_000 + b"[]]"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BOMBS))
def test_a_small_file_that_unfolds_to_much_takes_less_than_512_megabytes(tmp_path, name):
    path = tmp_path / f"{_RANK if 'MegatronApp' in name else 'trace.json'}.gz"
    path.write_bytes(gzip.compress(BOMBS[name](), 1))
    cost = cost_of(path, tmp_path / "cache")
    assert cost.mib < MOST_MIB, cost
    assert cost.waits < MOST_SECONDS, cost


def test_so_many_rows_of_megatronapp_are_read_as_all_files_of_a_job_may_have(tmp_path, monkeypatch):
    for rank in range(2):
        rows = [row for number in range(10) for row in iteration_rows(rank, 2, number)]
        (tmp_path / _RANK.replace("tensor-0", f"tensor-{rank}")).write_text(json.dumps(rows))
    whole, problems = megascan_files.read_rank_files(tmp_path)
    assert ([len(trace.iterations) for trace in whole], problems) == ([10, 10], [])
    monkeypatch.setattr(megascan_files, "_WHOLE_BYTES", 0)
    assert megascan_files.read_rank_files(tmp_path) == (whole, [])
    monkeypatch.setattr(megascan_files, "_MOST_ROWS", 30)
    some, problems = megascan_files.read_rank_files(tmp_path)
    assert [len(trace.iterations) for trace in some] == [3, 3]
    assert "has more than the 15 rows that are read of a file of such a job: its first 3" in problems[0]


@pytest.mark.parametrize("profile", [False, True])
def test_spans_and_their_texts_are_bounded(tmp_path, monkeypatch, profile):
    path = tmp_path / "trace.json"
    events = [
        json.dumps({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 10 * n, "dur": 9})
        if profile
        else json.dumps({"ph": "X", "name": f"forward {n}", "ts": 10 * n, "dur": 9, "args": {"step": 1}})
        for n in range(1, 40)
    ]
    path.write_bytes((b'{"schemaVersion":1,' if profile else b"{") + whole(events)[1:])
    monkeypatch.setattr(span_columns, "_MOST_SPANS", 20)
    monkeypatch.setattr(span_columns, "_MOST_TEXT_BYTES", 500)
    with open_run(path) as run:
        rows = run.table("spans").to_pandas()
        assert len(rows) == 20
        assert profile or "…" in set(rows["name"])
        assert "The trace holds more than 20 spans: the rest is left out." in run.warnings


def test_files_of_a_job_are_bounded_in_number_and_size(tmp_path, monkeypatch):
    for rank in range(3):
        (tmp_path / f"rank{rank}.json").write_bytes(whole(GOOD))
    monkeypatch.setattr(trace_folder, "_MOST_FILES", 2)
    with pytest.raises(ClientError, match="holds 3 files, and at most 2 are read"):
        open_run(tmp_path)
    folder = tmp_path / "megatronapp"
    folder.mkdir()
    rows, packed = (json.dumps(iteration_rows(rank, 2)).encode() for rank in range(2))
    for number, data in enumerate((rows, gzip.compress(packed + b" " * 2000))):
        (folder / _RANK.replace("tensor-0", f"tensor-{number}")).write_bytes(data)
    for most, read_ones, why in ((50, 2, []), (-1, 1, [f"{_RANK} has more than 0 MiB."])):
        monkeypatch.setattr(megascan_files, "_MOST_BYTES", len(rows) + most)
        found, problems = megascan_files.read_rank_files(folder)
        assert (len(found), problems[: len(why)]) == (read_ones, why)


def test_what_unfolds_to_more_than_traces_do_is_read_in_part(tmp_path, monkeypatch):
    from megalens.instruments.timeline import trace_events

    monkeypatch.setattr(trace_events, "_LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(trace_events, "_MOST_UNFOLDED", 5)
    names, file = read(tmp_path, gzip.compress(whole(GOOD * 20_000)))
    assert names == (NAMES * 20_000)[: len(names)]
    assert len(names) > 1000
    assert "trace.json is too large: its beginning is read." in file.problems


@pytest.mark.parametrize("profile", [False, True])
def test_a_large_trace_tells_how_far_it_is_and_is_cancelled(tmp_path, monkeypatch, profile):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    events = GOOD * 40_000
    path = tmp_path / "trace.json"
    head = b'{"schemaVersion":1,' if profile else b"{"
    path.write_bytes(head + whole(events).split(b',"traceName"')[0][1:] + b"}")
    told = []

    class Cancelled(Exception):
        pass

    def progress(done, total, what):
        told.append((done, total, what))
        if len(told) > 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        open_run(path, progress)
    size = path.stat().st_size
    assert {each[1:] for each in told} == {(size, "reading trace.json")}
    assert [done for done, _, _ in told] == sorted({done for done, _, _ in told})
    assert 0 < told[-1][0] < size
    # Nothing is left of it.
    assert not list(tmp_path.glob("cache/**/run.json"))
