"""Recordings are read a chunk of whole steps at a time, whatever pieces their rows lie in: the answers are those of rows in memory."""

import itertools
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from held_rows import HeldRows
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_moments import row_of

from megalens.protocol import LAST_STEP, STREAMS, segment_name, stream_schema
from megalens.runs import ClientError
from megalens.runs.moments import MomentQuery, MomentSource, RecordedRows
from megalens.runs.moments.rows import recorded_rows

QUERIES = [
    {"by": ["layer"]},
    {"by": ["name"], "statistic": "kurtosis", "points": 8, "series": 3},
    {"by": []},
    {"by": ["stage", "role"], "stat": "activation", "where": {"rank": "0-1"}},
    {"by": ["rank"], "stat": "activation", "mixed": True, "where": {"stage": []}},
    {"by": ["layer"], "steps": [5, 23]},
    {"by": ["layer"], "steps": [4000, LAST_STEP]},
    {"by": ["layer"], "ratio": "grad_to_param", "points": 12},
    {"by": ["layer"], "stat": "activation", "ratio": "gain"},
    {"by": ["layer"], "where": {"name": "nothing"}},
    {"by": ["layer"], "where": {"name": "nothing"}, "show": "relative", "smoothing": 3},
    {"by": ["layer"], "show": "percent", "smoothing": 4, "steps": [9, LAST_STEP], "points": 8, "series": 2},
    {"by": ["layer"], "stat": "dgrad"},
]


def rows_of_a_run(steps=40):
    """Grad at every step, param at every second, activations at every third; stages and ranks that differ, and one far step."""
    rng = np.random.default_rng(3)
    rows = []
    for step in [*range(1, steps), 5000]:
        for stat, every in (("grad", 1), ("param", 2), ("activation", 3)):
            if step % every:
                continue
            for layer in range(4):
                ends = [f"/{role}0" for role in ("input", "output")] if stat == "activation" else [""]
                for end in ends:
                    count = float(rng.integers(0, 5))
                    rows.append(
                        row_of(
                            stat,
                            f"decoder.layers.{layer}.mlp.linear_fc{1 + layer % 2}{end or '.weight'}",
                            step,
                            rank=layer % 3 - 1,
                            stage=layer // 2,
                            count=count,
                            mean=rng.normal(),
                            m2=count * rng.uniform(),
                            m3=rng.normal(),
                            m4=count * rng.uniform(1, 2),
                            min=-3.0,
                            max=3.0,
                            nan_count=float(rng.random() < 0.05),
                            **STREAMS["moments"].absent,
                        )
                    )
    return pa.Table.from_pylist(rows, schema=stream_schema("moments"))


def in_memory(table):
    held = HeldRows()
    held.append(table)
    return MomentSource(held)


SCHEMA = stream_schema("moments")


def opened(folder):
    source = MomentSource(RecordedRows(folder))
    source.refresh()
    return source


def tail(path, table, rows_a_message=16):
    path.parent.mkdir(exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
        for batch in table.to_batches(rows_a_message):
            writer.write_batch(batch)


def sealed(path, table, rows_a_group=16):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table.sort_by("step"), path, row_group_size=rows_a_group)


def packed(folder, table, rows_a_group):
    pq.write_table(table, folder / "moments.parquet", row_group_size=rows_a_group)
    return opened(folder)


@pytest.fixture(scope="module")
def small_groups(tmp_path_factory):
    """The run, and recordings of it: packed in row groups that are smaller than a step, and in segments with a tail."""
    table, one, other = (
        rows_of_a_run(),
        tmp_path_factory.mktemp("packed"),
        tmp_path_factory.mktemp("segments"),
    )
    packed(one, table, 7).close()
    for at in range(5):
        part = table.slice(at * 80, 80)
        if at < 4:
            sealed(other / "moments" / segment_name(at, 0, ".parquet"), part)
        else:
            tail(other / "moments" / segment_name(at, 0, ".arrows"), part)
    return table, (one, other)


def same(one, other):
    assert (one.keys, one.groups_total, one.steps_total) == (
        other.keys,
        other.groups_total,
        other.steps_total,
    )
    assert one.table.schema == other.table.schema
    for name in one.table.column_names:
        left, right = one.table[name].to_numpy(), other.table[name].to_numpy()
        if left.dtype == np.float64:
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-14, equal_nan=True, err_msg=name)
        else:
            np.testing.assert_array_equal(left, right, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES, ids=str)
