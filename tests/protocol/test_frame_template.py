"""A frame made from a template is the one that encoding the same rows gives."""

import math

import numpy as np
import pyarrow as pa
import pytest
from fuzzing import golden_frames

from megalens.protocol import (
    MOMENT_COLUMNS,
    FrameChecker,
    FrameTemplate,
    ProtocolError,
    decode_frame,
    encode_frame,
    stream_schema,
)


@pytest.fixture(params=["moments", "tensors", "scalars"])
def rows(request) -> tuple[str, pa.RecordBatch]:
    frames = [decode_frame(data) for data in golden_frames()]
    tables = [frame.table() for frame in frames if frame.stream == request.param and frame.rows]
    return request.param, pa.concat_tables(tables).combine_chunks().to_batches()[0]


def test_numbers_that_are_written_are_in_the_next_frame_and_nothing_else_changes(rows) -> None:
    stream, batch = rows
    template = FrameTemplate(stream, batch)
    assert template.rows == batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for seq, (figure, step) in enumerate(((1, -1), (-7, 0), (123, 123)), 1):
        for name, numbers in template.numbers.items():
            numbers[:] = np.arange(batch.num_rows) * figure
            columns[name] = pa.array(np.arange(batch.num_rows) * figure).cast(batch.schema.field(name).type)
        expected = pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
        data = template.frame(step=step, seq=seq)
        time_us = decode_frame(data).time_us
        assert data == encode_frame(stream, expected, step=step, seq=seq, time_us=time_us)
    plain = [
        field.name
        for field in stream_schema(stream)
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    ]
    assert list(template.numbers) == plain


def test_neighbouring_columns_can_be_written_together() -> None:
    row = dict.fromkeys(stream_schema("moments").names, 0) | {"stat": "param", "gradient_stage": ""}
    batch = pa.RecordBatch.from_pylist([row | {"name": name} for name in "abcde"], stream_schema("moments"))
    template = FrameTemplate("moments", batch)
    template.block(MOMENT_COLUMNS)[:] = np.arange(5.0 * len(MOMENT_COLUMNS)).reshape(-1, 5)
    table = decode_frame(template.frame(step=1, seq=1)).table()
    assert [table[name].to_pylist() for name in MOMENT_COLUMNS] == np.arange(
        5.0 * len(MOMENT_COLUMNS)
    ).reshape(-1, 5).tolist()
    for other in ("step", "samples", "rounding", "loss_scale"):
        assert not any(table[other].to_pylist())
    for apart in (("count", "mean", "m3"), ("stage", "count")):
        with pytest.raises(ValueError, match="neighbouring columns of one type"):
            template.block(apart)


def test_a_frame_that_was_taken_stays_as_it_is(rows) -> None:
    template = FrameTemplate(*rows)
    data = template.frame(step=1, seq=1)
    before = bytes(data)
    for numbers in template.numbers.values():
        numbers[:] = 9
    assert data == before != template.frame(step=1, seq=1)


def test_any_number_passes_the_check(rows) -> None:
    template = FrameTemplate(*rows)
    checker = FrameChecker()
    for value in (math.nan, math.inf, -0.0, 1e308):
        for numbers in template.numbers.values():
            if numbers.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    numbers[:] = value
        data = template.frame(step=1, seq=1)
        body = checker.check(decode_frame(data), data)
        for name, numbers in template.numbers.items():
            assert np.array_equal(body.numbers(name), numbers, equal_nan=numbers.dtype.kind == "f")


def test_rows_of_another_stream_and_no_rows_are_refused(rows) -> None:
    stream, batch = rows
    with pytest.raises(ProtocolError, match="do not fit"):
        FrameTemplate("scalars" if stream != "scalars" else "tensors", batch)
    with pytest.raises(ValueError, match="at least one row"):
        FrameTemplate(stream, batch.slice(0, 0))
