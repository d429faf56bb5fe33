"""Rows of moments as they are, and the same from a recording that grows and is packed."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grouped_moments import model, row, source

from megalens.protocol import stream_schema
from megalens.runs import ClientError
from megalens.runs.moments import MomentQuery, MomentSource, RecordedRows


def test_rows_come_by_step_with_places_of_names_and_are_refused_when_too_many():
    moments = source([*model(3), row("w", 2, "grad")])
    index = moments.index()
    assert index["stats"] == [
        {"stat": "grad", "rows": 1, "first": 2, "last": 2, "steps": 1},
        {"stat": "activation", "rows": 36, "first": 1, "last": 3, "steps": 3},
    ]
    rows = moments.rows(["activation", "grad"], {"layer": 10}, (2, None))
    assert rows["step"].to_pylist() == [2] * 4 + [3] * 4
    assert {index["names"][place] for place in rows["name_id"].to_pylist()} == {
        entry["name"] for entry in model(1) if ".10." in entry["name"]
    }
    assert rows.schema.names == [
        "name_id" if name == "name" else name for name in stream_schema("moments").names
    ]
    with pytest.raises(ClientError, match="36 rows match, and at most 35") as caught:
        moments.rows(["activation"], limit=35)
    assert caught.value.code == "too-large"


def test_too_many_rows_of_everything_are_refused_without_reading_them(tmp_path):
    pq.write_table(pa.Table.from_pylist(model(6), stream_schema("moments")), tmp_path / "moments.parquet")
    moments = MomentSource(RecordedRows(tmp_path))
    moments.refresh()
    (found,) = moments.index()["stats"]
    (tmp_path / "moments.parquet").unlink()
    with pytest.raises(ClientError, match=f"{found['rows']} rows match, and at most 5") as caught:
        moments.rows(["activation"], limit=5)
    assert caught.value.code == "too-large"
    # What a filter leaves has to be counted, and there is nothing to count in.
    with pytest.raises(ClientError) as caught:
        moments.rows(["activation"], {"layer": 10}, limit=5)
    assert caught.value.code != "too-large"


def test_a_recording_answers_the_same_growing_and_packed(tmp_path):
    tmp_path = tmp_path / "it's [a] *run?"
    tmp_path.mkdir()
    rows = model(6)
    schema = stream_schema("moments")
    tables = [
        pa.Table.from_pylist([r for r in rows if r["step"] == step], schema=schema) for step in range(1, 7)
    ]
    file = (tmp_path / "moments.arrows").open("wb")
    writer = pa.ipc.new_stream(file, schema)
    moments = MomentSource(RecordedRows(tmp_path))
    file.flush()
    assert not moments.refresh()
    seen = {moments.version}
    for step, table in enumerate(tables, 1):
        writer.write_table(table)
        file.flush()
        assert moments.refresh()
        assert moments.index()["stats"][0]["last"] == step
        seen.add(moments.version)
    assert len(seen) == 7
    assert not moments.refresh()
    names = moments.index()["names"]
    query = MomentQuery.of("activation", by=["layer", "role"])
    growing = moments.groups(query).table
    whole = (tmp_path / "moments.arrows").read_bytes()
    file.close()
    pq.write_table(pa.concat_tables(tables), tmp_path / "moments.parquet")
    assert moments.refresh()
    assert moments.index()["names"] == names
    assert moments.groups(query).table.equals(growing)
    (tmp_path / "moments.parquet").unlink()
    (tmp_path / "moments.arrows").write_bytes(whole[:-40])
    cut = MomentSource(RecordedRows(tmp_path))
    cut.refresh()
    assert cut.index()["stats"][0]["last"] == 5
    assert "ends within a message" in cut.warnings[0]
    moments.close()
    with pytest.raises(ClientError, match="closed"):
        moments.groups(query)
