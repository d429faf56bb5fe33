"""Attention that is answered coarser than it was kept."""

import math

import numpy as np
import pyarrow as pa
import pytest
from recorded_run import tensor

from megalens.protocol import Peaks, stream_schema
from megalens.runs.answers.coarser_peaks import coarser_rows, coarser_shape


def kept(whole, cells):
    """Return what ``Peaks`` keeps of [samples, heads, queries, keys]."""
    down, across = (Peaks(cells).side(length) for length in whole.shape[2:])
    rows = [whole[:, :, at : at + down].max(2) for at in range(0, whole.shape[2], down)]
    halves = np.stack(rows, 2)
    columns = [halves[..., at : at + across].max(3) for at in range(0, whole.shape[3], across)]
    return np.stack(columns, 3)


def row(whole, cells, **more):
    values = kept(whole, cells)
    said = {"phase": "generate", "source_shape": list(whole.shape)}
    return tensor(1, 0, "RawAttentionScore_mat_mul", "", str(Peaks(cells)), values, **said) | more


def batch_of(*rows):
    return pa.RecordBatch.from_pylist(list(rows), stream_schema("tensors"))


@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 300), (37, 37), (64, 64), (65, 200), (129, 130), (300, 300)]
)
@pytest.mark.parametrize("cells", [1, 5, 16, 31])
def test_it_is_what_peaks_would_have_kept_with_so_many_cells(queries, keys, cells):
    whole = np.random.default_rng(queries).uniform(0, 1, (2, 3, queries, keys)).astype(np.float32)
    whole[0, 1, 0, keys // 2] = np.nan
    (found,) = coarser_rows(batch_of(row(whole, 32, compression_error=0.5)), cells).to_pylist()
    wanted = kept(whole, cells)
    assert found["shape"] == list(wanted.shape)
    np.testing.assert_array_equal(np.reshape(found["values"], found["shape"]), wanted)
    assert found["source_shape"] == list(whole.shape)
    if found["shape"] == list(kept(whole, 32).shape):
        assert (found["compressor"], found["compression_error"]) == ("Peaks(cells=32)", 0.5)
    else:
        assert found["compressor"] == f"Peaks(cells={cells}) of Peaks(cells=32)"
        assert math.isnan(found["compression_error"])


def test_rows_of_other_compressors_and_as_coarse_ones_stay_as_they_are():
    whole = np.random.default_rng(0).uniform(0, 1, (1, 2, 40, 40)).astype(np.float32)
    rows = batch_of(row(whole, 16), row(whole, 64, compressor="NoOp()"), row(whole, 8))
    assert coarser_rows(rows, 16) is rows
    changed = coarser_rows(rows, 8).to_pylist()
    assert [each["compressor"] for each in changed] == [
        "Peaks(cells=8) of Peaks(cells=16)",
        "NoOp()",
        "Peaks(cells=8)",
    ]


@pytest.mark.parametrize(
    ("compressor", "source", "shape"),
    [
        ("Peaks(cells=0)", [1, 1, 9, 9], [1, 1, 9, 9]),
        ("Peaks(cells=99999999999)", [1, 1, 9, 9], [1, 1, 9, 9]),
        ("Peaks(cells=16)", [1, 1, 9, 9], [1, 1, 7, 9]),
        ("Peaks(cells=16)", [1, 9, 9], [1, 9, 9]),
        ("Peaks(cells=16)", [1, 1, -9, 9], [1, 1, 9, 9]),
        ("Peaks(cells=16)", [1, 1, 0, 9], [1, 1, 0, 9]),
    ],
)
def test_rows_that_contradict_themselves_stay_as_they_are(compressor, source, shape):
    assert coarser_shape(compressor, source, shape, 4) is None
