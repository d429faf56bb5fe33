"""A recorded run in the kernel: whole, cut short, broken, newer."""

import json
import math
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_run import write, write_run

from megalens.protocol import Tile, stream_schema
from megalens.runs import ClientError, Run, open_run
from megalens.runs.run_words import unknown_flag


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "runs" / "run-1")


def as_arrows(folder, stream):
    """Turn a Parquet stream into the growing form and return the ends of its messages."""
    table = pq.read_table(folder / f"{stream}.parquet").cast(stream_schema(stream))
    data, ends = bytes(stream_schema(stream).serialize()), []
    for start in range(0, table.num_rows, 5):
        data += bytes(table.slice(start, 5).combine_chunks().to_batches()[0].serialize())
        ends.append(len(data))
    (folder / f"{stream}.arrows").write_bytes(data)
    (folder / f"{stream}.parquet").unlink()
    return table, data, ends


def edit(folder, **changes):
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, **changes}))


def test_a_recorded_run_answers_like_a_live_one(folder):
    run = open_run(folder)
    assert isinstance(run, Run)
    assert (run.name, run.live, run.state, run.step) == ("gpt-demo", False, "finished", 40)
    assert run.model["hidden"] == 128
    assert run.versions["torch"] == "2.9.0"
    assert run.warnings == ["The recording lacks steps 8 to 9."]
    assert run.truncated == []
    assert run.folder == folder
    assert repr(run).splitlines()[0] == "gpt-demo · recorded · finished · step 40"
    run.close()
    run.close()


def test_a_model_whose_layers_are_not_known_is_not_said_to_have_none(folder):
    header = json.loads((folder / "run.json").read_text())
    header["model"] = {"name": "GPTPart", "layers": 0}
    (folder / "run.json").write_text(json.dumps(header))
    assert repr(open_run(folder)).splitlines()[1] == "  GPTPart · TP 1 PP 1 DP 1"


@pytest.mark.parametrize(
    ("logged", "flags", "lines"),
    [
        ({}, {}, ["  tracing: nothing"]),
        (
            {"grad": 1, "activation": 100, "param": 1},
            {},
            ["  statistics: grad, param every step; activation every 100 steps"],
        ),
        (
            {"grad": 5},
            {"MLP1_mat_mul": {"compressor": {"name": "Tile", "params": {"tiles": 96}}, "layers": "0-1"}},
            ["  tracing: MLP1_mat_mul Tile(96) layers 0-1", "  statistics: grad every 5 steps"],
        ),
    ],
)
def test_a_run_says_what_it_traces_and_logs(folder, logged, flags, lines):
    header = json.loads((folder / "run.json").read_text())
    header |= {"config": {**header["config"], "flags": flags}, "statistics": logged}
    (folder / "run.json").write_text(json.dumps(header))
    run = open_run(folder)
    assert run.logged == logged
    said = repr(run).splitlines()
    assert [line for line in said if line.startswith(("  tracing", "  statistics"))] == lines


@pytest.mark.parametrize("form", ["parquet", "arrows"])
@pytest.mark.parametrize(
    ("layer", "layers"),
    [
        (2, [2]),
        ([0, 3], [0, 3]),
        ("0-1,3", [0, 1, 3]),
        (range(2, 4), [2, 3]),
        ("all", [0, 1, 2, 3]),
        ([], []),
    ],
)
def test_tensors_of_chosen_layers_and_steps(folder, form, layer, layers):
    if form == "arrows":
        as_arrows(folder, "tensors")
    table = open_run(folder).tensors("MLP1_mat_mul", layers=layer, steps=slice(39, None), phase="train")
    assert table.schema.equals(stream_schema("tensors"))
    expected = [(step, one) for step in (39, 40) for one in layers]
    assert list(zip(table["step"].to_pylist(), table["layer"].to_pylist(), strict=True)) == expected


