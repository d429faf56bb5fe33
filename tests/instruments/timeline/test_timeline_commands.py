"""``megalens timeline verdict`` and ``export`` on recorded runs."""

from __future__ import annotations

import gzip
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask_cluster import cluster  # noqa: F401
from recorded_run import write_run
from span_rows import recorded

from megalens.__main__ import main
from megalens.instruments.timeline.analysis import judge_runs
from megalens.protocol import stream_schema
from megalens.runs import ClientError
from tests.kit.simulated_jobs import Fault, Job, simulate

JOB = Job(1, 2, 2, micro_batches=2, steps=12, seed=21, faults=(Fault("device", (2,), 1.4, 1, 12),))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    return folder, recorded(folder, JOB)[1]


def test_a_verdict_is_printed_and_decides_the_exit_code(run, capsys):
    folder, _ = run
    assert main(["timeline", "verdict", str(folder)]) == 1
    assert "rank 2 computes" in capsys.readouterr().out
    assert main(["timeline", "verdict", str(folder), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [(each["kind"], each["ranks"]) for each in said["culprits"]] == [("device", [2])]
    assert main(["timeline", "verdict", str(write_run(folder.parent / "other", steps=1, layers=1))]) == 2
    assert "has no spans" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_an_exported_trace_has_every_span_on_one_clock_and_says_how_sure_it_is(run, tmp_path, name, capsys):
    folder, _ = run
    out = tmp_path / name
    assert main(["timeline", "export", str(folder), "-o", str(out)]) == 0
    data = out.read_bytes()
    trace = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    spans = [each for each in trace["traceEvents"] if each["ph"] == "X"]
    table, _ = simulate(JOB)
    assert len(spans) == len(table)
    assert f"Wrote {len(table)} spans of 4 ranks" in capsys.readouterr().out
    # Ends of a step's all-reduce, which all ranks leave within microseconds of each other.
    ends = {}
    for each in spans:
        if each["name"] == "all_reduce":
            ends.setdefault(each["args"]["sequence"], []).append(each["ts"] + each["dur"])
    assert len(ends) == JOB.steps
    assert sorted(max(each) - min(each) for each in ends.values())[JOB.steps // 2] < 100
    clocks = trace["metadata"]["megalens"]["clocks"]
    assert [each["rank"] for each in clocks] == [0, 1, 2, 3]
    assert all(0 <= each["half_width_ns"] < 50_000 for each in clocks)
    arrows = [each for each in trace["traceEvents"] if each["ph"] in "sf"]
    assert len(arrows) == 2 * sum(kind == "send" for kind in table["kind"].to_pylist())
    named = {each["args"]["name"] for each in trace["traceEvents"] if each["name"] == "process_name"}
    assert named == {"Stage 0, rank 0", "Stage 0, rank 1", "Stage 1, rank 2", "Stage 1, rank 3"}


def test_an_export_that_cannot_be_written_leaves_nothing(run, tmp_path, capsys):
    assert main(["timeline", "export", str(run[0]), "-o", str(tmp_path / "no" / "trace.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_compressed_trace_is_at_most_twice_the_recording(run, tmp_path):
    out = tmp_path / "trace.json.gz"
    main(["timeline", "export", str(run[0]), "-o", str(out)])
    assert out.stat().st_size <= 2 * (run[0] / "spans.parquet").stat().st_size


def test_a_run_is_exported_for_perfetto_with_its_alarms_where_their_steps_ended(run, tmp_path, capsys):
    folder = shutil.copytree(run[0], tmp_path / "run")
    schema = stream_schema("alarms")
    blank = {field.name: "" if pa.types.is_string(field.type) else 0 for field in schema}
    alarms = [{**blank, "step": step, "rank": 2, "rule": "slow_rank"} for step in (3, 99)]
    pq.write_table(pa.Table.from_pylist(alarms, schema), folder / "alarms.parquet")
    assert main(["export", str(folder), "--to", "perfetto", "-o", str(tmp_path / "out")]) == 0
    table, _ = simulate(JOB)
    assert f"{len(table):,} rows of spans" in capsys.readouterr().out
    events = json.loads(gzip.decompress((tmp_path / "out" / "trace.json.gz").read_bytes()))["traceEvents"]
    spans = [each for each in events if each["ph"] == "X"]
    assert len(spans) == len(table)
    (instant,) = [each for each in events if each["ph"] == "i"]
    (step,) = [each for each in spans if (each["cat"], each["pid"], each["args"]["step"]) == ("step", 2, 3)]
    assert (instant["name"], instant["pid"]) == ("slow_rank", 2)
    assert instant["ts"] == pytest.approx(step["ts"] + step["dur"], abs=0.01)
    other = write_run(tmp_path / "other", steps=1, layers=1)
    assert main(["export", str(other), "--to", "perfetto", "-o", str(tmp_path / "none")]) == 2
    assert "no rows of alarms, spans" in capsys.readouterr().err
    assert (
        main(["export", str(folder), "--to", "perfetto", "--streams", "alarms", "-o", str(tmp_path / "none")])
        == 2
    )
    assert "has no spans" in capsys.readouterr().err


@pytest.mark.slow
def test_several_runs_are_judged_on_a_cluster_as_here(run, tmp_path, cluster, capsys):  # noqa: F811
    one, _ = run
    names = [one, tmp_path / "two"]
    shutil.copytree(*names)
    here = judge_runs(names)
    assert [verdict.to_message() for verdict in here.values()] == [
        verdict.to_message() for verdict in judge_runs(names, engine=cluster).values()
    ]
    assert list(here) == [str(name) for name in names]
    write_run(tmp_path / "bare", steps=1, layers=1)
    with pytest.raises(ClientError, match="bare: The run has no spans"):
        judge_runs([*names, tmp_path / "bare"], engine=cluster)
    address = ("--engine", cluster.scheduler.address)
    assert main(["timeline", "verdict", *map(str, names), str(tmp_path / "bare"), "--json", *address]) == 2
    said = capsys.readouterr()
    assert [json.loads(line)["run"] for line in said.out.splitlines()] == [str(name) for name in names]
    assert "bare: The run has no spans" in said.err
    assert main(["timeline", "verdict", str(one), "--method", "megascan", *address]) == 2
    assert "one run at a time" in capsys.readouterr().err
