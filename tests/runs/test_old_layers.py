"""A recording of format 1, whose layers count from 1, says everywhere what one of today says."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from recorded_run import write_run

from megalens.hub.replay.replayer import RecordedOrder
from megalens.protocol import stream_schema
from megalens.runs import RunFolder, open_run
from megalens.runs.query import Query

CHANGE = {
    "patch": {
        "flags": {"MLP1_mat_mul": {"compressor": {"name": "Empty"}, "layers": "2-3"}, "InputTokens": None}
    }
}
ARMED = {
    "patch": {"flags": {}, "perturb": {"sites": {"system": {"kind": {"name": "offset"}, "layers": "1,4"}}}}
}


@pytest.fixture(params=["parquet", "arrows"])
def folders(request, tmp_path):
    """Today's recording and the same as it was written before: layers one higher, the embedding 0."""
    now = write_run(tmp_path / "now", steps=3)
    old = write_run(tmp_path / "old", steps=3)
    tensors = pq.read_table(old / "tensors.parquet")
    at = tensors.schema.get_field_index("layer")
    tensors = tensors.set_column(
        at, tensors.schema.field(at), pc.add(tensors["layer"], pa.scalar(1, pa.int32()))
    )
    audit = pq.read_table(old / "audit.parquet").to_pylist()
    audit += [{**audit[0], "detail": json.dumps(detail)} for detail in (CHANGE, ARMED)]
    for name, table in (("tensors", tensors), ("audit", pa.Table.from_pylist(audit, stream_schema("audit")))):
        if request.param == "parquet":
            pq.write_table(table, old / f"{name}.parquet")
            continue
        (old / f"{name}.parquet").unlink()
        with pa.ipc.new_stream(old / f"{name}.arrows", stream_schema(name)) as stream:
            stream.write_table(table.cast(stream_schema(name)))
    header = json.loads((old / "run.json").read_text())
    header["format"] = 1
    for info in header["flags"]:
        info["layers"] = [layer + 1 for layer in info["layers"]]
    header["config"]["flags"]["MLP1_mat_mul"]["layers"] = "1-2,4"
    (old / "run.json").write_text(json.dumps(header))
    return now, old


def tensors(run, *asked, **more):
    """Rows without the columns that may be NaN, of which none equals another."""
    found = run.tensors(*asked, **more)
    return found.select([field.name for field in found.schema if field.type != pa.float64()])


def test_rows_have_the_model_s_own_numbers(folders):
    now, old = (open_run(folder) for folder in folders)
    assert tensors(old).equals(tensors(now))
    assert set(old.tensors("InputTokens")["layer"].to_pylist()) == {-1}
    for choice in (0, [1, 3], "2-3", "all", -1, "-1"):
        assert tensors(old, layers=choice).equals(tensors(now, layers=choice)), choice
    assert old.tensors("MLP1_mat_mul", layers="0").num_rows == 3
    assert old.tensors("MLP1_mat_mul", layers=4).num_rows == 0
    lowest = Query(flag="MLP1_mat_mul", ranks=((0, (2,)),))
    assert RunFolder(folders[1]).read("tensors", lowest, ["layer"])["layer"].to_pylist() == [2, 2, 2]


def test_a_step_is_read_where_its_layers_are_not(folders):
    now, old = (RunFolder(folder) for folder in folders)
    columns = ["step", "flag", "values"]
    asked = Query(flag="MLP1_mat_mul", layers=((1, 1),))
    assert old.read("tensors", asked, columns).equals(now.read("tensors", asked, columns))


def test_flags_and_settings_name_the_same_layers(folders):
    now, old = (open_run(folder) for folder in folders)
    assert [info["layers"] for info in old.flags.values()] == [info["layers"] for info in now.flags.values()]
    assert old.flags["InputTokens"]["layers"] == [-1]
    assert old.config["MLP1_mat_mul"]["layers"] == "0-1,3"
    assert "layers" not in old.config["QKV_mat_mul"]
    said = [text for text in old.audit()["detail"].to_pylist() if "layers" in text]
    changed, armed = (json.loads(text)["patch"] for text in said)
    assert changed["flags"] == {
        "MLP1_mat_mul": {"compressor": {"name": "Empty"}, "layers": "1-2"},
        "InputTokens": None,
    }
    assert armed["perturb"]["sites"]["system"]["layers"] == "0,3"
    assert "not JSON" in old.audit()["detail"].to_pylist()


def test_a_replay_sends_the_same_layers(folders):
    now, old = (
        [
            chunk.rows.column("layer").to_pylist()
            for chunk in RecordedOrder(RunFolder(folder)).chunks()
            if chunk.stream == "tensors"
        ]
        for folder in folders
    )
    assert now
    assert [layer for chunk in now for layer in chunk] == [layer for chunk in old for layer in chunk]


def test_what_is_renamed_keeps_its_own_numbers(folders):
    # Whoever writes run.json anew writes what it held.
    _, old = folders
    header = json.loads((old / "run.json").read_text())
    assert RunFolder(old).header == header
