"""Bodies that Arrow's own reader would take, and a frame may not hold."""

from pathlib import Path

import pyarrow as pa
import pytest

from megalens.protocol import ProtocolError, decode_frame, encode_frame, stream_schema

GOLDEN = Path(__file__).parents[2] / "protocol" / "fixtures" / "frames"


def frame_of(body, rows=2, stream="scalars"):
    empty = encode_frame(stream, stream_schema(stream).empty_table(), step=1)
    return empty[:32] + rows.to_bytes(4, "little") + len(body).to_bytes(4, "little") + empty[40:64] + body


def rows(**changes):
    row = {"step": 1, "time": 1.0, "rank": 0, "name": "loss", "value": 1.5, "unit": ""}
    return pa.Table.from_pylist([row, {**row, **changes}], stream_schema("scalars"))


def body_of(table, schema=None, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()


def refusal(body, **options):
    with pytest.raises(ProtocolError) as caught:
        decode_frame(frame_of(body, **options)).table()
    assert caught.value.code == "bad-frame"
    return caught.value.message


def test_a_plain_body_is_read():
    assert decode_frame(frame_of(body_of(rows()))).table().equals(rows())


def test_a_body_in_several_batches_is_read():
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, stream_schema("scalars")) as writer:
        writer.write(rows())
        writer.write(rows(step=2))
    table = decode_frame(frame_of(sink.getvalue().to_pybytes(), rows=4)).table()
    assert table.column("step").to_pylist() == [1, 1, 1, 2]


def test_metadata_of_another_writer_is_ignored():
    table = rows().replace_schema_metadata({"writer": "another"})
    read = decode_frame(frame_of(body_of(table))).table()
    assert read.schema.metadata is None
    assert read.equals(rows())


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_body_is_refused(codec):
    assert "compressed" in refusal(body_of(rows(), compression=codec))


def test_nulls_are_refused():
    assert "nulls" in refusal(body_of(rows(value=None)))


def test_nulls_inside_a_list_are_refused():
    table = decode_frame((GOLDEN / "tensors-plain.frame").read_bytes()).table()
    values = pa.array([[1.0, None]] * table.num_rows, pa.list_(pa.float32()))
    table = table.set_column(table.schema.get_field_index("values"), "values", values)
    assert "nulls" in refusal(body_of(table), rows=table.num_rows, stream="tensors")


def test_bytes_after_the_end_are_refused():
    assert "after its end" in refusal(body_of(rows()) + bytes(8))


@pytest.mark.parametrize("cut", [1, 4, 8, 100])
def test_a_body_cut_short_is_refused(cut):
    refusal(body_of(rows())[:-cut])


def test_a_dictionary_is_refused():
    table = rows()
    column = table.column("name").combine_chunks().dictionary_encode()
    refusal(body_of(table.set_column(3, "name", column)))


def test_other_columns_are_refused():
    assert "other columns" in refusal(body_of(rows().drop_columns(["unit"])))


def test_another_number_of_rows_is_refused():
    assert "number of rows" in refusal(body_of(rows()), rows=3)


def test_an_empty_body_is_refused():
    refusal(b"", rows=0)
    refusal(b"\xff\xff\xff\xff\0\0\0\0", rows=0)
