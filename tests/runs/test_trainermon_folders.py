"""Output folders of TrainerMon, written here as it writes them, and its own."""

from __future__ import annotations

import csv
import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from reading_costs import MOST_MIB, MOST_SECONDS, cost_of

import megalens
from megalens.runs import ClientError
from megalens.runs.moments import MomentQuery
from megalens.runs.moments.rows import import_folder
from megalens.runs.moments.trainermon import files, imported_folder

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "trainermon"
needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="TrainerMon's own output is not there")
HEADER = "vpp_stage,name,step,min,max,norm,zeros,nans,mean,shape,dtype\n"
VALUES = {f"layers.{layer}.mlp.weight": np.linspace(-1, 2, 12) * (layer + 1) for layer in range(3)}


def line(name, step, values, chunk=0, micro="", ops="min,max,norm,zeros,nans,mean"):
    made = {
        "min": values.min(),
        "max": values.max(),
        "norm": np.linalg.norm(values),
        "zeros": (np.abs(values) < 1e-8).mean(),
        "nans": int(np.isnan(values).sum()),
        "mean": values.mean(),
    }
    cells = ",".join(str(round(float(made[op]), 6)) for op in ops.split(","))
    return f'{chunk},{name},{step},{micro}{cells},"[3, 4]",torch.float32\n'


def write(folder, name, text, stamp="Nov21_12-20-04-rank0-82ac1f33"):
    place = folder / stamp
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)
    return place / name


def lines(step, **more):
    return "".join(line(name, step, values * (step + 1), **more) for name, values in VALUES.items())


def l2(run, by, stat="grad"):
    frame = run.moments(stat, by)
    return {tuple(row[["step", *by]]): row["l2"] for _, row in frame.iterrows()}


def test_what_the_files_say_is_what_the_explorer_has(tmp_path):
    write(tmp_path, "grad_reduced_0-1.csv", HEADER + lines(0) + lines(1))
    run = megalens.open(tmp_path)
    frame = run.moments("grad", ["name"], steps=1)
    for row, values in zip(frame.to_dict("records"), VALUES.values(), strict=True):
        values = values * 2
        assert (row["count"], row["nan_count"], row["inf_count"], row["near_zero_count"]) == (12, 0, 0, 0)
        assert row["l2"] == pytest.approx(np.linalg.norm(values), abs=1e-6)
        assert row["mean"] == pytest.approx(values.mean(), abs=1e-6)
        assert row["std"] == pytest.approx(values.std(), abs=1e-5)
        assert (row["min"], row["max"]) == pytest.approx((values.min(), values.max()), abs=1e-6)
        # What they do not say is not made up, and the rounding of six decimals is said.
        assert math.isnan(row["kurtosis"])
        assert 0 < row["variance_error"] < 1e-4
        # Clipping and a loss scale may be in them.
        assert (row["gradient_stage"], row["scaled"]) == ("pre_step", True)
    whole = np.concatenate([values * 2 for values in VALUES.values()])
    assert run.moments("grad", [], steps=1)["l2"][0] == pytest.approx(np.linalg.norm(whole), abs=1e-5)


def test_a_norm_alone_says_the_size_and_nothing_else(tmp_path):
    header = "vpp_stage,name,step,norm,shape,dtype\n"
    write(tmp_path, "param_updated_0-0.csv", header + lines(0, ops="norm"))
    run = megalens.open(tmp_path)
    whole = np.concatenate(list(VALUES.values()))
    (row,) = run.moments("param", []).to_dict("records")
    assert row["l2"] == pytest.approx(np.linalg.norm(whole), abs=1e-6)
    assert row["rms"] == pytest.approx(np.sqrt((whole**2).mean()), abs=1e-6)
    assert all(math.isnan(row[name]) for name in ("mean", "variance", "std", "min", "max", "near_zero_count"))
    # The explorer's own question, for the picture.
    table = run.moment_source.groups(MomentQuery.of("param", "l2", by=["layer"])).table
    assert table["value"].to_pylist() == pytest.approx([np.linalg.norm(v) for v in VALUES.values()], abs=1e-6)


