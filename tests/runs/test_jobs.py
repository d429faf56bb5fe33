"""A job of many recordings opened as one run: ranks, nodes and restarts, and what is missing of them."""

import json
import shutil
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from recorded_moments import moment_table
from recorded_run import write_run

import megalens
from megalens.runs import ClientError, open_run, recorded_parquet, recorded_streams
from megalens.runs.storage import cache_file

WORLD = {"world_size": 4, "tp": 1, "pp": 1, "dp": 4}


def record(
    folder, *, rank=0, steps=range(1, 11), name="job", started=1000.0, loss=1.0, state="finished", **header
):
    """Write the recording of one rank with a loss of ``loss`` + step, and statistics whose mean is the step."""
    steps = list(steps)
    write_run(folder, steps=1, layers=1, nonfinite_at=None)
    for stream in ("scalars", "tensors"):
        table = pq.read_table(folder / f"{stream}.parquet")
        rows = table.take([0] * len(steps))
        columns = {"step": steps, "rank": [rank] * len(steps)}
        if stream == "scalars":
            columns |= {"name": ["loss"] * len(steps), "value": [loss + step for step in steps]}
            columns["time"] = [started + step for step in steps]
        for column, values in columns.items():
            at = rows.schema.get_field_index(column)
            rows = rows.set_column(
                at, rows.schema.field(at), pc.cast(np.array(values), rows.schema.field(at).type)
            )
        pq.write_table(rows, folder / f"{stream}.parquet")
    pq.write_table(moment_table(steps, stats=("grad",), rank=rank), folder / "moments.parquet")
    about = json.loads((folder / "run.json").read_text())
    del about["missing_steps"]
    about["run"] = {"id": folder.name, "name": name, "started": started}
    about["streams"] = {"scalars": {"first_step": steps[0], "last_step": steps[-1], "rows": len(steps)}}
    about |= {"ended": started + 100, "state": state, **header}
    (folder / "run.json").write_text(json.dumps(about))
    return folder


def losses(run, rank=None):
    rows = run.scalars("loss").to_pylist()
    return {row["step"]: row["value"] for row in rows if rank in (None, row["rank"])}


def test_a_folder_of_ranks_opens_as_one_run_with_the_rank_as_a_column(tmp_path):
    for rank in range(3):
        record(tmp_path / f"job-{rank}", rank=rank, loss=100.0 * rank, layout=WORLD)
    with megalens.open(tmp_path) as run:
        table = run.scalars("loss")
        assert sorted(set(table["rank"].to_pylist())) == [0, 1, 2]
        assert losses(run, 2) == {step: 200.0 + step for step in range(1, 11)}
        assert run.tensors(rank=1).num_rows == 10
        assert run.ranks["rank"].tolist() == [0, 1, 2]
        assert (
            list(run.sql("select rank, count(*) n from scalars group by rank order by rank")["n"]) == [10] * 3
        )
        assert any("1 of 4 ranks have no rows: 3." in text for text in run.warnings)
        # Answers to views are of all ranks, too.
        assert [entry["ranks"] for entry in _index(run)] == [[0, 1, 2]]


def test_statistics_of_a_job_are_those_of_all_values_together(tmp_path):
    for rank in range(3):
        record(tmp_path / f"job-{rank}", rank=rank)
    with open_run(tmp_path) as run, open_run(tmp_path / "job-0") as one:
        whole, part = run.moments("grad", by=[]), one.moments("grad", by=[])
        assert (whole["count"] == 3 * part["count"]).all()
        np.testing.assert_allclose(whole["variance"], part["variance"], rtol=1e-12)
        ranks = run.moments("grad", by="rank", where={"rank": "1-2"})
        assert sorted(set(ranks["rank"])) == [1, 2]
        assert (ranks["count"] == part["count"].iloc[0]).all()


