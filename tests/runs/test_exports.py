"""A run as files that other tools read, each read back by the tool that it is for."""

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_moments import moment_table, write_moments, write_tree
from recorded_run import RUN_ID, STARTED, tensor, write, write_run
from safetensors import safe_open
from warm import COLD

from megalens.__main__ import main
from megalens.protocol import Histogram, read_moments, stream_schema
from megalens.protocol.segments import segment_name
from megalens.runs import ClientError, open_run
from megalens.runs.exports import export_run
from megalens.runs.run_rows import all_rows


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return open_run(write_moments(tmp_path / "run"))


def scalars(*rows):
    """Rows of (step, rank, name, value), a second apart."""
    names = ("step", "rank", "name", "value", "time", "unit")
    return [dict(zip(names, (*row, STARTED + row[0], ""), strict=True)) for row in rows]


def test_parquet_has_a_file_for_each_stream_sorted_by_step(run, tmp_path):
    late = moment_table([3, 1, 2]).to_pylist() + moment_table([1, 3], names=["late"]).to_pylist()
    write(tmp_path / "run", "moments", late)
    assert run.export("parquet") == {"tensors": 13, "moments": 52, "scalars": 7, "audit": 4}
    out = tmp_path / f"{RUN_ID}-parquet"
    assert sorted(path.name for path in out.iterdir()) == [
        *("audit.parquet", "export.json", "moments.parquet", "scalars.parquet", "tensors.parquet")
    ]
    for stream in ("tensors", "scalars", "audit"):
        # Texts, since NaN does not equal itself.
        assert str(pq.read_table(out / f"{stream}.parquet").to_pylist()) == str(run.table(stream).to_pylist())
    written = pq.read_table(out / "moments.parquet")
    # Rows of one step stay in the order in which they came.
    assert written.to_pylist() == sorted(late, key=lambda row: row["step"])
    footer = pq.ParquetFile(out / "moments.parquet").metadata.row_group(0)
    assert footer.column(0).compression == "ZSTD"
    assert footer.sorting_columns == (pq.SortingColumn(0),)