def test_the_lines_come_as_they_are(tmp_path):
    path = write(tmp_path, "grad_reduced_0-1.csv", HEADER + lines(0) + lines(1))
    frame = megalens.open(tmp_path).readings("grad_reduced")
    assert list(frame.columns) == ["kind", "rank", *HEADER.strip().split(",")]
    expected = [list(row) for row in csv.reader(path.open())][1:]
    got = [[str(cell) for cell in row[2:]] for row in frame.itertuples(index=False)]
    assert [row[:3] for row in got] == [row[:3] for row in expected]
    assert [list(map(float, row[3:9])) for row in got] == [list(map(float, row[3:9])) for row in expected]
    assert [row[9:] for row in got] == [row[9:] for row in expected]
    with pytest.raises(ClientError, match="grad_reduced"):
        megalens.open(tmp_path).readings("nothing")


def test_micro_batches_of_activations_are_merged_and_of_gradients_the_last_counts(tmp_path):
    header = HEADER.replace("step,", "step,micro_step,", 1)
    parts = [np.linspace(0, 1, 12), np.linspace(3, 5, 12)]
    actv = "".join(line("layers.0.mlp.input_1", 0, part, micro=f"{n},") for n, part in enumerate(parts))
    write(tmp_path, "actv_0-0.csv", header + actv + '0,.input,0,0,nan,nan,nan,nan,nan,nan,nan,nan\n'
          '0,embedding.input,0,0,0.0,9.0,20.5,0.25,0,3.4,"[4, 5]",torch.int64\n')  # fmt: skip
    grad = "".join(line("layers.0.mlp.weight", 0, part, micro=f"{n},") for n, part in enumerate(parts))
    write(tmp_path, "grad_unreduced_0-0.csv", header + grad)
    run = megalens.open(tmp_path)
    (row,) = run.moments("activation", ["name"]).to_dict("records")
    both = np.concatenate(parts)
    assert (row["name"], row["count"]) == ("layers.0.mlp/input1", 24)
    assert (row["mean"], row["std"]) == pytest.approx((both.mean(), both.std()), abs=1e-5)
    (row,) = run.moments("grad_unreduced", ["name"]).to_dict("records")
    assert (row["count"], row["mean"]) == (12, pytest.approx(4.0))


def test_values_that_are_not_finite_are_told_as_far_as_they_are_known(tmp_path):
    text = (
        HEADER
        + '0,w,0,nan,nan,nan,0.0,3,nan,"[3, 4]",torch.float32\n0,v,0,-1.0,inf,inf,0.0,0,inf,"[3, 4]",torch.float32\n'
    )
    write(tmp_path, "param_updated_0-0.csv", text)
    by_name = megalens.open(tmp_path).moments("param", ["name"]).set_index("name")
    assert (by_name["nan_count"]["w"], by_name["count"]["w"]) == (3, 9)
    assert math.isnan(by_name["l2"]["w"])
    # How many are infinite the file does not say.
    assert math.isnan(by_name["inf_count"]["v"])
    assert math.isnan(by_name["l2"]["v"])


def test_several_ranks_are_one_run_and_a_restart_takes_over(tmp_path):
    text = HEADER + lines(0) + lines(1)
    write(tmp_path, "grad_reduced_0-4.csv", text)
    write(tmp_path, "grad_reduced_0-4.csv", text, "Nov21_12-20-05-rank1-6272401d")
    again = write(
        tmp_path,
        "grad_reduced_0-4.csv",
        HEADER + lines(1).replace("[3, 4]", "[12]"),
        "Nov21_13-00-00-rank1-aaaaaaaa",
    )
    os.utime(again, (2_000_000_000, 2_000_000_000))
    frame = megalens.open(tmp_path).moments("grad", ["rank"])
    assert frame[["step", "rank", "count"]].values.tolist() == [
        [0, 0, 36],
        [0, 1, 36],
        [1, 0, 36],
        [1, 1, 36],
    ]