def test_parts_single_steps_and_ranges(folder):
    run = open_run(folder)
    assert run.tensors("QKV_mat_mul", part="k").num_rows == 1
    assert run.tensors("MLP1_mat_mul", steps=7).num_rows == 4
    assert run.tensors("MLP1_mat_mul", steps=range(7, 9)).num_rows == 8
    assert run.tensors("MLP1_mat_mul", phase="eval").num_rows == 0


def test_scalars_by_name_and_pandas(folder):
    run = open_run(folder)
    frame = run.scalars("loss", steps=range(1, 4)).to_pandas()
    assert list(frame["step"]) == [1, 2, 3]
    assert set(run.scalars(["loss", "held_out_loss"])["name"].to_pylist()) == {"loss", "held_out_loss"}
    assert run.audit().to_pylist() == pq.read_table(folder / "audit.parquet").to_pylist()
    assert run.audit()["action"].to_pylist()[:2] == ["connect", "configure"]


def test_only_the_row_groups_that_can_match_are_read(folder, tmp_path):
    path = folder / "tensors.parquet"
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=32, compression="none")
    groups = pq.ParquetFile(path).metadata
    # Spoil the values of the first group: reading them would fail or change, and the last step needs none of them.
    first = next(
        groups.row_group(0).column(c)
        for c in range(groups.num_columns)
        if groups.row_group(0).column(c).path_in_schema.startswith("values")
    )
    data = bytearray(path.read_bytes())
    start = first.dictionary_page_offset or first.data_page_offset
    data[start : start + 16] = b"\xff" * 16
    path.write_bytes(data)
    assert (
        open_run(folder).tensors(steps=40).num_rows == table.filter(pa.compute.field("step") == 40).num_rows
    )
    with pytest.raises(ClientError):
        open_run(folder).tensors(steps=1)


def test_a_stream_cut_anywhere_is_read_up_to_its_last_whole_message(folder):
    table, data, ends = as_arrows(folder, "scalars")
    edit(folder, ended=None, streams={})
    cuts = sorted({*ends[:3], ends[1] - 1, ends[1] + 1, ends[1] + 5, ends[1] + 64, ends[-1] - 8, 0, 3, 100})
    for cut in cuts:
        (folder / "scalars.arrows").write_bytes(data[:cut])
        run = open_run(folder)
        whole = sum(end <= cut for end in ends)
        rows = run.scalars()
        assert rows.num_rows == min(5 * whole, table.num_rows), cut
        assert rows.equals(table.slice(0, rows.num_rows)), cut
        assert ("scalars" in run.truncated) == (cut not in ends), cut
        assert run.state == "lost"


def test_garbage_in_the_middle_ends_the_reading_there(folder):
    _table, data, ends = as_arrows(folder, "scalars")
    spoiled = bytearray(data)
    spoiled[ends[2] : ends[2] + 24] = b"\xee" * 24
    (folder / "scalars.arrows").write_bytes(spoiled)
    run = open_run(folder)
    assert run.scalars().num_rows == 15
    assert run.truncated == ["scalars"]
    assert any("cut short" in warning for warning in run.warnings)


def test_parquet_is_preferred_to_what_packing_left_behind(folder):
    table = pq.read_table(folder / "audit.parquet")
    (folder / "audit.arrows").write_bytes(b"half")
    assert open_run(folder).audit().num_rows == table.num_rows


def test_a_newer_format_is_refused_naming_both(folder):
    edit(folder, format=3)
    with pytest.raises(
        ClientError, match="format 3; this version of Megalens reads up to format 2"
    ) as caught:
        open_run(folder)
    assert caught.value.code == "version-mismatch"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 0}', '{"format": 1, "run": {"id": "../x"}}', "[" * 9999]
)
def test_a_broken_run_json_is_unreadable(folder, text):
    (folder / "run.json").write_text(text)
    with pytest.raises(ClientError) as caught:
        open_run(folder)
    assert caught.value.code == "unreadable"


def test_a_header_that_does_not_fit_the_protocol_is_unreadable(folder):
    edit(folder, flags=[{"name": 5}])
    with pytest.raises(ClientError) as caught:
        open_run(folder)
    assert caught.value.code == "unreadable"