@pytest.mark.parametrize("lean", [False, True])
def test_steps_that_lie_in_several_pieces_are_merged_whole(query, lean, small_groups, monkeypatch):
    table, folders = small_groups
    expected = (
        MomentQuery.of_request(**{"stat": "grad", **query}, lean=True)
        if lean
        else MomentQuery.of_request(**{"stat": "grad", **query})
    )
    wanted = in_memory(table).groups(expected)
    for folder in folders:
        for piece in (1, 25):
            monkeypatch.setattr("megalens.runs.moments.grouping.cells._PIECE_ROWS", piece)
            same(opened(folder).groups(expected), wanted)


@pytest.mark.parametrize("rows_a_group", [16, 172])
def test_rows_that_are_not_in_the_order_of_their_steps_are_answered_the_same(rows_a_group, tmp_path):
    table = rows_of_a_run()
    mixed = table.take(np.random.default_rng(0).permutation(table.num_rows))
    source = packed(tmp_path, mixed, rows_a_group)
    query = MomentQuery.of("grad", by=["layer"])
    same(source.groups(query), in_memory(table).groups(query))


TABLE = rows_of_a_run()
EXPECTED = {by: in_memory(TABLE).groups(MomentQuery.of("grad", by=[by])) for by in ("layer", "name")}


def test_what_any_mixture_is_compared_with_is_what_plain_sums_say():
    """Independent of how rows are read and merged: each group's mean first, then powers of the distance from it."""
    for by, found in EXPECTED.items():
        groups = {}
        for one in TABLE.to_pylist():
            if one["stat"] == "grad":
                key = int(one["name"].split(".")[2]) if by == "layer" else one["name"]
                groups.setdefault((key, one["step"]), []).append(one)
        rows = found.table.to_pylist()
        assert {(one[by], one["step"]) for one in rows} == groups.keys()
        for one in rows:
            parts = [part for part in groups[one[by], one["step"]] if part["count"]]
            n = sum(part["count"] for part in parts)
            assert one["count"] == n
            if not n:
                continue
            mean = sum(part["count"] * part["mean"] for part in parts) / n
            apart = [part["mean"] - mean for part in parts]
            pairs = list(zip(parts, apart, strict=True))
            wanted = {
                "mean": mean,
                "m2": sum(part["m2"] + part["count"] * d**2 for part, d in pairs),
                "m3": sum(part["m3"] + 3 * d * part["m2"] + part["count"] * d**3 for part, d in pairs),
                "m4": sum(
                    part["m4"] + 4 * d * part["m3"] + 6 * d**2 * part["m2"] + part["count"] * d**4
                    for part, d in pairs
                ),
            }
            for name, value in wanted.items():
                assert one[name] == pytest.approx(value, rel=1e-12, abs=1e-14), (by, name)


@settings(max_examples=20)
@given(st.data())
def test_any_mixture_of_segments_and_tails_has_every_row_once(tmp_path_factory, data):
    """Late rows, segments that overlap, tails that wait to be sealed or were sealed and not yet removed, the file of an older recording."""
    folder = tmp_path_factory.mktemp("run")
    late = data.draw(st.integers(0, 60), "how many rows a row may be late")
    order = np.argsort(np.arange(len(TABLE)) + np.random.default_rng(late).uniform(0, late + 1, len(TABLE)))
    table = TABLE.take(order)
    cuts = data.draw(st.lists(st.integers(0, len(table)), max_size=6), "where segments end")
    ends = [0, *sorted({*cuts} - {0}), len(table)]
    for at, (begin, end) in enumerate(itertools.pairwise(ends)):
        part, kind = table.slice(begin, end - begin), data.draw(st.sampled_from(("sealed", "tail", "both")))
        if at == 0 and data.draw(st.booleans(), "of an older version"):
            tail(folder / "moments.arrows", part)
            continue
        if kind != "sealed":
            tail(folder / "moments" / segment_name(at, 1, ".arrows"), part)
        if kind != "tail":
            sealed(folder / "moments" / segment_name(at, 1, ".parquet"), part)
    source = opened(folder)
    assert sum(one["rows"] for one in source.index()["stats"]) == len(TABLE)
    for by, wanted in EXPECTED.items():
        same(source.groups(MomentQuery.of("grad", by=[by])), wanted)
    rows = source.rows(["param", "grad", "activation"])
    # Once each, whatever the order within a step is.
    assert sorted(rows["mean"].to_pylist()) == sorted(TABLE["mean"].to_pylist())
    assert rows["step"].to_pylist() == sorted(TABLE["step"].to_pylist())


