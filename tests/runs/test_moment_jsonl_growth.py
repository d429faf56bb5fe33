"""Raw-moment JSONL that changes while it is read: it grows, goes back, is written by others, shrinks or is replaced."""

import json
import os

import numpy as np
import pytest
from moment_tree import NAMES, expected, l2, record, steps_of, values_of, write_lines

from megalens.runs import ClientError, open_run
from megalens.runs.moments.jsonl import ingest


@pytest.mark.slow
def test_a_file_that_grows_is_read_from_where_it_was_left(home, monkeypatch):
    path = write_lines(home, "grad", 0, [record(1)])
    run = open_run(home)
    source = run.moment_source
    read = []
    whole = ingest.read_chunk
    monkeypatch.setattr(
        ingest,
        "read_chunk",
        lambda data, begin, *rest: read.append((begin, len(data))) or whole(data, begin, *rest),
    )
    versions = {source.version}
    text = json.dumps(record(2))
    before = path.stat().st_size
    write_lines(home, "grad", 0, [text[:100]], "a")
    assert not source.refresh()
    assert steps_of(run) == [1]
    # Whole but for its end: no piece of an object is an object.
    write_lines(home, "grad", 0, [text[100:]], "a")
    assert source.refresh()
    versions.add(source.version)
    assert steps_of(run) == [1, 2]
    read.clear()
    for step in range(3, 40):
        write_lines(home, "grad", 0, ["\n", json.dumps(record(step))], "a")
        assert l2(run)[-1] == expected(step)
        versions.add(source.version)
    assert min(begin for begin, _ in read if begin) >= before + len(text)
    assert steps_of(run) == list(range(1, 40))
    assert len(versions) == 39
    write_lines(home, "param", 7, [record(50, stat="param")])
    assert l2(run, "param") == [expected(50, stat="param")]
    assert run.step == 50
    assert run.wait(50) == 50
    with pytest.raises(ClientError, match="at step 50"):
        run.wait(51, timeout=0)


def test_a_run_that_went_back_shows_what_came_after(home):
    first = [record(step, scale=5.0) for step in (10, 20, 30, 40)]
    write_lines(home, "grad", 3, [*first, *[record(step) for step in (30, 40, 50)]])
    run = open_run(home)
    assert steps_of(run, by=["name"]) == [step for step in (10, 20, 30, 40, 50) for _ in NAMES]
    assert l2(run)[2:] == [expected(30), expected(40), expected(50)]
    assert run.warnings == [
        "grad: the run went back from step 40 to 30; older rows at or after that step are superseded."
    ]
    # And again while it is open; steps between those that are logged now are stale.
    write_lines(home, "grad", 3, [record(15)], "a")
    assert steps_of(run) == [10, 15]
    assert "(the last of 2 times)" in run.warnings[0]


def test_a_restart_with_another_number_of_processes_lets_the_newer_writer_count(home):
    old = write_lines(home, "param", 3, [record(step, stat="param", scale=9.0) for step in range(1, 101)])
    new = write_lines(home, "param", 7, [record(step, stat="param") for step in range(51, 71)])
    os.utime(old, (1000, 1000))
    os.utime(new, (2000, 2000))
    run = open_run(home)
    assert steps_of(run, "param", ["name"]) == [step for step in range(1, 71) for _ in NAMES]
    assert l2(run, "param", steps=slice(51, None)) == [expected(step, stat="param") for step in range(51, 71)]
    assert run.warnings == [
        "param: rank7.jsonl was written to after rank3.jsonl and has the same tensors, so its rows count for steps 51 to 100. "
        "The job was probably restarted with another number of processes."
    ]


def test_a_stage_that_takes_over_layers_hides_them_only_from_where_it_has_them(home):
    names = [f"decoder.layers.{layer}/output0" for layer in range(4)]
    early = [record(step, names[:2], "residual") for step in range(1, 11)]
    old = write_lines(
        home, "residual", 2, [record(step, names[2:], "residual", scale=7.0) for step in range(1, 11)]
    )
    new = write_lines(
        home, "residual", 0, [*early, *(record(step, names, "residual") for step in range(6, 9))]
    )
    os.utime(old, (1000, 1000))
    os.utime(new, (2000, 2000))
    run = open_run(home)
    frame = run.moments("residual", ["layer"])
    assert frame["step"].tolist() == [step for step in range(1, 9) for _ in range(4)]
    assert frame.loc[(frame["layer"] == 3) & (frame["step"] == 5), "l2"].item() == pytest.approx(
        7 * np.linalg.norm(values_of(names[3], 5, "residual"))
    )
    assert frame.loc[(frame["layer"] == 3) & (frame["step"] == 6), "l2"].item() == pytest.approx(
        np.linalg.norm(values_of(names[3], 6, "residual"))
    )
    assert len(run.warnings) == 2


def test_writers_that_take_turns_all_count(home):
    first = write_lines(home, "grad", 3, [record(step) for step in (*range(1, 11), *range(21, 31))])
    second = write_lines(home, "grad", 7, [record(step) for step in range(11, 21)])
    os.utime(second, (1000, 1000))
    os.utime(first, (2000, 2000))
    run = open_run(home)
    assert steps_of(run) == list(range(1, 31))
    assert run.warnings == []


@pytest.mark.parametrize("how", ["shrinks", "is replaced", "is rewritten in place"])
def test_a_file_that_changes_under_our_eyes_is_read_anew(home, how):
    path = write_lines(home, "grad", 0, [record(step) for step in range(1, 6)])
    run = open_run(home)
    if how == "shrinks":
        write_lines(home, "grad", 0, [record(1)])
        steps = [1]
    elif how == "is replaced":
        other = path.with_suffix(".new")
        other.write_text("".join(json.dumps(record(step)) + "\n" for step in range(11, 21)))
        os.replace(other, path)
        steps = list(range(11, 21))
    else:
        text = path.read_text().replace('"iter": 3', '"iter": 0')
        path.write_text(text)
        os.utime(path, (5000, 5000))
        steps = [0, 4, 5]
    assert steps_of(run) == steps
    assert "rank0.jsonl was cut short or replaced while it was open, and was read anew." in run.warnings