def test_csv_has_lists_as_json_and_values_that_are_not_finite(tmp_path):
    folder = write_run(tmp_path / "run", steps=1)
    values = np.array([[1.5, np.nan, np.inf, -np.inf, 1e-7]], np.float32)
    none = np.zeros((1, 0), np.float32)
    rows = [tensor(1, 0, "A", "", "NoOp()", values), tensor(1, 1, "A", "", "NoOp()", none)]
    write(folder, "tensors", [{**row, "labels": ['a "b", c', "d"]} for row in rows])
    write(
        folder, "scalars", scalars(*((1, 0, "loss", value) for value in (math.nan, math.inf, -math.inf, 0.1)))
    )
    open_run(folder).export("csv", tmp_path / "out")
    with (tmp_path / "out" / "scalars.csv").open(newline="") as file:
        assert [row["value"] for row in csv.DictReader(file)] == ["nan", "inf", "-inf", "0.1"]
    with (tmp_path / "out" / "tensors.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    np.testing.assert_array_equal(np.array(json.loads(first["values"]), np.float32), values[0])
    assert (second["values"], json.loads(second["shape"])) == ("[]", [1, 0])
    assert json.loads(first["labels"]) == ['a "b", c', "d"]
    assert list(first) == stream_schema("tensors").names


def test_tensorboard_s_own_reader_finds_scalars_and_statistics(run, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(run.folder, "scalars", scalars((1, 0, "loss", 4.0), (2, 0, "loss", math.inf), (4, 0, "lr", 0.1)))
    table = moment_table([1, 2, 3])
    write(run.folder, "moments", [{**row, "rank": 0, "min": math.nan} for row in table.to_pylist()])
    assert run.export("tensorboard", "board") == {"scalars": 3, "moments": 48}
    events = accumulator.EventAccumulator("board", size_guidance={"scalars": 0}).Reload()
    assert [(e.step, e.value, e.wall_time) for e in events.Scalars("loss")] == [
        (1, 4.0, STARTED + 1),
        (2, math.inf, STARTED + 2),
    ]
    name = "decoder.layers.1.mlp.weight"
    row = table.filter((pa.compute.field("name") == name) & (pa.compute.field("stat") == "grad"))
    read = read_moments({each: row[each].to_numpy() for each in ("count", "mean", "m2", "m3", "m4")})
    for statistic in ("mean", "std", "rms", "kurtosis"):
        found = events.Scalars(f"moments/grad/{name}/{statistic}")
        assert [e.step for e in found] == [1, 2, 3]
        # A step without a scalar is of the last one before.
        assert [e.wall_time - STARTED for e in found] == [1, 2, 2]
        np.testing.assert_allclose([e.value for e in found], read[statistic], rtol=1e-6)
    # What is not known is not there.
    assert f"moments/grad/{name}/max" in events.Tags()["scalars"]
    assert f"moments/grad/{name}/min" not in events.Tags()["scalars"]


def test_tensorboard_s_own_reader_finds_the_histograms_of_tensors(run):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    drawn = np.random.default_rng(1).standard_normal((2, 500)).astype(np.float32)
    edges = np.array(Histogram(128).edges())

    def counted(values):
        bins = np.searchsorted(edges, np.abs(values), side="right") * np.sign(values)
        return np.bincount(128 + bins.astype(int), minlength=257).astype(np.float32).reshape(1, 1, 257)

    rows = [tensor(3, 0, "MLP1_mat_mul", "", str(Histogram(128)), counted(values)) for values in drawn]
    other = tensor(
        3, 1, "MLP1_mat_mul", "", "Tile(tiles=3, reduction='mean')", np.ones((1, 2, 3), np.float32)
    )
    write(run.folder, "tensors", [*rows, other])
    assert run.export("tensorboard", "board", streams="tensors") == {"tensors": 2}
    events = accumulator.EventAccumulator("board", size_guidance={"histograms": 0}).Reload()
    assert events.Tags()["histograms"] == ["tensors/MLP1_mat_mul/0"]
    (event,) = events.Histograms("tensors/MLP1_mat_mul/0")
    found = event.histogram_value
    assert (event.step, found.num) == (3, 1000)
    limits, counts = np.array(found.bucket_limit), np.array(found.bucket)
    for limit, below in zip(limits, counts.cumsum(), strict=True):
        assert abs((drawn < limit).sum() - below) <= (drawn == limit).sum()


def test_tensors_that_are_no_histograms_are_nothing_for_tensorboard(run):
    pytest.importorskip("tensorboardX")
    write(run.folder, "tensors", [tensor(1, 0, "QKV_mat_mul", "q", "NoOp()", np.ones((1, 2, 2), np.float32))])
    with pytest.raises(ClientError, match="no scalars, statistics or histograms"):
        run.export("tensorboard", "board", streams="tensors")


def test_ranks_are_named_where_there_are_several(run):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(run.folder, "scalars", scalars((1, 0, "loss", 4.0), (1, 3, "loss", 5.0)))
    run.export("tensorboard", "board", streams="scalars")
    events = accumulator.EventAccumulator("board").Reload()
    assert events.Tags()["scalars"] == ["loss/rank0", "loss/rank3"]


def test_safetensors_has_each_tensor_in_its_shape_with_what_it_is(run, tmp_path, monkeypatch):
    twice = np.full((1, 2, 2), np.inf, np.float32)
    rows = [tensor(step, 0, "QKV_mat_mul", "q", "NoOp()", twice * step) for step in (1, 1, 2)]
    rows[1]["pass"] = "backward"
    write(
        run.folder,
        "tensors",
        [*rows, tensor(2, -1, "InputTokens", "", "NoOp()", np.ones((1, 3), np.float32))],
    )
    assert run.export("safetensors", "out") == {"tensors": 4}
    with safe_open("out/tensors-00001.safetensors", "np") as file:
        said = file.metadata()
        assert sorted(file.keys()) == [
            *("1/QKV_mat_mul/q/0/0", "1/QKV_mat_mul/q/0/0#2", "2/InputTokens/-/-1/0", "2/QKV_mat_mul/q/0/0")
        ]
        np.testing.assert_array_equal(file.get_tensor("1/QKV_mat_mul/q/0/0"), twice)
        assert file.get_tensor("2/InputTokens/-/-1/0").shape == (1, 3)
    assert said["run"] == RUN_ID
    assert json.loads(said["1/QKV_mat_mul/q/0/0#2"]) == {
        "step": 1,
        "flag": "QKV_mat_mul",
        "part": "q",
        "layer": 0,
        "rank": 0,
        "compressor": "NoOp()",
        "pass": "backward",
        "phase": "train",
        "micro_batch": 0,
        "call": 0,
    }
    monkeypatch.setattr("megalens.runs.exports.formats._FILE_BYTES", 30)
    run.export("safetensors", "small")
    assert len(list(Path("small").glob("tensors-*.safetensors"))) == 2


def test_files_of_statistics_are_exported_too(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    with open_run(write_tree(tmp_path / "big")) as run:
        assert run.export("parquet", tmp_path / "out") == {"moments": 160}


def test_what_is_there_is_replaced_only_with_force_and_only_an_export(run, tmp_path):
    run.export("parquet", "out", "scalars")
    with pytest.raises(
        ClientError, match=r"out is there already\. Give another folder, or replace it with force"
    ):
        run.export("csv", "out")
    run.export("csv", "out", "scalars", force=True)
    assert sorted(os.listdir("out")) == ["export.json", "scalars.csv"]
    assert json.loads(Path("out/export.json").read_text())["rows"] == {"scalars": 7}
    Path("out/mine.txt").write_text("mine")
    for taken in ("out", run.folder, run.folder / "run.json"):
        with pytest.raises(ClientError, match="holds more than an export wrote"):
            run.export("csv", taken, force=True)
    Path("empty").mkdir()
    run.export("csv", "empty", "scalars")
    assert sorted(os.listdir(tmp_path)) == ["empty", "out", "run"]


@pytest.mark.parametrize("to", ["parquet", "csv", "tensorboard", "safetensors"])
def test_one_that_is_cancelled_leaves_nothing_and_what_was_there(run, tmp_path, to):
    told = []

    def cancel(*words):
        told.append(words)
        raise KeyboardInterrupt

    run.export("csv", "out", "scalars")
    before = Path("out/scalars.csv").read_bytes()
    for force, path in ((True, "out"), (False, "new")):
        with pytest.raises(KeyboardInterrupt):
            export_run(run._hello["run"], all_rows(run), to, path, force=force, progress=cancel)
    assert told[0][1] >= told[0][0] > 0
    assert sorted(os.listdir(tmp_path)) == ["out", "run"]
    assert Path("out/scalars.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"to": "xlsx"}, "bad-parameter", "to=… must be one of parquet, csv, tensorboard, safetensors"),
        ({"to": "csv", "streams": ["nothing"]}, "bad-parameter", "streams=… must be any of tensors, moments"),
        ({"to": "safetensors", "streams": "scalars"}, "bad-parameter", "any of tensors with safetensors"),
        ({"to": "csv", "streams": "tokens"}, "not-found", "no rows of tokens, so there is nothing to export"),
        ({"to": "csv", "path": "run/run.json/out"}, "unwritable", "cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_said(run, arguments, code, words):
    with pytest.raises(ClientError, match=words) as refused:
        run.export(**arguments)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("to", "package", "extra"),
    [("tensorboard", "tensorboardX", "tensorboard"), ("safetensors", "safetensors.numpy", "tracer")],
)
def test_a_package_that_is_missing_is_said_with_what_installs_it(
    run, tmp_path, monkeypatch, to, package, extra
):
    for name in [name for name in sys.modules if name.startswith("tensorboardX")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ClientError, match=rf"pip install 'megalens\[{extra}\]'") as refused:
        run.export(to)
    assert refused.value.code == "not-installed"
    assert os.listdir(tmp_path) == ["run"]


def test_the_command_prints_the_rows_and_says_what_it_cannot_do(run, tmp_path, capsys, monkeypatch):
    assert main(["export", "run", "--to", "parquet", "--streams", "scalars,audit"]) == 0
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()] == [
        ["7", "rows", "of", "scalars"],
        ["4", "rows", "of", "audit"],
        ["Wrote", f"{RUN_ID}-parquet"],
    ]
    assert main(["export", "run", "--to", "parquet", "--streams", "scalars"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["export", "run", "--to", "csv", "-o", f"{RUN_ID}-parquet", "--force"]) == 0
    assert main(["export", "nowhere", "--to", "csv"]) == 2
    assert "megalens export: " in capsys.readouterr().err

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("megalens.runs.moments.ProgressBar.__call__", interrupted)
    assert main(["export", "run", "--to", "csv", "-o", "cancelled"]) == 130
    assert "cancelled; nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "cancelled").exists()


# Each export in a process of its own, which forks once the libraries are imported: its peak begins with what they take.
MEASURED = """
import json, os, resource, sys
import duckdb, pandas, pyarrow.parquet, safetensors.numpy, tensorboardX.event_file_writer
from megalens.runs import open_run
import megalens.runs.exports.formats
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
folder, out, *exports = sys.argv[1:]
for export in exports:
    if os.fork() == 0:
        to, stream = export.split()
        run, before = open_run(folder), peak()
        rows = run.export(to, f"{out}/{to}", stream)[stream]
        print(json.dumps([export, rows, (peak() - before) // 1024]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A recording of 512 MiB of tensors and 400 MB of statistics in memory, in a segment for each of two ranks of the same steps."""
    folder = write_run(tmp_path_factory.mktemp("large") / "run", steps=1)
    row = tensor(1, 0, "MLP1_mat_mul", "", "NoOp()", np.zeros((1, 512, 512), np.float32))
    tensors = pa.Table.from_pylist([{**row, "step": step} for step in range(8)], stream_schema("tensors"))
    moments = moment_table(range(100), names=[f"layers.{place}.weight" for place in range(250)])
    for stream, table, groups in (("tensors", tensors, 32), ("moments", moments, 16)):
        (folder / f"{stream}.parquet").unlink(missing_ok=True)
        (folder / stream).mkdir()
        steps = len(table["step"].unique())
        for rank in (0, 1):
            path = folder / stream / segment_name(rank, 0, ".parquet")
            with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
                for at in range(groups):
                    columns = {name: table[name] for name in table.column_names}
                    columns["step"] = pa.compute.add(table["step"], at * steps)
                    columns["rank"] = pa.array([rank] * len(table), pa.int32())
                    writer.write_table(pa.table(columns, table.schema))
    return folder


@pytest.mark.slow
def test_memory_stays_bounded(large, tmp_path):
    exports = ["parquet tensors", "safetensors tensors", "csv moments"]
    command = [sys.executable, "-c", MEASURED, str(large), str(tmp_path), *exports]
    # A process of its own: what it takes is measured.
    environment = {**os.environ, COLD: "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(export, rows) for export, rows, _ in found] == list(
        zip(exports, (512, 512, 1_600_000), strict=True)
    )
    grown = [mib for *_, mib in found]
    assert max(grown[:2]) < 512, grown
    assert grown[2] < 256, grown
