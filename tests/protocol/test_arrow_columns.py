"""Columns made without pandas are those that pyarrow makes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalens.protocol.arrow_columns import arrow_batch, arrow_column

WHOLE = st.integers(-(2**31), 2**31 - 1)
FLOAT = st.floats(width=32)
# Of one to four bytes, with an end of a text of C; all of Unicode takes seconds to draw from at first.
TEXT = st.text("a\0 é漢🙂", max_size=12)
KINDS = {
    pa.int32(): WHOLE,
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): FLOAT,
    pa.float64(): st.floats(),
    pa.utf8(): TEXT,
    pa.list_(pa.int32()): st.lists(WHOLE),
    pa.list_(pa.float32()): st.lists(FLOAT),
    pa.list_(pa.utf8()): st.lists(TEXT),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_every_kind_of_column_is_as_pyarrow_makes_it(kind, data):
    values = data.draw(st.lists(KINDS[kind], max_size=16))
    made = arrow_column(values, kind)
    made.validate(full=True)
    # Bytes tell values apart that are no numbers.
    assert made.cast(kind).to_pylist().__repr__() == pa.array(values, kind).to_pylist().__repr__()
    assert (made.type, made.null_count) == (kind, 0)


@pytest.mark.parametrize("dtype", ["<i4", "<i8", "<f4", "<f8"])
def test_numpys_numbers_are_not_copied(dtype):
    numbers = np.arange(8, dtype=dtype)
    made = arrow_column(numbers)
    assert made.equals(pa.array(numbers))
    assert made.buffers()[1].address == numbers.ctypes.data


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None], pa.int64()),
        ([None, "a"], pa.utf8()),
        ([[1.0], None], pa.list_(pa.float32())),
        ([True, False], pa.int64()),
        (np.array([1, 2], "u1"), pa.int64()),
        (["2026-11-24"], pa.string()),
        ([1, 2], pa.int8()),
    ],
)
def test_what_is_unusual_is_left_to_pyarrow(values, kind):
    try:
        expected = pa.array(values, kind)
    except (pa.ArrowInvalid, TypeError) as error:
        with pytest.raises(type(error)):
            arrow_column(values, kind)
    else:
        assert arrow_column(values, kind).equals(expected)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**31], pa.int32()),
        ([2**63], pa.int64()),
        (["x"], pa.int64()),
        ([3], pa.utf8()),
    ],
)
def test_what_does_not_fit_raises_as_pyarrow_does(values, kind):
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)) as expected:
        pa.array(values, kind)
    with pytest.raises(type(expected.value)):
        arrow_column(values, kind)


def test_a_batch_needs_every_column_in_one_length():
    schema = pa.schema([("step", pa.int64()), ("name", pa.utf8())])
    assert arrow_batch({"name": ["a"], "step": [1]}, schema).to_pylist() == [{"step": 1, "name": "a"}]
    for wrong in ({"step": [1]}, {"step": [1, 2], "name": ["a"]}, {"step": 5, "name": ["a"]}):
        with pytest.raises((KeyError, pa.ArrowInvalid, TypeError, ValueError)):
            arrow_batch(wrong, schema)
