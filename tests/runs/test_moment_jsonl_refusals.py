"""Raw-moment JSONL that is malformed, closed or none: what is said of it, and what is read all the same."""

import json
import os
import re
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hostile_folders import nobody
from moment_tree import NAMES, expected, l2, record, steps_of, sums, write_lines
from reading_costs import MOST_MIB, MOST_SECONDS, cost_of

from megalens.runs import ClientError, open_all_runs, open_run
from megalens.runs.moments.jsonl import chunk, ingest
from megalens.runs.moments.jsonl.chunk import read_chunk


@pytest.fixture
def anyone(monkeypatch):
    """A folder that everybody may look into."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        monkeypatch.setenv("MEGALENS_CACHE_DIR", f"{folder}/cache")
        yield Path(folder)


def test_a_malformed_line_is_left_out_and_told_with_file_and_line(home):
    lines = [
        record(1),
        '{"iter": 2, "values": {"a": \n',
        record(3),
        "[1, 2]\n",
        '{"iter": 4, "stat": "weights", "values": {"a": 1}}\n',
    ]
    beyond = [record(-1), record(2**53)]
    write_lines(home, "grad", 5, [*lines, {"iter": 6}, record(7), *beyond])
    run = open_run(home)
    assert steps_of(run) == [1, 3, 4, 7]
    said = [re.sub(r"\(.*\)", "(…)", line) for line in run.warnings]
    assert said == [
        "rank5.jsonl, line 2: it is no JSON (…).",
        "rank5.jsonl, line 4: it is no JSON object.",
        "rank5.jsonl, line 6: it has no object 'values'.",
        "rank5.jsonl, line 8: its step -1 is negative.",
        "rank5.jsonl, line 9: its step 9007199254740992 is too large.",
    ]


def test_a_name_that_comes_twice_in_a_record_is_told(home):
    one = json.dumps(record(1, NAMES[:1]))
    twice = one.replace('"values": {', '"values": {' + json.dumps({NAMES[0]: sums(np.ones(3))})[1:-1] + ", ")
    write_lines(home, "grad", 0, [twice + "\n"])
    run = open_run(home)
    assert l2(run) == [expected(1, NAMES[:1])]
    assert run.warnings == [
        f"rank0.jsonl, line 1: the name '{NAMES[0]}' comes twice, and the last one counts."
    ]


def test_what_holds_no_statistics_says_what_was_expected(tmp_path, home):
    (tmp_path / "empty").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "data.jsonl").write_text('{"text": "hello"}\n' * 3)
    with pytest.raises(ClientError, match="empty holds no raw-moment statistics"):
        open_run(tmp_path / "empty")
    with pytest.raises(ClientError, match=r"other holds \.jsonl files, but none of raw moments"):
        open_run(other)
    with pytest.raises(
        ClientError, match=r"data\.jsonl holds no raw-moment records.*Expected lines such as"
    ) as caught:
        open_run(other / "data.jsonl")
    assert caught.value.code == "unreadable"
    with pytest.raises(ClientError, match=r"training_stats holds no \.jsonl file of raw moments yet"):
        open_run(home)
    with pytest.raises(ClientError, match="gone does not exist"):
        open_run(tmp_path / "gone")
    with pytest.raises(ClientError, match="gone does not exist"):
        open_run(tmp_path / "gone.jsonl" / ".." / "gone")


def test_a_file_that_may_not_be_read_is_named(anyone):
    path = write_lines(anyone, "grad", 0, [record(1)])
    path.chmod(0)
    with (
        nobody(),
        pytest.raises(ClientError, match=r"rank0\.jsonl cannot be read: Permission denied") as caught,
    ):
        open_run(path)
    assert caught.value.code == "unreadable"


def test_a_folder_that_may_not_be_looked_into_is_told_and_hides_no_other(anyone):
    for name in "abc":
        write_lines(anyone / name / "training_stats", "grad", 0, [record(1)])
        write_lines(anyone / name / "training_stats", "param", 0, [record(1, stat="param")])
    closed = [anyone / "c", anyone / "a" / "training_stats" / "grad_raw_moments_by_param"]
    for folder in closed:
        folder.chmod(0)
    with (
        nobody(),
        pytest.warns(UserWarning, match=r"/c cannot be looked into: Permission denied\. Runs below"),
    ):
        runs = open_all_runs(anyone)
    with nobody():
        assert sorted(runs) == ["a", "b"]
        assert [entry["stat"] for entry in runs["a"].moment_source.index()["stats"]] == ["param"]
        # Not as root, whose folders in the cache nobody else may write to.
        assert any("grad_raw_moments_by_param cannot be looked into" in each for each in runs["a"].warnings)
        assert runs["b"].warnings == []
    closed[1].chmod(0o755)
    (anyone / "b").chmod(0)
    with nobody(), pytest.warns(UserWarning, match=r"/b cannot .* Nor can 1 more folders\."):
        assert open_run(anyone).name == "a"
    for folder in (*closed, anyone / "b"):
        folder.chmod(0o755)


def test_a_line_that_is_too_long_is_left_out_in_bounded_memory(home, monkeypatch):
    monkeypatch.setattr(ingest, "_LINE_BYTES", 1 << 16)
    monkeypatch.setattr(ingest, "_CHUNK_BYTES", 1 << 13)
    monkeypatch.setattr(ingest, "_BLOCK", 1 << 12)
    long = '{"iter": 2, "values": {"a": "' + "x" * 200_000
    path = write_lines(home, "grad", 0, [*(record(step) for step in range(10, 60)), long])
    run = open_run(home)
    assert steps_of(run) == list(range(10, 60))
    with path.open("a") as file:
        file.write("y" * 100_000)
    assert steps_of(run) == list(range(10, 60))
    with path.open("a") as file:
        file.write('"}}\n' + json.dumps(record(77)) + "\n")
    assert steps_of(run) == [*range(10, 60), 77]
    assert run.warnings == ["rank0.jsonl, line 51: it is longer than any record can be, and is left out."]


@pytest.mark.parametrize("piece", ["[],", "1,", "[" * 900 + "]" * 900 + ",", '{"":1},'])
def test_a_line_of_millions_of_values_is_left_out_before_it_is_parsed(piece):
    most = 4_100_000 // sum(map(piece.count, ",:["))
    data = b'{"iter": 1, "values": {"a": [' + (piece * most)[:-1].encode() + b"]}}\n"
    last = json.dumps(record(2)).encode() + b"\n"
    data += last
    # What is loaded at first use is no cost of a line.
    read_chunk(last, 0, "grad", 0)
    tracemalloc.start()
    table, stretch = read_chunk(data, 0, "grad", 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stretch.problems == ((1, "it holds more than 4,000,000 commas, colons and brackets"),)
    assert table["step"].unique().to_pylist() == [2]
    assert peak < 3 * len(data) + (1 << 20)


def test_names_are_bounded_in_a_line_and_in_what_is_read_together(monkeypatch):
    monkeypatch.setattr(chunk, "_MOST_NAMES", 4)
    lines = ["abc", "abc", "abcde", "def", "gh", "def"]
    data = "".join(
        json.dumps({"iter": step, "values": dict.fromkeys(names, 1)}) + "\n"
        for step, names in enumerate(lines)
    )
    table, stretch = read_chunk(data.encode(), 0, "grad", 0)
    why = "it, and the lines before it, name more than 4 tensors"
    assert stretch.problems == ((3, why), (5, why))
    assert table["step"].unique().to_pylist() == [0, 1, 3, 5]


LONG = {
    "wide characters": "\U0001f600" + "x" * 46_000_000,
    "half a character": "\\ud800\U0001f600" + "x" * 46_000_000,
    "more than a line may have": "x" * 200_000_000,
    "names": '",' + ",".join(f'"k{at:012}":1' for at in range(1_950_000)) + ',"b":"',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LONG))
def test_a_long_text_takes_less_than_512_megabytes(tmp_path, name):
    folder = tmp_path / "run" / "training_stats" / "grad_raw_moments_by_param"
    folder.mkdir(parents=True)
    lines = ['{"iter": 1, "values": {"a": "' + LONG[name] + '"}}', json.dumps(record(2))]
    (folder / "rank0.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    cost = cost_of(tmp_path / "run", tmp_path / "cache")
    assert (cost.answer, cost.mib < MOST_MIB, cost.waits < MOST_SECONDS) == ("ok", True, True), cost


@pytest.mark.slow
def test_a_record_of_seventy_thousand_experts_is_read():
    names = [f"layers.{n // 1152}.experts.{n % 1152}.weight" for n in range(70_000)]
    values = dict.fromkeys(names, sums(np.ones(2)))
    table, stretch = read_chunk(json.dumps({"iter": 1, "values": values}).encode() + b"\n", 0, "grad", 0)
    assert (table.num_rows, stretch.problems) == (70_000, ())