def test_chunks_of_a_model_are_told_apart(tmp_path):
    write(tmp_path, "grad_reduced_0-0.csv", HEADER + lines(0) + lines(0, chunk=1))
    names = megalens.open(tmp_path).moments("grad", ["name"])["name"].tolist()
    assert sorted(names) == sorted([*VALUES, *(f"chunk1.{name}" for name in VALUES)])


def test_the_second_layout_is_read_too(tmp_path):
    header = "vpp_stage,step,module_name,scope,norm,mean,shape,dtype\n"
    text = (
        header + '-1,0,w,unreduced,2.0,0.5,"[4]",torch.float32\n-1,0,w,reduced,1.0,0.25,"[4]",torch.float32\n'
    )
    write(tmp_path, "weight_grad_step0-0.csv", text, "rank_3")
    run = megalens.open(tmp_path)
    assert l2(run, ["name", "rank"]) == {(0, "w", 3): pytest.approx(1.0)}
    assert l2(run, ["name"], "grad_unreduced") == {(0, "w"): pytest.approx(2.0)}
    assert run.readings("weight_grad")["scope"].tolist() == ["unreduced", "reduced"]


def test_lines_that_do_not_fit_are_told_and_end_nothing(tmp_path):
    more = "vpp_stage,name,step,norm,shape,dtype\n" + lines(1, ops="norm")
    wrong = "all_reduce,norm,0,1,2,3,4,5,6,7,8,9,10\n0,w,zero,1,1,1,1,1,1,[1],f\n\n"
    write(tmp_path, "grad_reduced_0-1.csv", HEADER + wrong + lines(0) + more)
    run = megalens.open(tmp_path)
    assert run.warnings == [
        "grad_reduced_0-1.csv: 2 lines do not fit the header and are left out, the first is line 2."
    ]
    assert {step for step, *_ in l2(run, ["name"])} == {0, 1}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        frame = run.readings("grad_reduced")
    assert len(frame) == 6
    assert frame["mean"].isna().tolist() == [False] * 3 + [True] * 3
    assert "2 lines do not fit" in str(said[0].message)
    # A file that is none of its.
    write(tmp_path, "exp_avg_0-0.csv", "a,b\n1,2\n")
    run.moment_source.refresh()
    assert "exp_avg_0-0.csv begins with no header of TrainerMon's." in run.warnings


def test_files_that_grow_are_followed(tmp_path):
    path = write(tmp_path, "grad_reduced_0-4.csv", HEADER + lines(0))
    run = megalens.open(tmp_path)
    assert {step for step, *_ in l2(run, ["name"])} == {0}
    with path.open("a") as file:
        # The last line is not whole yet.
        file.write(lines(1) + lines(2)[:-30])
    assert {step: len([1 for at, _ in l2(run, ["name"]) if at == step]) for step in (1, 2)} == {1: 3, 2: 2}
    write(tmp_path, "grad_reduced_5-9.csv", HEADER + lines(5))
    assert run.wait(step=5, timeout=10) == 5
    assert not run.moment_source.refresh()


@pytest.fixture
def parsed(monkeypatch):
    """The files that were parsed here."""
    names = []
    blocks = imported_folder.csv_blocks
    monkeypatch.setattr(
        imported_folder,
        "csv_blocks",
        lambda path, place: names.append(path.name) or blocks(path, place),
    )
    return names


def test_all_but_the_newest_files_are_read_once(tmp_path, parsed):
    for step in range(4):
        write(tmp_path, f"grad_reduced_{step}-{step}.csv", HEADER + lines(step) + "a,b\n" * (step == 1))
    first = megalens.open(tmp_path)
    found = l2(first, ["name"])
    assert len(parsed) == 4
    parsed.clear()
    again = megalens.open(tmp_path)
    assert l2(again, ["name"]) == found
    assert parsed == ["grad_reduced_3-3.csv"]
    assert again.warnings == first.warnings
    assert [sentence.partition(":")[0] for sentence in again.warnings] == ["grad_reduced_1-1.csv"]
    parsed.clear()
    # One that was read and changes has all of its folder read anew; one that goes is gone.
    write(tmp_path, "grad_reduced_1-1.csv", HEADER + lines(1) + lines(1).replace("layers.0", "layers.9"))
    assert len(l2(again, ["name"])) == len(found) + 1
    assert sorted(parsed) == [f"grad_reduced_{step}-{step}.csv" for step in range(4)]
    assert again.warnings == []
    for step in (0, 3):
        (tmp_path / "Nov21_12-20-04-rank0-82ac1f33" / f"grad_reduced_{step}-{step}.csv").unlink()
    for run in (again, megalens.open(tmp_path)):
        assert {step for step, *_ in l2(run, ["name"])} == {1, 2}


