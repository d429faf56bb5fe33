"""The cache of parsed files: used again, followed, filled by several processes, bounded, and never in the way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moment_tree import kind_of, record, write_lines

from megalens.protocol import stream_schema
from megalens.runs import open_run
from megalens.runs.moments.jsonl import ingest
from megalens.runs.moments.rows import import_folder
from megalens.runs.moments.rows.import_folder import cache_folder, trim_cache

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "run" / "training_stats"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def parsed(monkeypatch):
    """Where stretches began that were parsed here."""
    begins = []
    whole = ingest.read_chunk
    monkeypatch.setattr(
        ingest, "read_chunk", lambda data, begin, *rest: begins.append(begin) or whole(data, begin, *rest)
    )
    return begins


def total(run, stat="grad"):
    return run.moments(stat, [])[["step", "count", "mean", "kurtosis"]].to_numpy()


def test_a_second_opening_parses_nothing_and_a_third_only_what_was_appended(home, parsed):
    path = write_lines(home, "grad", 0, [record(step) for step in range(1, 8)])
    first = total(open_run(home))
    assert parsed == [0]
    np.testing.assert_array_equal(total(open_run(home)), first)
    assert parsed == [0]
    end = path.stat().st_size
    write_lines(home, "grad", 0, [record(8)], "a")
    assert len(total(open_run(home))) == 8
    assert parsed == [0, end]


def segments_of(cache):
    return sorted(cache.glob("moments/??/*/moments/*.parquet"))


def test_an_imported_file_is_a_run_folder_that_other_tools_read(home, cache):
    write_lines(home, "grad", 0, [record(step) for step in range(1, 8)])
    found = total(open_run(home))
    (segment,) = segments_of(cache)
    np.testing.assert_array_equal(total(open_run(segment.parents[1])), found)
    schema = pq.read_schema(segment)
    assert schema.names == stream_schema("moments").names
    source = json.loads(schema.metadata[b"megalens.source"])
    assert (source["begin"], source["end"]) == (
        0,
        (home / kind_of("grad") / "rank0.jsonl").stat().st_size,
    )


def test_what_another_program_did_to_the_cache_is_healed(home, cache, parsed):
    write_lines(home, "grad", 0, [record(1)])
    run = open_run(home)
    foreign = pa.table({"step": [1]})
    for harm in (
        lambda path: path.write_bytes(b"x"),
        lambda path: path.write_bytes(path.read_bytes()[:-50]),
        lambda path: path.unlink(),
        lambda path: pq.write_table(foreign, path),
        lambda path: pq.write_table(foreign.replace_schema_metadata({"megalens.source": "{}"}), path),
        lambda path: path.rename(path.with_name("000009-step-1.parquet")),
    ):
        (segment,) = segments_of(cache)
        harm(segment)
        assert len(total(open_run(home))) == 1
    # One that was renamed only says the same.
    assert parsed == [0] * 6
    assert len(total(run)) == 1


def test_what_a_killed_import_left_does_not_count(home, cache, monkeypatch, parsed):
    path = write_lines(home, "grad", 0, [record(1)])
    open_run(home).close()
    end = path.stat().st_size
    write_lines(home, "grad", 0, [record(2, scale=100.0)], "a")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ingest.ImportedFile, "commit", killed)
    monkeypatch.setattr(import_folder, "_LEAST_BYTES", 1)
    with pytest.raises(KeyboardInterrupt):
        open_run(home).moment_source.refresh()
    monkeypatch.undo()
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(cache))
    (left,) = cache.glob("moments/??/*/moments/*.partial")
    assert total(open_run(home))[:, 0].tolist() == [1, 2]
    assert parsed[:2] == [0, end]
    # Another process may be writing it, but for hours it is not.
    os.utime(left, (1000, 1000))
    write_lines(home, "grad", 0, [record(3)], "a")
    assert total(open_run(home))[:, 0].tolist() == [1, 2, 3]
    assert not left.exists()


def test_a_file_that_is_followed_becomes_few_segments_that_say_the_same(home, cache, monkeypatch, parsed):
    monkeypatch.setattr(import_folder, "_LEAST_BYTES", 2000)
    run = open_run(write_lines(home, "grad", 0, [record(1)]))
    path = home / kind_of("grad") / "rank0.jsonl"
    for step in range(2, 100):
        write_lines(home, "grad", 0, [record(step)], "a")
        run.moment_source.refresh()
    assert len(segments_of(cache)) < 30
    found = total(run)
    parsed.clear()
    np.testing.assert_array_equal(total(open_run(home)), found)
    # What is not sealed is read again, and is little of the file.
    assert min(parsed) > 0.8 * path.stat().st_size
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("MEGALENS_CACHE_DIR", str(home / "elsewhere"))
        np.testing.assert_array_equal(total(open_run(home)), found)
    # A file that was rewritten is noticed in the first segment, too.
    path.write_text(path.read_text().replace('"iter": 2,', '"iter": 1,'))
    os.utime(path, (5, 5))
    assert len(total(open_run(home))) == 98


def test_cancelling_keeps_what_was_read(home, monkeypatch, parsed):
    monkeypatch.setattr(ingest, "_CHUNK_BYTES", 4000)
    write_lines(home, "grad", 0, [record(step) for step in range(1, 40)])
    told = []

    def progress(done, all_bytes, what):
        told.append((done, all_bytes, what))
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_run(home, progress)
    assert told[0][0] < told[1][0] < told[1][1]
    assert told[0][2] == "reading rank0.jsonl"
    before = list(parsed)
    assert len(total(open_run(home))) == 39
    assert not set(parsed[len(before) :]) & set(before)


def test_the_least_recently_used_go_when_there_is_too_much(tmp_path, monkeypatch):
    for name in "abc":
        write_lines(tmp_path / name / "training_stats", "grad", 0, [record(1)])
        open_run(tmp_path / name)
    entries = sorted(cache_folder().glob("??/*"), key=lambda entry: (entry / "used").stat().st_mtime_ns)
    sizes = [sum(file.stat().st_size for file in entry.rglob("*") if file.is_file()) for entry in entries]
    monkeypatch.setenv("MEGALENS_CACHE_BYTES", str(sizes[2] + 10))
    trim_cache()
    # Used a moment ago: another process may be reading them.
    assert all(entry.exists() for entry in entries)
    for age, entry in zip((9000, 8000, 7000), entries, strict=True):
        os.utime(entry / "used", (os.stat(entry / "used").st_mtime - age,) * 2)
    assert trim_cache() == sizes[2]
    assert [entry.exists() for entry in entries] == [False, False, True]


@pytest.mark.slow
def test_several_processes_read_stretches_as_one_does(home, tmp_path, monkeypatch):
    """Also a record without a step, whose line's number only the whole file tells, and a line that is no JSON, which is told by its number."""
    lines = [record(step) for step in range(1, 200)]
    plain = record(0)
    del plain["iter"]
    write_lines(home, "grad", 0, [*lines, plain, "{\n", *(record(step) for step in range(202, 260))])
    alone = open_run(home)
    found, said = total(alone), alone.warnings
    assert found[:, 0].tolist() == [*range(1, 201), *range(202, 260)]
    assert said[0].startswith("rank0.jsonl, line 201: it is no JSON")
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setattr(ingest, "_ALONE_BYTES", 1000)
    monkeypatch.setattr(ingest, "_CHUNK_BYTES", 20_000)
    monkeypatch.setattr(ingest, "_processes", lambda total: 2)
    together = open_run(home)
    np.testing.assert_array_equal(total(together), found)
    assert together.warnings == said


@pytest.mark.slow
def test_processes_that_open_the_same_files_at_once_get_the_same(home):
    write_lines(home, "grad", 0, [record(step) for step in range(1, 100)])
    code = "import sys, megalens; print(megalens.open(sys.argv[1]).moments('grad', []).sum(numeric_only=True).to_json())"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(home)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = {process.communicate(timeout=100)[0] for process in running}
    assert len(said) == 1
    assert "4950" in said.pop()