def test_a_folder_of_runs_opens_the_only_one_or_names_them(folder):
    assert open_run(folder.parent).id == open_run(folder).id
    shutil.copytree(folder, folder.with_name("run-2"))
    with pytest.raises(ClientError, match=r"holds 2 runs.*run-1, run-2"):
        open_run(folder.parent)


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_a_run_is_said(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ClientError, match=name) as caught:
        open_run(tmp_path / name)
    assert caught.value.code == "not-found"


def test_a_recorded_run_cannot_be_configured_nor_waited_for(folder):
    run = open_run(folder)
    with pytest.raises(ClientError) as caught:
        run.configure(HiddenStates=Tile(4))
    assert caught.value.code == "recorded"
    assert run.wait(12) == 40
    with pytest.raises(ClientError, match="step 41 will not come"):
        run.wait(41, timeout=1)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"flag": "MLP9"}, "flag"),
        ({"flag": 5}, "flag"),
        ({"layers": "1-"}, "layers"),
        ({"layers": 1.5}, "layers"),
        ({"layers": True}, "layers"),
        ({"steps": -1}, "steps"),
        ({"steps": slice(0, 9, 2)}, "steps"),
        ({"steps": [1, True]}, "steps"),
        ({"phase": "sleep"}, "phase"),
        ({"part": 3}, "part"),
    ],
)
def test_a_wrong_argument_is_named(folder, arguments, field):
    with pytest.raises(ClientError) as caught:
        open_run(folder).tensors(**arguments)
    assert (caught.value.code, caught.value.field) == ("bad-parameter", field)


def test_a_flag_that_is_none_is_answered_with_those_that_there_are_and_not_with_thousands(folder):
    with pytest.raises(ClientError, match=r"^This run has no flag 'MLP9'\. It has MLP1_mat_mul, \w.*\w\.$"):
        open_run(folder).tensors("MLP9")
    many = {f"F{place}": None for place in range(3000)}
    said = unknown_flag("x" * 9000, many)
    assert said.startswith("This run has no flag 'xxx")
    assert said.endswith(". It has " + ", ".join(list(many)[:24]) + ", and 2976 more.")
    assert len(said) < 400


@pytest.mark.parametrize("form", ["parquet", "arrows"])
def test_a_recording_from_before_a_column_was_added_still_opens(folder, form):
    path = folder / "tensors.parquet"
    later = ["compression_error", "count", "mean", "m2", "m3", "m4", "min", "max"]
    old = pq.read_table(path).drop_columns([*later, "call"])
    if form == "parquet":
        pq.write_table(old, path)
    else:
        path.unlink()
        with pa.ipc.new_stream(str(folder / "tensors.arrows"), old.schema) as file:
            file.write_table(old)
    rows = open_run(folder).tensors("MLP1_mat_mul", layers=0)
    assert rows.num_rows == 40
    for column in later:
        assert rows.column(column).null_count == 0
        assert all(math.isnan(value) for value in rows.column(column).to_pylist())
    assert set(rows.column("call").to_pylist()) == {0}
    run = open_run(folder)
    found = run.array("MLP1_mat_mul", layer=0, step=3)
    assert np.array_equal(found, run.array("MLP1_mat_mul", layer=0, step=3, call=0))
    with pytest.raises(ClientError, match="it has call 0"):
        run.array("MLP1_mat_mul", layer=0, step=3, call=1)


def test_of_more_warnings_than_a_status_has_it_is_said_where_the_others_are(folder) -> None:
    details = [json.dumps({"text": f"Warning {number}."}) for number in range(25)]
    row = {"step": 1, "time": 1.0, "who": "hub", "action": "warning"}
    write(folder, "audit", [{**row, "detail": detail} for detail in details])
    found = open_run(folder).warnings
    assert len(found) == 20
    assert found[1:19] == [f"Warning {number}." for number in range(18)]
    assert found[19] == "7 more warnings are in run.audit()."