def test_files_that_come_are_sealed_in_few_segments(tmp_path, monkeypatch, parsed):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(import_folder, "_LEAST_BYTES", 1000)
    run = None
    for step in range(60):
        write(tmp_path / "run", f"param_updated_{step}-{step}.csv", HEADER + lines(step))
        run = run or megalens.open(tmp_path / "run")
        assert run.moments("param", [])["step"].tolist() == list(range(step + 1))
    # Each once: none is read again because another one came.
    assert len(parsed) == 60
    assert 1 < len(list(tmp_path.glob("cache/moments/??/*/moments/*.parquet"))) < 30


@needs_fixtures
@pytest.mark.parametrize("name", ["full", "ddp", "alert", "vpp", "mbs", "multi"])
def test_its_own_folders_are_read_line_by_line(name):
    run = megalens.open(FIXTURES / name)
    files = sorted(path for path in (FIXTURES / name).rglob("*_*-*.csv"))
    for kind in {path.name.rpartition("_")[0] for path in files}:
        frame = run.readings(kind)
        expected = []
        for path in (each for each in files if each.name.rpartition("_")[0] == kind):
            expected += list(csv.DictReader(path.open()))
        key = ["name", "step", "norm"]
        got = sorted(
            (row["name"], int(row["step"]), float(row["norm"])) for row in frame[key].to_dict("records")
        )
        wanted = sorted((row["name"], int(row["step"]), float(row["norm"])) for row in expected)
        assert str(got) == str(wanted)
    assert run.warnings == []


@needs_fixtures
def test_its_features_of_attention_kernels_and_routers_are_read():
    run = megalens.open(FIXTURES / "l2")
    frame = run.moments("attention_entropy", ["name"])
    assert set(frame["name"]) == {"core"}
    rows = [
        row
        for path in (FIXTURES / "l2").rglob("attention_hook_1-1.csv")
        for row in csv.DictReader(path.open())
    ]
    mean = np.mean([float(row["entropy"]) for row in rows])
    assert frame[frame["step"] == 1]["mean"].tolist() == pytest.approx([mean])
    ratios = [
        float(row["sr"])
        for path in (FIXTURES / "l2").rglob("linear_hook_1-1.csv")
        for row in csv.DictReader(path.open())
    ]
    frame = run.moments("stable_rank", ["name"], steps=1)
    assert sorted(frame["mean"]) == pytest.approx(sorted(ratio**2 for ratio in ratios))
    assert {"stable_rank", "kernel_norm", "router_similarity", "router_entropy"} <= {
        each["stat"] for each in run.moment_source.index()["stats"]
    }


@pytest.mark.slow
def test_a_million_lines_are_read_within_bounds(tmp_path):
    row = line("layers.{}.mlp.weight", 0, VALUES["layers.0.mlp.weight"])
    steps = 10_000
    with write(tmp_path, "grad_reduced_0-9999.csv", HEADER).open("a") as file:
        for step in range(steps):
            file.write("".join(row.format(layer).replace(",0,", f",{step},", 1) for layer in range(100)))
    run = megalens.open(tmp_path)
    frame = run.moments("grad", [])
    assert len(frame) == steps
    assert set(frame["count"]) == {1200}


def test_a_byte_of_a_header_that_is_no_text_costs_its_own_file_alone(tmp_path):
    write(tmp_path, "param_updated_0-0.csv", HEADER + lines(0))
    bad = HEADER.encode().replace(b"zeros", b"z\xffros") + lines(0).encode()
    write(tmp_path, "grad_reduced_0-1.csv", "").write_bytes(bad)
    run = megalens.open(tmp_path)
    assert len(run.moments("param", ["name"])) == 3
    assert len(run.moments("grad", ["name"])) == 3


