"""SQL over the streams of a run: it sees what the run's own reader sees, and nothing else."""

import json
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from recorded_moments import write_moments, write_tree
from recorded_run import RUN_ID, tensor, write, write_run

from megalens import MegalensError
from megalens.protocol import stream_schema
from megalens.runs import ClientError, RunFolder, connect, open_run


def scalars(steps, value=1.0):
    return [
        {"step": step, "time": 0.0, "rank": 0, "name": "loss", "value": value, "unit": ""} for step in steps
    ]


@pytest.fixture
def run(tmp_path):
    return open_run(write_moments(tmp_path / "run"))


def test_each_stream_is_a_table_of_its_name(run):
    assert run.sql(
        "select stat, count(*) as n, max(step) as last from moments group by stat order by stat"
    ).to_dict("list") == {"stat": ["grad", "param"], "n": [160, 160], "last": [20, 20]}
    # An empty stream is there, and a stream is read as often as it is named.
    assert run.sql(
        "select (select count(*) from alarms) as none, count(*) as n from scalars a join scalars b using (step, name)"
    ).values.tolist() == [[0, 7]]
    assert run.sql("describe scalars")["column_name"].tolist() == stream_schema("scalars").names


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("select avg(value) from scalars where step > 2 and name = 'loss'", {"name", "step", "value"}),
        ("select name from scalars where value > 1", {"name", "value"}),
        (
            "select value from scalars where name in ('loss', 'lr') and unit is not null",
            {"name", "unit", "value"},
        ),
        ("from scalars", set(stream_schema("scalars").names)),
    ],
)
def test_a_query_reads_the_columns_that_it_needs(query, read, tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", steps=2)
    write(folder, "scalars", scalars([1, 2, 3], 2.0) + scalars([4], np.nan))
    asked = []
    batches = RunFolder.batches

    def spy(self, stream, query=None, columns=None):
        if stream == "scalars":
            asked.append(set(columns))
        return batches(self, stream, query, columns)

    monkeypatch.setattr(RunFolder, "batches", spy)
    found = open_run(folder).sql(query)
    assert asked == [read]
    # A value that is no number is greater than every number, to DuckDB.
    expected = {"avg": [np.nan], "name": ["loss"] * 4, "value": [2.0, 2.0, 2.0, np.nan]}
    for column in found.columns:
        if column.partition("(")[0] in expected and len(found.columns) == 1:
            np.testing.assert_array_equal(found[column], expected[column.partition("(")[0]])


def test_values_that_are_not_finite_stay_and_lists_stay_lists(tmp_path):
    folder = write_run(tmp_path / "run", steps=2)
    values = np.array([[1, np.nan, np.inf, -np.inf]], np.float32)
    write(folder, "tensors", [tensor(1, 0, "MLP1_mat_mul", "", "NoOp()", values)])
    write(folder, "scalars", scalars([1], np.nan) + scalars([2], np.inf))
    run = open_run(folder)
    (given,) = run.sql("from tensors")["values"]
    np.testing.assert_array_equal(given, values[0])
    np.testing.assert_array_equal(run.sql("from scalars")["value"], [np.nan, np.inf])


def test_steps_that_were_trained_again_are_there_once_and_a_tail_is_read(tmp_path):
    folder = write_run(tmp_path / "run", steps=3)
    before = write_run(folder / "attempts" / "1", steps=3)
    header = json.loads((before / "run.json").read_text())
    header["run"]["id"] = f"{RUN_ID}.attempt-1"
    (before / "run.json").write_text(json.dumps({**header, "superseded_from": 3}))
    write(before, "scalars", scalars(range(1, 6), 1.0))
    write(folder, "scalars", scalars(range(3, 5), 2.0))
    table = pq.read_table(folder / "scalars.parquet", schema=stream_schema("scalars"))
    data = [bytes(each.serialize()) for each in (table.schema, *table.to_batches())]
    (folder / "scalars.arrows").write_bytes(b"".join(data) + data[1][:30])
    (folder / "scalars.parquet").unlink()
    found = open_run(folder).sql("select step, value from scalars order by step")
    assert found.values.tolist() == [[1, 1], [2, 1], [3, 2], [4, 2]]


def test_statistics_of_another_logger_are_the_table_moments(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("megalens.runs.run_rows._CHUNK_ROWS", 40)
    with open_run(write_tree(tmp_path / "big")) as run:
        found = run.sql("select stat, name, step, count, mean from moments order by stat, name, step")
        assert (len(found), found["step"].nunique(), set(found["count"])) == (160, 10, {100.0})
        mean = run.moments("grad", by="name").sort_values(["name", "step"])["mean"]
        np.testing.assert_allclose(found[found["stat"] == "grad"]["mean"], mean, rtol=1e-12)
        with pytest.raises(ClientError, match=r"Tables: moments\."):
            run.sql("from scalars")


@pytest.mark.slow
def test_a_live_run_has_the_rows_that_arrived(live):
    training = live()
    training.step(5)
    with connect() as run:
        assert run.sql("select sum(step) as total from scalars where name = 'loss'")["total"].tolist() == [15]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("selec 1", "syntax error"),
        ("from nothing", "Table with name nothing does not exist"),
        ("", "one SELECT, WITH, FROM, DESCRIBE or SUMMARIZE"),
        ("select 1; select 2", "one SELECT"),
        ("copy scalars to 'stolen.csv'", "one SELECT"),
        ("create table kept as from scalars", "one SELECT"),
        ("with a as (select 1) insert into scalars from a", "one SELECT"),
        ("set enable_external_access = true", "one SELECT"),
        ("attach 'other.db'", "one SELECT"),
        ("install httpfs", "one SELECT"),
        ("pragma version", "one SELECT"),
        ("from 'secret.csv'", "disabled by configuration"),
        ("from read_csv('secret.csv')", "disabled by configuration"),
        ("from read_text('secret.csv')", "disabled by configuration"),
        ("from read_parquet('https://example.org/a.parquet')", "disabled by configuration"),
        ("from glob('*')", "disabled by configuration"),
        ("from secret", "does not exist"),
    ],
)
def test_a_query_reads_the_run_and_nothing_else(run, query, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    secret = pq.read_table(run.folder / "scalars.parquet")
    (tmp_path / "secret.csv").write_text(f"rows\n{len(secret)}\n")
    with pytest.raises(ClientError, match=words) as refused:
        run.sql(query)
    assert (refused.value.code, refused.value.field) == ("bad-parameter", "query")
    assert "Tables: tensors, moments, scalars" in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "secret.csv"]


def test_what_is_no_text_and_a_file_that_cannot_be_read_are_said_in_our_own_words(run):
    with pytest.raises(ClientError, match=r"query=… must be text in SQL, got 5"):
        run.sql(5)
    (run.folder / "scalars.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(MegalensError, match=r"scalars\.parquet") as damaged:
        run.sql("from scalars")
    assert damaged.value.code == "unreadable"
    assert run.sql("select count(*) as n from moments")["n"].tolist() == [320]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "raise SystemExit", "run.sql('select nope from moments')"])
def test_a_script_that_asks_ends_without_a_word_of_a_library(tmp_path, end):
    write_moments(tmp_path / "run")
    script = (
        "import sys\n"
        "from megalens import open\n"
        "sys.excepthook = lambda *_: None\n"
        "run = open(sys.argv[1])\n"
        "kept = run.moments('grad', by='layer'), run.sql('select * from moments')\n"
        f"{end}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "run"], capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
