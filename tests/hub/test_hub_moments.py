"""Statistics through the hub: recorded whole, sent to viewers, kept for those that come later, given up last."""

import math

import pyarrow.parquet as pq
import pytest
from hub_process import moments, scalars
from recorded_files import segments_of

pytestmark = pytest.mark.slow

NAMES = [f"decoder.layers.{layer}.mlp.linear_fc1.weight" for layer in range(40)]


def test_statistics_are_announced_sent_recorded_and_kept_for_who_comes_later(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path / "runs", "--linger", 0.2)
    viewer = hub.viewer()
    producer = hub.producer(statistics={"param": 1, "grad": 1})
    hello = viewer.wait("hello", lambda m: "statistics" in m)
    assert hello["statistics"] == {"param": 1, "grad": 1}
    for step in range(1, 9):
        producer.send(moments(step, NAMES, ("param", "grad"), nan=step == 5, inf=2 * (step == 5)))
        producer.send(scalars(step))
    frames = viewer.wait_frames(8, "moments")
    assert [frame.rows for frame in frames] == [80] * 8
    assert frames[4].table().column("inf_count").to_pylist() == [2.0] * 80
    late = hub.viewer()
    got = late.wait_frames(8, "moments")
    assert [frame.seq for frame in got] == [frame.seq for frame in frames]
    assert all(before.table().equals(after.table()) for before, after in zip(frames, got, strict=True))
    status = late.wait("status", lambda m: m["nonfinite"].get("moments"))
    assert status["nonfinite"] == {
        "count": 0,
        "moments": {"count": 3 * 80, "first": {"step": 5, "stat": "param", "name": NAMES[0]}},
    }
    producer.send({"type": "goodbye", "reason": "finished"})
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    packed = pq.ParquetFile(*segments_of(hub.record, "moments"))
    group = packed.metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert packed.metadata.num_rows == 8 * 80
    assert columns["name"].has_dictionary_page
    assert not columns["mean"].has_dictionary_page
    assert (columns["step"].statistics.min, columns["step"].statistics.max) == (1, 8)
    # What is read again and again: no marks of nulls, and nothing slow to undo where little is gained.
    assert not any(field.nullable for field in packed.schema_arrow)
    assert {
        name: column.compression for name, column in columns.items() if column.compression != "ZSTD"
    } == dict.fromkeys(("mean", "m2", "m3", "m4", "min", "max"), "LZ4")


def test_what_is_not_known_of_raw_sums_counts_as_one(hub):
    viewer, producer = hub.viewer(), hub.producer()
    producer.send(moments(1, NAMES[:3], nan=math.nan, inf=math.nan))
    status = viewer.wait("status", lambda m: m["nonfinite"].get("moments"))
    assert status["nonfinite"]["moments"]["count"] == 3