def test_few_rows_of_a_file_with_a_cut_line_are_pythons_at_a_time(tmp_path, monkeypatch):
    held = []
    table = files._table
    monkeypatch.setattr(files, "_ROWS", 4)
    monkeypatch.setattr(files, "_table", lambda header, rows: held.append(len(rows)) or table(header, rows))
    path = write(tmp_path, "param_updated_0-0.csv", HEADER + lines(0) + "0,lay\n" + lines(1) + HEADER * 50)
    got, problems = files.read_csv_table(path)
    assert got["step"].to_pylist() == [0] * 3 + [1] * 3
    # Neither do headers that are all the same cost a table each.
    assert held == [4, 2]
    assert "1 line does not fit" in problems[0]


def test_headers_without_end_are_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_HEADERS", 3)
    other = "vpp_stage,name,step\n"
    wide = "vpp_stage,step," + ",".join(f"c{at}" for at in range(60)) + "\n"
    text = HEADER + lines(0) + other + "0,a,1\n" + wide + "0,b,2\n" + (HEADER + other) * 5 + "0,c,3\n"
    got, problems = files.read_csv_table(write(tmp_path, "param_updated_0-0.csv", text))
    # What is below the header that was read last is read.
    assert got["step"].to_pylist() == [0] * 3 + [1, 3]
    assert "7 lines do not fit the header" in problems[0]


def small_blocks(monkeypatch, size=600):
    monkeypatch.setattr(files, "_BLOCK", size)
    monkeypatch.setattr(files, "_MOST_BLOCK", 16 * size)
    monkeypatch.setattr(imported_folder, "_SEGMENT_BYTES", 1)


@pytest.mark.parametrize("more", ["", "0,lay\n", "\n\n", HEADER.replace("mean", "other"), "x" * 700 + "\n"])
def test_blocks_of_a_file_give_what_it_gives_whole(tmp_path, monkeypatch, more):
    text = HEADER + lines(0) + more + "".join(lines(step) for step in range(1, 9))
    path = write(tmp_path, "param_updated_0-8.csv", text)
    whole, problems = files.read_csv_table(path)
    small_blocks(monkeypatch)
    blocks = list(files.csv_blocks(path))
    assert len(blocks) > 3
    assert files.read_csv_table(path)[1] == problems
    assert files.read_csv_table(path)[0].to_pylist() == whole.to_pylist()
    # All lines of a step are together.
    steps = [set(table["step"].to_pylist()) for table, _ in blocks if table.num_rows]
    assert sum(map(len, steps)) == len(set().union(*steps))
    # From each place on comes what is behind it.
    for at, (_, place) in enumerate(blocks):
        rest = [row for table, _ in files.csv_blocks(path, place) for row in table.to_pylist()]
        assert rest == [row for table, _ in blocks[at + 1 :] for row in table.to_pylist()]


