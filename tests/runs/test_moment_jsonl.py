"""Raw-moment JSONL of all versions: what it says."""

import math

import numpy as np
import pytest
from moment_tree import NAMES, expected, kind_of, l2, record, steps_of, values_of, write_lines

from megalens.runs import ClientError, open_all_runs, open_run


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


def test_a_loss_scale_that_is_missing_in_few_records_is_told_until_they_do_not_count(home):
    names = ["decoder.layers.0.mlp/output0"]
    known = [record(step, names, "dgrad", loss_scale=2.0) for step in (1, 2, 4)]
    write_lines(home, "dgrad", 0, [*known, record(5, names, "dgrad")])
    run = open_run(home)
    assert [line.partition(":")[0] for line in run.warnings] == ["dgrad"]
    write_lines(home, "dgrad", 0, [record(5, names, "dgrad", loss_scale=2.0)], "a")
    assert steps_of(run, "dgrad") == [1, 2, 4, 5]
    assert [line for line in run.warnings if "loss scale" in line] == []


def test_a_record_keeps_the_stage_at_which_its_gradients_were_measured(home):
    stages = ("pre_clip", "pre_step", None)
    said = [
        record(step, **({"gradient_stage": stage} if stage else {})) for step, stage in enumerate(stages, 1)
    ]
    write_lines(home, "grad", 0, said)
    run = open_run(home)
    # Writers that say nothing measure before clipping.
    assert run.moments("grad", [])["gradient_stage"].tolist() == ["pre_clip", "pre_step", "pre_clip"]


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


@pytest.mark.slow
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


def test_the_kind_is_that_of_the_folder_where_a_record_does_not_say():
    assert kind_of("dgrad") == "dgrad_raw_moments_by_layer"