def test_processes_that_all_say_rank_0_are_numbered_by_their_names(tmp_path):
    for place in (0, 2, 10):
        record(tmp_path / f"node-{place}", name=f"job-node-{place}", loss=100.0 * place)
    with open_run(tmp_path) as run:
        assert [losses(run, rank)[1] for rank in range(3)] == [1.0, 201.0, 1001.0]
        assert run.tensors(rank=2).num_rows == 10
        assert sorted(set(run.moments("grad", by="rank")["rank"])) == [0, 1, 2]
        assert sorted(set(run.moments("grad", by="rank", where={"rank": 2})["rank"])) == [2]
        assert any("numbered through" in text for text in run.warnings)


def test_of_a_step_that_was_trained_again_the_later_attempt_counts_and_the_seam_is_an_event(tmp_path):
    record(tmp_path / "a", steps=range(1, 9), loss=0.0, state="lost")
    record(tmp_path / "b", steps=range(6, 13), loss=50.0, started=2000.0)
    with open_run(tmp_path) as run:
        assert losses(run) == {
            **{step: step for step in range(1, 6)},
            **{step: 50 + step for step in range(6, 13)},
        }
        assert run.scalars("loss", steps="4-7")["value"].to_pylist() == [4.0, 5.0, 56.0, 57.0]
        # No step counts twice.
        totals = run.moments("grad", by=[])
        assert totals["step"].tolist() == list(range(1, 13))
        assert totals["count"].nunique() == 1
        (seam,) = [row for row in run.audit().to_pylist() if row["action"] == "restart"]
        assert (seam["step"], seam["time"]) == (6, 2000.0)
        assert json.loads(seam["detail"])["before"] == "a"
        assert [attempt.id for attempt in run.attempts] == ["a"]
        assert any("Steps from 6 on were trained again" in text for text in run.warnings)
        assert run.recordings["until"].tolist()[0] == 6


def test_what_a_job_lacks_is_said(tmp_path):
    record(tmp_path / "a", rank=0, steps=range(1, 5), state="lost")
    record(tmp_path / "b", rank=0, steps=range(8, 13), started=2000.0)
    record(tmp_path / "c", rank=1, steps=range(1, 7), ended=2100.0)
    with open_run(str(tmp_path / "[abc]")) as run:
        assert any("Steps 5 to 7 of rank 0 are in no recording" in text for text in run.warnings)
        assert any(
            "goes to step 12; recordings that end before: rank 1 at step 6" in text for text in run.warnings
        )
        assert run.status["recording"]["missing_steps"] == [[5, 7]]


def test_nearly_a_million_ranks_without_rows_are_said_as_ranges(tmp_path):
    layout = {**WORLD, "world_size": 1_048_576, "dp": 1_048_576}
    for rank in (0, 7):
        record(tmp_path / f"job-{rank}", rank=rank, layout=layout)
    with open_run(tmp_path / "job-*") as run:
        said = "1,048,574 of 1,048,576 ranks have no rows: 1-6,8-1048575"
        assert any(said in text for text in run.warnings)


def test_a_script_that_was_run_twice_is_two_runs_unless_somebody_says_otherwise(tmp_path):
    record(tmp_path / "a")
    record(tmp_path / "b", started=2000.0)
    with pytest.raises(ClientError, match="holds 2 runs"):
        open_run(tmp_path)
    with open_run(f"{tmp_path}/*") as run:
        assert len(run.recordings) == 2
    shutil.rmtree(tmp_path / "b")
    record(tmp_path / "copy-of-a")
    with pytest.raises(ClientError, match="holds 2 runs"):
        open_run(tmp_path)


def test_a_pattern_that_nothing_matches_says_so(tmp_path):
    with pytest.raises(ClientError, match="No run folder matches"):
        open_run(tmp_path / "job-*")


def test_a_recording_that_cannot_be_read_is_no_part_that_is_left_out(tmp_path):
    for rank in range(2):
        record(tmp_path / f"job-{rank}", rank=rank)
    (tmp_path / "job-1" / "run.json").write_text("{")
    with pytest.raises(ClientError, match=r"run\.json"):
        open_run(tmp_path)


