"""Raw-moment JSONL of all versions: what it says, what is wrong with it, and how it grows."""

import json
import math
import os
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from moment_tree import NAMES, kind_of, record, sums, values_of, write_lines

from megalens.client import ClientError, open_all_runs, open_run
from megalens.client.moments import ingest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "big run" / "tensorboard" / "training_stats"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def anyone(monkeypatch):
    """A folder that everybody may look into."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        monkeypatch.setenv("MEGALENS_CACHE_DIR", f"{folder}/cache")
        yield Path(folder)


@contextmanager
def nobody():
    """Be somebody who may not read everything, which root may."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def l2(run, stat="grad", **members):
    return run.moments(stat, [], **members)[["step", "l2"]].values.tolist()


def expected(step, names=NAMES, stat="grad"):
    return [
        step,
        pytest.approx(np.linalg.norm(np.concatenate([values_of(name, step, stat) for name in names]))),
    ]


def steps_of(run, stat="grad", by=()):
    return run.moments(stat, list(by))["step"].tolist()


def test_files_of_several_ranks_and_stats_are_one_run(home):
    for stat in ("param", "grad"):
        write_lines(home, stat, 3, [record(step, stat=stat) for step in (10, 20)])
    for rank, layers in ((0, (0, 1)), (2, (2, 3))):
        names = [f"decoder.layers.{layer}/output0" for layer in layers]
        write_lines(home, "residual", rank, [record(step, names, "residual") for step in (10, 20)])
    run = open_run(home.parent.parent.parent)
    assert (run.name, run.step, run.live, run.warnings) == ("big run", 20, False, [])
    assert l2(run) == [expected(10), expected(20)]
    frame = run.moments("residual", ["layer", "rank"], steps=20)
    assert frame[["layer", "rank"]].values.tolist() == [[0, 0], [1, 0], [2, 2], [3, 2]]
    values = values_of("decoder.layers.2/output0", 20, "residual")
    assert frame["kurtosis"][2] == pytest.approx(((values - values.mean()) ** 4).mean() / values.var() ** 2)
    assert frame["samples"].unique().tolist() == [160]
    assert run.moment_source.index()["samples"] is True
    assert run.tensors().num_rows == 0
    with pytest.raises(ClientError, match="nothing of it can be changed"):
        run.configure(HiddenStates=True)


def test_a_file_a_folder_and_a_parent_open_the_same_run(home):
    path = write_lines(home, "grad", 0, [record(1)])
    runs = [open_run(place) for place in (path, path.parent, home, home.parent, home.parent.parent)]
    assert {run.name for run in runs} == {"big run"}
    assert all(l2(run) == [expected(1)] for run in runs)


def test_every_run_below_a_folder_opens_by_its_label(tmp_path, home):
    write_lines(home, "grad", 0, [record(1)])
    write_lines(tmp_path / "b" / "training_stats", "grad", 0, [record(2)])
    write_lines(tmp_path / "c" / "tb" / "training_stats", "grad", 0, [record(3)])
    write_lines(tmp_path / "c" / "training_stats", "grad", 0, [record(4)])
    runs = open_all_runs(tmp_path)
    assert sorted(runs) == ["b", "big run", "c #1", "c #2"]
    assert steps_of(runs["b"]) == [2]
    assert {tuple(steps_of(runs[label])) for label in ("c #1", "c #2")} == {(3,), (4,)}
    with pytest.raises(ClientError, match="holds 4 runs") as caught:
        open_run(tmp_path)
    assert "open_all" in str(caught.value)


def test_gradients_of_layers_come_unscaled_where_the_scale_is_recorded_and_flagged_where_it_is_not(home):
    names = ["decoder.layers.0.mlp/output0"]
    scaled = [record(1, names, stat="dgrad", scale=128.0, gradient_stage="backward_scaled", loss_scale=128.0)]
    write_lines(home, "dgrad", 0, scaled)
    write_lines(home, "residual_dgrad", 0, [record(1, names, stat="residual_dgrad", scale=4.0)])
    run = open_run(home)
    frame = run.moments(["dgrad", "residual_dgrad"], ["name"])
    values = values_of(names[0], 1, "dgrad")
    assert frame["mean"][0] == pytest.approx(values.mean())
    assert frame["variance"][0] == pytest.approx(values.var())
    assert frame["skewness"][0] == pytest.approx(((values - values.mean()) ** 3).mean() / values.var() ** 1.5)
    assert frame["l2"][1] == pytest.approx(4 * np.linalg.norm(values_of(names[0], 1, "residual_dgrad")))
    assert frame["scaled"].tolist() == [False, True]
    assert [
        line for line in run.warnings if line.startswith("residual_dgrad: the loss scale is not recorded")
    ]
    assert not [line for line in run.warnings if line.startswith("dgrad")]
    rows = run.moment_source.rows(["dgrad", "residual_dgrad"]).to_pylist()
    assert {
        (row["gradient_stage"], row["loss_scale"])
        for row in rows
        if row["loss_scale"] > 0 and row["stat"] == "dgrad"
    } == {("backward", 128.0)}
    assert {row["gradient_stage"] for row in rows} == {"backward", "backward_scaled"}
    assert {row["rounding"] for row in rows} == {2.0**-24}


