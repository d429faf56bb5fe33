"""MegatronApp's traces of several ranks, beside its own aggregate and by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from megalens.__main__ import main

FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures" / "scan"
needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="MegatronApp's own traces are not there")


def aggregated(folder, tmp_path):
    out = tmp_path / "out.json"
    assert main(["timeline", "aggregate", str(folder), "-o", str(out)]) == 0
    return json.loads(out.read_text())


@needs_fixtures
def test_the_result_is_that_of_its_own_script_event_for_event(tmp_path, capsys):
    # The aggregates that lie beside the ranks' files are no ranks.
    assert aggregated(FIXTURES, tmp_path) == json.loads((FIXTURES / "app-agg.json").read_text())
    said = capsys.readouterr()
    assert said.err == ""
    assert "Wrote 10240 events of 4 ranks" in said.out


def place(rank):
    return {"dp_rk": 0, "pp_rk": rank, "tp_rk": 0, "dev": rank, "g_rk": rank}


def span(rank, name, begin, end, **attributes):
    return [
        {"name": name, "ph": "B", "rel_ts": begin, **place(rank)},
        {**attributes, "name": name, "ph": "E", "rel_ts": end, **place(rank)},
    ]


def iteration(rank, pad, duration, *rows):
    end = {
        "name": "iteration",
        "ph": "E",
        "rel_ts": duration,
        "duration_wall": duration,
        "duration_cuda": duration,
    }
    return [{"name": "iteration", "ph": "B", "pad_before": pad}, *rows, {**end, **place(rank)}]


def write(folder, rank, rows):
    folder.mkdir(exist_ok=True)
    path = folder / f"benchmark-data-0-pipeline-{rank}-tensor-0.json"
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows, indent=2))


@pytest.fixture
def folder(tmp_path):
    """Two stages, two iterations; the first sends to the second, which waits."""
    traces = tmp_path / "traces"
    sent = {"micro_batch_index": 0, "expect": "recv-warmup", "data": 64, "group": [1], "bandwidth": 2.0}
    received = {"micro_batch_index": 0, "expect": "send-warmup", "data": 64, "group": [0], "bandwidth": 1.0}
    for rank in (0, 1):
        rows = []
        # No two iterations of a job take the same ns.
        for late, pad, duration in ((0, 0, 9000), (7, 2000 + 1000 * rank, 8000 + 500 * rank)):
            own = (
                [*span(0, "forward", 1000 + late, 5000 + late, micro_batch_index=0), *span(0, "send-warmup", 5000 + late, 6000 + late, **sent)]
                if rank == 0
                else [*span(1, "recv-warmup", 500 + late, 6000 + late, **received), {"name": "tick", "ph": "i", "rel_ts": 7000, **place(1)}]
            )  # fmt: skip
            rows += iteration(rank, pad, duration, *own)
        write(traces, rank, rows)
    return traces


def test_spans_have_durations_and_name_those_that_they_wait_for(folder, tmp_path):
    events = aggregated(folder, tmp_path)
    spans = [event for event in events if event["ph"] == "X"]
    assert [(e["name"], e["pid"], e["ts"], e["dur"], e["args"]["iteration"]) for e in spans] == [
        ("recv-warmup", 1, 0, 6, 0), ("forward", 0, 1, 4, 0), ("send-warmup", 0, 5, 1, 0),
        # The second begins after the slowest first and the longest pause.
        ("recv-warmup", 1, 12, 6, 1), ("forward", 0, 13, 4, 1), ("send-warmup", 0, 17, 1, 1),
    ]  # fmt: skip
    assert [e["args"]["id"] for e in spans] == list(range(6))
    assert [e["args"].get("related_sync_op") for e in spans] == ["0 2", None, "0 2", "3 5", None, "3 5"]
    assert spans[2]["args"] == {
        "iteration": 0, **place(0), "micro_batch_index": 0, "expect": "recv-warmup", "data": 64, "group": [0, 1],
        "bandwidth": 2.0, "id": 2, "related_sync_op": "0 2",
    }  # fmt: skip
    assert [e["cname"] for e in spans[:3]] == ["rail_response", "thread_state_running", "rail_animation"]
    assert [(e["name"], e["pid"], e["args"]) for e in events[6:]] == [
        ("process_name", 0, {"name": "DP0-PP0-TP0"}), ("process_sort_index", 0, {"sort_index": 0}),
        ("process_name", 1, {"name": "DP0-PP1-TP0"}), ("process_sort_index", 1, {"sort_index": 1}),
    ]  # fmt: skip


def test_what_the_tracer_writes_twice_counts_once(folder, tmp_path):
    plain = aggregated(folder, tmp_path)
    for rank in (0, 1):
        path = folder / f"benchmark-data-0-pipeline-{rank}-tensor-0.json"
        rows = json.loads(path.read_text())
        cut = next(
            at for at, row in enumerate(rows) if at and row["name"] == "iteration" and row["ph"] == "B"
        )
        first, second = rows[:cut], rows[cut:]
        copy = [*first[:-1], {**first[-1], "duration_wall": 77_000}]
        # The second of the window begins with what the first had.
        later = [{**row, "rel_ts": row["rel_ts"] + 20_000} for row in second[1:-1]]
        repeated = [second[0], *first[1:-1], *later, second[-1]]
        write(folder, rank, [*first, *copy, *repeated, *repeated])
    events = [e for e in aggregated(folder, tmp_path) if e["ph"] == "X"]
    expected = [e for e in plain if e["ph"] == "X"]
    assert [(e["name"], e["pid"], e["args"]["iteration"], e["dur"]) for e in events] == [
        (e["name"], e["pid"], e["args"]["iteration"], e["dur"]) for e in expected
    ]
    assert [e["ts"] for e in events] == [e["ts"] + 20 * e["args"]["iteration"] for e in expected]


def test_a_file_that_is_cut_off_gives_its_whole_iterations(folder, tmp_path, capsys):
    path = folder / "benchmark-data-0-pipeline-1-tensor-0.json"
    path.write_text(path.read_text()[: int(len(path.read_text()) * 0.9)])
    events = aggregated(folder, tmp_path)
    assert {e["args"]["iteration"] for e in events if e["ph"] == "X"} == {0}
    said = capsys.readouterr().err
    assert "benchmark-data-0-pipeline-1-tensor-0.json is cut off: its whole iterations are taken." in said
    assert "Ranks 0 have more than 1 iterations: only the first 1 of each are taken." in said


def test_what_does_not_fit_is_named_and_the_rest_is_used(folder, tmp_path, capsys):
    backwards = span(3, "forward", 6000, 1000)
    write(
        folder,
        3,
        [*iteration(3, 0, 9000, *backwards, {"name": 5}, *span(3, "loss", 1, 2)[:1]), *iteration(3, 0, 9000)],
    )
    write(folder, 4, "[{]")
    events = aggregated(folder, tmp_path)
    assert {e["pid"] for e in events if e["ph"] == "X"} == {0, 1}
    said = capsys.readouterr().err
    assert "benchmark-data-0-pipeline-3-tensor-0.json: 1 rows that do not fit were left out." in said
    assert "benchmark-data-0-pipeline-4-tensor-0.json must be a JSON array of rows." in said
    assert "Ranks 2 have no file." in said
    assert "3 beginnings or ends of spans have no other half." in said


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "must hold files such as benchmark-data-0-pipeline-0-tensor-0.json"),
        ({"a-0.json": "[]"}, "must hold files such as .* a-0.json holds no iteration"),
        ({"a-0.json": [*iteration(0, 0, 9)], "b-0.json": [*iteration(0, 0, 9)]}, "b-0.json and another file are both of rank 0: give a folder that holds one job"),
    ],
)  # fmt: skip
def test_a_folder_of_nothing_or_of_two_jobs_is_refused(files, sentence, tmp_path, capsys):
    folder = tmp_path / "traces"
    folder.mkdir()
    tick = {"name": "tick", "ph": "i", "rel_ts": 1}
    for name, rows in files.items():
        rows = [rows[0], tick, *rows[1:]] if isinstance(rows, list) else rows
        (folder / name).write_text(rows if isinstance(rows, str) else json.dumps(rows))
    assert main(["timeline", "aggregate", str(folder), "-o", str(tmp_path / "out.json")]) == 2
    assert re.search(sentence, capsys.readouterr().err)
    assert not (tmp_path / "out.json").exists()


def test_a_file_that_cannot_be_written_is_told(folder, tmp_path, capsys):
    assert main(["timeline", "aggregate", str(folder), "-o", str(tmp_path / "no" / "out.json")]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
