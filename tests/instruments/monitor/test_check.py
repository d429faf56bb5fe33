"""A recorded run judged again: the command and the function."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask_cluster import cluster  # noqa: F401
from judging import row
from recorded_run import write_run

import megalens
from megalens.__main__ import main
from megalens.instruments.monitor.recorded import count_alarms, judge_run, judge_runs, recorded_steps
from megalens.protocol import MOMENT_COLUMNS, ProtocolError, stream_schema

NAMES = tuple(f"layers.{at}.fc1.weight" for at in range(6))
STEPS = 60


def write(folder, spoilt=None, steps=STEPS):
    """Write a closed run with statistics of real tensors; ``spoilt`` maps (step, name) to a change of its values."""
    rng = np.random.default_rng(0)
    write_run(folder, steps=3, layers=2, nonfinite_at=None)
    rows = []
    for step in range(1, steps + 1):
        for stat in ("grad", "activation"):
            for name in NAMES:
                values = rng.standard_normal(64)
                if stat == "grad" and (step, name) in (spoilt or {}):
                    values = spoilt[step, name](values)
                known = dict(zip(MOMENT_COLUMNS, row(values), strict=True))
                base = {
                    field.name: "" if pa.types.is_string(field.type) else 0
                    for field in stream_schema("moments")
                }
                rows.append(
                    base
                    | known
                    | {"step": step, "stat": stat, "name": name, "samples": step, "loss_scale": 1.0}
                )
    pq.write_table(pa.Table.from_pylist(rows, stream_schema("moments")), folder / "moments.parquet")
    return folder


def nan(values):
    values[3] = np.nan
    return values


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return write(tmp_path_factory.mktemp("healthy") / "run")


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    spoilt = {(40, NAMES[2]): nan, (50, NAMES[4]): lambda values: values * 1e5}
    return write(tmp_path_factory.mktemp("broken") / "run", spoilt)


def test_the_exit_status_says_whether_a_run_is_healthy(healthy, broken, capsys):
    assert main(["check", str(healthy)]) == 0
    assert capsys.readouterr().out == f"{STEPS} steps, 0 alarms.\n"
    assert main(["check", str(broken)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0]
        == "step 40, rank 0: critical nonfinite, reduction, grad layers.2.fc1.weight: 1 value is NaN."
    )
    assert lines[-1] == f"{STEPS} steps, 2 alarms, and {len(lines) - 3} that followed."
    assert {line.split()[1] for line in lines[1:-1]} == {"50,"}


def test_a_file_of_rules_changes_what_is_found(broken, tmp_path, capsys):
    file = tmp_path / "rules.json"
    file.write_text(
        json.dumps({"rules": {"jump": {"on": False}}, "muted": [{"rule": "nonfinite", "name": "layers.2.*"}]})
    )
    assert main(["check", str(broken), "--rules", str(file), "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"steps": STEPS, "alarms": 0, "followed": 0}
    ]
    assert main(["check", str(broken), "--json"]) == 1
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["rule"], first["step"], first["value"], first["expected"]) == ("nonfinite", 40, 1.0, 0.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "must be a JSON file of rule settings"),
        ("[" * 100_000, "must be a JSON file of rule settings"),
        ("3", "must be an object, got 3"),
        ('{"rules": {"jump": {"threshold": 1e9}}}', "must be a number from 2 to 1000"),
        ('{"rules": {"jmp": {}}}', "There is no rule 'jmp'"),
    ],
)
def test_bad_rules_are_named(healthy, tmp_path, capsys, text, words):
    file = tmp_path / "rules.json"
    file.write_text(text)
    assert main(["check", str(healthy), "--rules", str(file)]) == 2
    assert words in capsys.readouterr().err


def test_what_is_no_run_is_named(tmp_path, healthy, capsys):
    assert main(["check", str(tmp_path / "nothing")]) == 2
    assert main(["check", str(healthy), "--rules", str(tmp_path / "nothing.json")]) == 2
    empty = tmp_path / "empty"
    write_run(empty, steps=3, layers=2, nonfinite_at=None)
    assert main(["check", str(empty)]) == 2
    assert "holds no statistics to judge" in capsys.readouterr().err


def test_steps_come_in_order_with_their_rows(broken):
    with megalens.open(broken) as run:
        steps = list(recorded_steps(run))
        assert [step.step for step in steps] == [*range(1, STEPS + 1)]
        assert {(each.stat, *each.names) for each in steps[7].readings} == {
            ("grad", *NAMES),
            ("activation", *NAMES),
        }
        frame = run.moments("grad", by="name", steps=40)
        (grads,) = (each for each in steps[39].readings if each.stat == "grad")
        assert grads.rows[:, MOMENT_COLUMNS.index("nan_count")].tolist() == frame["nan_count"].tolist()
        # The same names are one object, so that rules know them again at once.
        assert steps[3].readings[0].names is steps[4].readings[0].names


def test_alarms_of_other_thresholds_are_counted(broken):
    with megalens.open(broken) as run:
        found = count_alarms(run)
        assert (found["steps"], found["alarms"], found["rules"]["nonfinite"]) == (
            STEPS,
            sum(found["rules"].values()),
            1,
        )
        assert (found["first"].step, found["first"].name) == (40, NAMES[2])
        strict = count_alarms(
            run, {"rules": {"jump": {"threshold": 2, "gradient_factor": 1.01, "factor": 1.01}}}
        )
        assert strict["rules"]["jump"] > found["rules"]["jump"]
        with pytest.raises(ProtocolError, match="There is no rule"):
            count_alarms(run, {"rules": {"jmp": {}}})


def test_judging_can_be_cancelled_from_its_progress(broken):
    told = []

    def progress(*now):
        told.append(now)
        raise KeyboardInterrupt

    with megalens.open(broken) as run, pytest.raises(KeyboardInterrupt):
        list(judge_run(run, None, progress))
    assert told == [(0, STEPS, "Judging")]


def test_raw_moments_of_another_logger_are_judged_too(tmp_path):
    from recorded_moments import write_tree

    with megalens.open(write_tree(tmp_path)) as run:
        assert count_alarms(run)["steps"] == 10


def test_several_runs_are_judged_each_and_those_that_cannot_be_are_named_at_the_end(
    healthy, broken, tmp_path, capsys
):
    assert main(["check", str(healthy), str(broken), "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {"run": str(healthy), "steps": STEPS, "alarms": 0, "followed": 0}
    with megalens.open(broken) as run:
        alarms = [alarm for _, found in judge_run(run) for alarm in found]
    assert [row["sentence"] for row in rows[1:-1]] == [alarm.sentence for alarm in alarms]
    assert {row["run"] for row in rows[1:]} == {str(broken)}
    empty = write_run(tmp_path / "empty", steps=3, layers=2, nonfinite_at=None)
    assert main(["check", str(empty), str(healthy)]) == 2
    said = capsys.readouterr()
    assert said.out == f"{healthy}:\n{STEPS} steps, 0 alarms.\n"
    assert f"{empty}: This run holds no statistics to judge." in said.err


@pytest.mark.slow
def test_runs_are_judged_on_a_cluster_as_here(healthy, broken, cluster, capsys):  # noqa: F811
    names = [healthy, broken]
    settings = {"rules": {"jump": {"threshold": 20}}}
    assert judge_runs(names, settings, engine=cluster) == judge_runs(names, settings)
    with pytest.raises(ProtocolError, match="There is no rule 'jmp'"):
        judge_runs(names, {"rules": {"jmp": {}}}, engine=cluster)
    assert main(["check", str(healthy), str(broken), "--json"]) == 1
    here = capsys.readouterr().out
    address = cluster.scheduler.address
    assert main(["check", str(healthy), str(broken), "--json", "--engine", address]) == 1
    assert capsys.readouterr().out == here