def test_old_and_odd_records_are_read_for_what_they_say(home):
    values = {
        "sum_0/старый.вес": {"sum_0": 4, "sum_1": 10, "sum_2": 30, "sum_3": 100, "sum_4": 354},
        "short": {"count": 2, "sum_1": 2.0},
        "legacy": 3.0,
        "none": {"count": 0, "sum_1": 0, "sum_2": 0, "sum_3": 0, "sum_4": 0},
        "huge": {"count": 2**60, "sum_1": 10**30, "sum_2": 1e40, "sum_3": 0, "sum_4": 0},
        "below": {"count": 4, "sum_1": 8.0, "sum_2": 15.999, "sum_3": 32, "sum_4": 64},
        "no count": {"sum_1": 1.0},
        "text": "x",
    }
    write_lines(
        home,
        "param",
        0,
        [
            {"step": 1, "values": values},
            "",
            "   \n",
            {"global_step": 3, "values": {"a": 1}},
            {"values": {"a": 2}},
        ],
    )
    run = open_run(home)
    frame = run.moments("param", ["name"]).set_index(["step", "name"])
    assert frame.loc[(1, "sum_0/старый.вес"), "kurtosis"] == pytest.approx(1.64)
    assert frame.loc[(1, "short"), "mean"] == 1
    assert frame.loc[(1, "legacy"), ["count", "mean", "l2"]].tolist() == [1, 3, 3]
    assert frame.loc[(3, "a"), "variance_error"] == 0
    assert frame.loc[(1, "none"), "count"] == 0
    assert frame.loc[(1, "none"), ["mean", "variance", "std", "l2", "rms", "kurtosis"]].isna().all()
    assert frame.loc[(1, "huge"), "count"] == 2.0**60
    assert frame.loc[(1, "below"), "variance"] == 0
    assert math.isnan(frame.loc[(1, "below"), "kurtosis"])
    assert sorted({step for step, _ in frame.index}) == [1, 3, 4]
    assert run.warnings == [
        "rank0.jsonl, line 1: 'no count' and 1 more have no numbers count and sum_1 to sum_4, and are left out."
    ]


def test_values_that_are_not_finite_stay_and_are_counted_as_not_known(home):
    lines = [record(1), record(2)]
    lines[1]["values"][NAMES[0]] |= {
        "sum_1": math.nan,
        "sum_2": math.nan,
        "sum_3": math.nan,
        "sum_4": math.nan,
    }
    lines[1]["values"][NAMES[1]] |= {"sum_4": math.inf}
    lines[1]["values"][NAMES[2]] |= {"sum_1": -math.inf, "sum_2": math.inf}
    write_lines(home, "grad", 0, lines)
    run = open_run(home)
    by_name = run.moments("grad", ["name"], steps=2).set_index("name")
    assert by_name.loc[NAMES[0], ["mean", "nan_count", "inf_count"]].isna().all()
    assert math.isinf(by_name.loc[NAMES[1], "kurtosis"])
    assert math.isfinite(by_name.loc[NAMES[1], "skewness"])
    assert by_name.loc[NAMES[1], "nan_count"] == 0
    assert by_name.loc[NAMES[2], ["mean", "l2"]].tolist() == [-math.inf, math.inf]
    total = run.moments("grad", [])
    assert math.isfinite(total["l2"][0])
    assert math.isnan(total["l2"][1])


def test_a_malformed_line_is_left_out_and_told_with_file_and_line(home):
    lines = [
        record(1),
        '{"iter": 2, "values": {"a": \n',
        record(3),
        "[1, 2]\n",
        '{"iter": 4, "stat": "weights", "values": {"a": 1}}\n',
    ]
    write_lines(home, "grad", 5, [*lines, {"iter": 6}, record(7)])
    run = open_run(home)
    assert steps_of(run) == [1, 3, 4, 7]
    said = [re.sub(r"\(.*\)", "(…)", line) for line in run.warnings]
    assert said == [
        "rank5.jsonl, line 2: it is no JSON (…).",
        "rank5.jsonl, line 4: it is no JSON object.",
        "rank5.jsonl, line 6: it has no object 'values'.",
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
    assert l2(run, "param", steps=(51, None)) == [expected(step, stat="param") for step in range(51, 71)]
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
    assert any("grad_raw_moments_by_param cannot be looked into" in each for each in runs["a"].warnings)
    assert runs["b"].warnings == []
    closed[1].chmod(0o755)
    (anyone / "b").chmod(0)
    with nobody(), pytest.warns(UserWarning, match=r"/b cannot .* Nor can 1 more folders\."):
        assert open_run(anyone).name == "a"
    for folder in (*closed, anyone / "b"):
        folder.chmod(0o755)


def test_names_with_any_characters_and_ten_thousand_layers(home):
    odd = ["a/b.c", "имя.слоя", 'it\'s "quoted"', "x" * 3000, "layers.3.[*?]", ""]
    many = [f"decoder.layers.{layer}.mlp.weight" for layer in range(10_000)]
    write_lines(home, "grad", 0, [record(1, odd), {"iter": 2, "values": dict.fromkeys(many, 2.0)}])
    run = open_run(home)
    assert run.moments("grad", ["name"], steps=1)["name"].tolist() == sorted(
        odd, key=lambda name: (name != "", name)
    ) or set(run.moments("grad", ["name"], steps=1)["name"]) == set(odd)
    frame = run.moments("grad", ["layer"], steps=2)
    assert frame["layer"].tolist() == list(range(10_000))
    assert run.moments("grad", [], where={"layer": "9990-9999"}, steps=2)["count"].tolist() == [10]


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


def test_the_kind_is_that_of_the_folder_where_a_record_does_not_say():
    assert kind_of("dgrad") == "dgrad_raw_moments_by_layer"