def test_a_message_that_is_not_whole_is_read_when_it_is(tmp_path):
    tail(tmp_path / "whole" / "file", TABLE)
    whole = (tmp_path / "whole" / "file").read_bytes()
    path = tmp_path / "moments" / segment_name(0, 1, ".arrows")
    path.parent.mkdir()
    path.touch()
    source = MomentSource(RecordedRows(tmp_path))
    seen = []
    for end in [*range(0, len(whole), 1501), len(whole)]:
        path.write_bytes(whole[:end])
        newer = source.refresh()
        seen.append(sum(one["rows"] for one in source.index()["stats"]))
        assert newer == (seen[-1] > (seen[-2] if len(seen) > 1 else 0))
    assert set(np.diff(seen)) <= {0, 16, len(TABLE) % 16}
    assert seen[-1] == len(TABLE)
    assert source.warnings == []
    path.write_bytes(whole[: len(whole) // 2])
    cut = opened(tmp_path)
    assert 0 < sum(one["rows"] for one in cut.index()["stats"]) < len(TABLE)
    assert "ends within a message" in cut.warnings[0]


def test_tails_that_are_sealed_under_a_reader_have_no_row_lost_or_twice(tmp_path, monkeypatch):
    home, size, wanted = tmp_path / "moments", 40, MomentQuery.of("grad", by=["name"])
    parts = [TABLE.slice(at, size) for at in range(0, len(TABLE), size)]
    home.mkdir()
    listed = recorded_rows.stream_segments
    # One tail is sealed between every listing and the reading of what was listed.
    waiting = iter(range(len(parts)))

    def listing(folder, stream):
        found = listed(folder, stream)
        at = next(waiting, None)
        if at is not None and (home / segment_name(at, 1, ".arrows")).exists():
            sealed(home / "partial", parts[at])
            os.replace(home / "partial", home / segment_name(at, 1, ".parquet"))
            (home / segment_name(at, 1, ".arrows")).unlink()
        return found

    monkeypatch.setattr(recorded_rows, "stream_segments", listing)
    source, seen = MomentSource(RecordedRows(tmp_path)), 0
    for at, part in enumerate(parts):
        tail(home / segment_name(at, 1, ".arrows"), part)
        source.refresh()
        seen += len(part)
        assert sum(one["rows"] for one in source.index()["stats"]) == seen
    same(source.groups(wanted), in_memory(TABLE).groups(wanted))


@pytest.mark.parametrize("dictionary", [True, False])
def test_recordings_of_other_programs_are_answered_the_same(dictionary, tmp_path):
    """Their columns may have nulls, as all once had, and their texts need not be dictionaries."""
    pq.write_table(
        TABLE, tmp_path / "moments.parquet", row_group_size=50, compression="zstd", use_dictionary=dictionary
    )
    source = opened(tmp_path)
    for members in QUERIES:
        query = MomentQuery.of_request(**{"stat": "grad", **members})
        same(source.groups(query), in_memory(TABLE).groups(query))


def test_a_recording_that_goes_while_it_is_read_says_so(tmp_path):
    source = packed(tmp_path, rows_of_a_run(), 16)
    (tmp_path / "moments.parquet").unlink()
    with pytest.raises(ClientError, match="changed or went while they were read") as gone:
        source.groups(MomentQuery.of("grad"))
    assert gone.value.code == "unreadable"


def test_a_question_on_a_packed_recording_can_be_given_up(tmp_path, monkeypatch):
    source = packed(tmp_path, rows_of_a_run(), 16)
    read, places = [], source._rows.chunks

    def chunks(*arguments):
        for chunk in places(*arguments):
            read.append(len(chunk["step"]))
            if len(read) == 3:
                source.interrupt()
            yield chunk

    monkeypatch.setattr(source._rows, "chunks", chunks)
    with pytest.raises(ClientError, match="given up") as stopped:
        source.groups(MomentQuery.of("grad", by=["layer"]))
    assert stopped.value.code == "cancelled"
    assert 3 <= len(read) < 10
    monkeypatch.undo()
    # Who asks next is answered.
    assert source.groups(MomentQuery.of("grad", by=["layer"])).steps_total == 40
    source.interrupt()
    assert source.groups(MomentQuery.of("grad", by=["layer"])).steps_total == 40


def test_what_there_is_is_what_the_rows_say(small_groups):
    for folder in small_groups[1]:
        found = opened(folder).index()
        assert found["samples"]
        assert [(one["stat"], one["rows"], one["last"], one["steps"]) for one in found["stats"]] == [
            ("param", 80, 5000, 20),
            ("grad", 160, 5000, 40),
            ("activation", 104, 39, 13),
        ]