def test_a_job_is_exported_and_compared_as_one_run(tmp_path):
    for rank in range(2):
        record(tmp_path / "runs" / f"job-{rank}", rank=rank)
    with open_run(tmp_path / "runs") as run:
        assert run.export("csv", tmp_path / "out", streams="scalars") == {"scalars": 20}
        shutil.rmtree(tmp_path / "out")


def _index(run):
    from megalens.runs.answers import tensor_index
    from megalens.runs.run_rows import rows_of

    return tensor_index(rows_of(run), threading.Event())


@pytest.fixture
def looks(monkeypatch):
    """The Parquet files that are opened, as recordings and streams."""
    own, names = recorded_streams.opened_parquet, []

    def opened(path, *more):
        names.append(f"{path.parent.name}/{path.stem}")
        return own(path, *more)

    monkeypatch.setattr(recorded_streams, "opened_parquet", opened)
    return names


def test_what_a_job_knows_of_its_recordings_is_kept_until_a_file_of_one_changes(tmp_path, looks):
    for rank in range(3):
        record(tmp_path / f"job-{rank}", rank=rank, ended=None if rank == 1 else 1100.0)
    before = open_run(tmp_path / "job-*").recordings
    assert {name.partition("/")[0] for name in looks} == {"job-0", "job-1", "job-2"}
    looks.clear()
    pd.testing.assert_frame_equal(open_run(tmp_path / "job-*").recordings, before)
    # One that nobody closed may have grown.
    assert {name.partition("/")[0] for name in looks} == {"job-1"}
    looks.clear()
    record(tmp_path / "other", rank=7, started=1000.0)
    for stream in ("scalars", "tensors", "moments"):
        (tmp_path / "other" / f"{stream}.parquet").rename(tmp_path / "job-2" / f"{stream}.parquet")
    assert open_run(tmp_path / "job-*").recordings["ranks"].tolist() == ["0", "1", "7"]
    assert {name.partition("/")[0] for name in looks} == {"job-1", "job-2"}


@pytest.mark.parametrize("text", [b"", b"{", b'{"format": 1, "runs": {"a": 1}}', b'{"format": 9}', b"[]"])
def test_a_job_opens_without_an_index_or_with_a_damaged_one(text, tmp_path, looks):
    for rank in range(2):
        record(tmp_path / f"job-{rank}", rank=rank)
    before = open_run(tmp_path / "job-*").recordings
    cache_file("jobs", tmp_path).write_bytes(text)
    looks.clear()
    pd.testing.assert_frame_equal(open_run(tmp_path / "job-*").recordings, before)
    assert {name.partition("/")[0] for name in looks} == {"job-0", "job-1"}


def test_the_ranks_of_closed_recordings_are_known_from_footers_and_no_row_is_read(tmp_path, monkeypatch):
    for rank in range(2):
        record(tmp_path / f"job-{rank}", rank=rank)
    monkeypatch.setattr(recorded_parquet.ParquetStream, "batches", lambda *_: pytest.fail("rows were read"))
    assert open_run(tmp_path / "job-*").recordings["ranks"].tolist() == ["0", "1"]


def test_ranks_that_share_a_recording_are_read_from_its_rows(tmp_path):
    for rank in range(2):
        record(tmp_path / f"job-{rank}", rank=rank)
    path = tmp_path / "job-1" / "scalars.parquet"
    rows = pq.read_table(path)
    at = rows.schema.get_field_index("rank")
    ranks = pa.array([2 + row % 3 for row in range(rows.num_rows)], rows.schema.field(at).type)
    pq.write_table(rows.set_column(at, rows.schema.field(at), ranks), path)
    assert open_run(tmp_path / "job-*").recordings["ranks"].tolist() == ["0", "1-4"]