def test_a_large_file_that_grows_is_read_from_where_it_was_sealed(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    path = write(tmp_path, "grad_reduced_0-99.csv", HEADER + "".join(map(lines, range(9))) + "0,lay\n")
    run = megalens.open(tmp_path)
    assert {step for step, *_ in l2(run, ["name"])} == {*range(9)}
    begun = []
    blocks = imported_folder.csv_blocks
    monkeypatch.setattr(
        imported_folder, "csv_blocks", lambda path, place: begun.append(place.end) or blocks(path, place)
    )
    with path.open("a") as file:
        file.write("".join(lines(step) for step in range(9, 12)))
    # So does another process.
    for each in (run, megalens.open(tmp_path)):
        found = l2(each, ["name"])
        assert {step for step, *_ in found} == {*range(12)}
        assert len(found) == 36
        assert each.warnings == [
            "grad_reduced_0-99.csv: 1 line does not fit the header and is left out, the first is line 29."
        ]
    assert len(begun) == 2
    assert min(begun) > path.stat().st_size / 2
    # One that is another file is read anew.
    path.write_text(HEADER + "".join(lines(step) for step in range(20, 40)))
    assert {step for step, *_ in l2(run, ["name"])} == {*range(20, 40)}
    assert begun[-1] == 0
    # As is one that was cut.
    path.write_text(HEADER + lines(20))
    assert {step for step, *_ in l2(run, ["name"])} == {20}
    # And one that is gone is gone, though it was sealed.
    path.write_text(HEADER + "".join(map(lines, range(20))))
    assert len(l2(run, ["name"])) == 60
    write(tmp_path, "grad_reduced_100-199.csv", HEADER + lines(100))
    path.unlink()
    for each in (run, megalens.open(tmp_path)):
        assert {step for step, *_ in l2(each, ["name"])} == {100}


def test_steps_of_a_large_file_that_are_not_in_order_are_said(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    write(tmp_path, "param_updated_0-9.csv", HEADER + "".join(map(lines, range(9))) + lines(2))
    assert "its steps are not in order" in megalens.open(tmp_path).warnings[0]


BLOWN = {
    "headers that differ": (HEADER + "vpp_stage,name,step\n") * 15_000,
    "a cut line": HEADER + "".join(map(lines, range(30_000))) + "0,lay\n" + lines(1),
    "a line of commas": HEADER + lines(0) + "," * 46_000_000 + "\n" + lines(1),
    "a name for each line": HEADER
    + "".join(line(f"n{number}", number, VALUES["layers.0.mlp.weight"]) for number in range(20_000)) * 12,
    "many lines": HEADER + "".join(map(lines, range(2_000))) * 100,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BLOWN))
def test_a_file_of_any_size_is_read_in_bounded_memory_and_lets_others_in(tmp_path, name):
    write(tmp_path / "run", "grad_reduced_0-9999.csv", BLOWN[name])
    cost = cost_of(tmp_path / "run", tmp_path / "cache")
    assert (cost.answer, cost.mib < MOST_MIB, cost.waits < MOST_SECONDS) == ("ok", True, True), cost


STACKS = """module_name,stack_info
0:embedding,"File module.py, line 1884, in _call_impl, \n return inner() \nFile a.py, line 3, in forward, \n x = e(i) \n"
0:layers.0,"File b.py, line 9, in train, \n loss = m(x, ""y"") \n"
"""


def test_a_folder_of_call_stacks_alone_opens_and_says_so(tmp_path):
    path = write(tmp_path, "stack_info.csv", STACKS)
    for folder in (tmp_path, path.parent):
        run = megalens.open(folder)
        frame = run.readings("stack_info")
        assert [*frame.columns] == ["kind", "rank", "module_name", "stack_info"]
        assert frame["module_name"].tolist() == ["0:embedding", "0:layers.0"]
        assert frame["stack_info"][0].splitlines()[2] == "File a.py, line 3, in forward, "
        assert frame["stack_info"][1].endswith('loss = m(x, "y") \n')
        assert run.warnings == [
            "There are no statistics here, only from where modules are called: run.readings('stack_info')."
        ]
    # Beside statistics nothing is missing.
    write(tmp_path, "grad_reduced_0-0.csv", HEADER + lines(0))
    run = megalens.open(tmp_path)
    assert run.warnings == []
    assert len(run.moments("grad", ["name"])) == len(run.readings("grad")) == 3


def test_a_damaged_entry_of_call_stacks_costs_itself(tmp_path):
    write(tmp_path, "stack_info.csv", STACKS + '0:a,b,c\n0:cut,"File c.py, \n')
    with pytest.warns(UserWarning, match="2 of its entries are damaged"):
        frame = megalens.open(tmp_path).readings("stack_info")
    assert len(frame) == 2


@pytest.mark.parametrize("text", ["", "module_name\n", "a,b\n1,2\n", '"' + "x" * 200_000])
def test_call_stacks_with_no_header_are_nobodys(tmp_path, text):
    path = write(tmp_path, "stack_info.csv", text)
    table, problems = files.read_csv_table(path)
    assert table.num_rows == 0
    assert all("begins with no header" in each for each in problems)
