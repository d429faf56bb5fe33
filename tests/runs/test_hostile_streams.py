"""Recorded streams that are small on disk and large in memory, or whose bytes were changed: a typed error or an answer, within limits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_streams import BOMBS, ask_everything, mutated_stream, sealed, tail, tensors
from recorded_run import write_run

from megalens.protocol import stream_schema
from megalens.runs import ClientError, RunFolder, recorded_arrow, recorded_parquet
from megalens.runs.parquet_footer import read_footer

MOST_KIB = 512 * 1024
MOST_SECONDS = 2.0


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("template") / "run", steps=3)


def copied(template, folder):
    shutil.copytree(template, folder)
    return folder


@pytest.mark.slow
def test_small_files_take_little_memory_and_time(template, tmp_path):
    folders = []
    for bomb in BOMBS:
        folder = copied(template, tmp_path / bomb.__name__)
        (folder / "tensors.parquet").unlink()
        bomb(folder)
        folders.append(str(folder))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "hostile_streams", *folders],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests' / 'kit'}"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert [one["case"] for one in told] == [bomb.__name__ for bomb in BOMBS]
    for one in told:
        assert one["kib"] < MOST_KIB, one
        # Six questions.
        assert one["seconds"] < 6 * MOST_SECONDS, one
        assert set(one["answers"].values()) <= {"ok", "unreadable", "too-large"}, one
        if one["case"] != "moment_text_bomb":
            assert one["answers"]["tensors"] != "ok", one


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "arrows"])
@pytest.mark.parametrize("stream", ["tensors", "scalars"])
def test_streams_with_any_bytes_changed_are_read_or_refused(template, tmp_path, stream, form):
    folder = copied(template, tmp_path / "run")
    whole = (folder / f"{stream}.parquet").rename(sealed(folder, stream))
    if form == "arrows":
        table = pq.read_table(whole).cast(stream_schema(stream))
        whole.unlink()
        whole = tail(folder, stream)
        with pa.ipc.new_stream(whole, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    data = whole.read_bytes()
    codes = []
    for number in range(25):
        whole.write_bytes(mutated_stream(data, number))
        codes += ask_everything(folder).values()
    assert set(codes) <= {"ok", "unreadable", "too-large"}


def list_of(count, item):
    """Return a struct of Thrift whose second field is a list of so many structs."""
    length = (
        bytes([count << 4 | 12])
        if count < 15
        else bytes([0xFC, *(count >> at & 127 | 128 for at in (0, 7, 14)), count >> 21])
    )
    return b"\x29" + length + item * count + b"\0"


FOOTERS = {
    "at most 67,108,864 bytes": None,
    "list fewer things": list_of(600_000, b"\0"),
    "at most 512 columns": list_of(600, b"\0"),
    "nest less deeply": b"\xfc" * 20 + b"\0" * 21,
}


@pytest.mark.parametrize("why", list(FOOTERS))
def test_a_footer_is_bounded_before_it_is_read(tmp_path, why):
    path, foot = tmp_path / "x.parquet", FOOTERS[why]
    length = (64 << 20) + 1 if foot is None else len(foot)
    with open(path, "wb") as file:
        file.write(b"PAR1" + (foot or b""))
        file.truncate(4 + length)
        file.seek(0, os.SEEK_END)
        file.write(length.to_bytes(4, "little") + b"PAR1")
    with open(path, "rb") as file, pytest.raises(ValueError, match=why):
        read_footer(file)


def test_pages_and_texts_are_bounded_by_their_own_headers(template, tmp_path, monkeypatch):
    folder = copied(template, tmp_path / "run")
    table = tensors(
        300, part=pa.array([f"{at:09}" for at in range(300)]).dictionary_encode(), labels=["y" * 900]
    )
    options = {"compression": "zstd", "use_dictionary": False, "data_page_size": 64, "write_batch_size": 1}
    pq.write_table(table, folder / "tensors.parquet", **options)
    assert RunFolder(folder).read("tensors").num_rows == 300
    for module, bound, most in (
        (recorded_parquet, "_MOST_PAGES", 100),
        (recorded_arrow, "_ANY_BYTES", 10_000),
        (recorded_arrow, "_ANY_ROWS", 100),
    ):
        # What was checked of a file is kept for as long as it is the same.
        os.utime(folder / "tensors.parquet")
        with monkeypatch.context() as changed:
            changed.setattr(module, bound, most)
            changed.setattr(recorded_arrow, "_TIMES", 0)
            changed.setattr(recorded_arrow, "_ROWS_A_BYTE", 0)
            with pytest.raises(ClientError) as caught:
                RunFolder(folder).read("tensors")
        assert caught.value.code == "unreadable"


def test_a_shape_unlike_its_values_is_refused_and_each_other_one_is_read(template, tmp_path):
    folder = copied(template, tmp_path / "run")
    for shape, values in (([2, 3], 6), ([1, 0], 0), ([], 1)):
        pq.write_table(tensors(2, shape=shape, values=[0.5] * values), folder / "tensors.parquet")
        assert RunFolder(folder).read("tensors").num_rows == 2
    for shape, values in (([2, 3], 5), ([1, 0], 1), ([-1, -1], 1), ([2**31 - 1] * 3, 0)):
        pq.write_table(tensors(2, shape=shape, values=[0.5] * values), folder / "tensors.parquet")
        with pytest.raises(ClientError, match="shape must say how many values") as caught:
            RunFolder(folder).read("tensors")
        assert (caught.value.code, caught.value.field) == ("unreadable", "shape")


@pytest.mark.slow
def test_recordings_that_fold_well_are_read(template, tmp_path):
    """Zeros, long texts and many equal rows are data too."""
    folder = copied(template, tmp_path / "run")
    schema = stream_schema("scalars")
    rows = 300_000
    same = {"step": 1, "time": 0.0, "rank": 0, "name": "loss", "value": 0.0, "unit": ""}
    zeros = pa.table(
        [pa.array([same[f.name]], f.type).take(pa.array(np.zeros(rows, np.int32))) for f in schema],
        schema=schema,
    )
    pq.write_table(zeros, folder / "scalars.parquet", compression="zstd")
    assert RunFolder(folder).read("scalars").num_rows == rows
    count = 4 * 1024 * 1024
    pq.write_table(
        tensors(1, shape=[count], values=np.zeros(count, np.float32)),
        folder / "tensors.parquet",
        compression="zstd",
    )
    assert RunFolder(folder).read("tensors")["values"].nbytes >= 4 * count
    pq.write_table(tensors(3, part="x" * 100_000, labels=["y" * 100_000]), folder / "tensors.parquet")
    assert RunFolder(folder).read("tensors")["part"].to_pylist() == ["x" * 100_000] * 3
