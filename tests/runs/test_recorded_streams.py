"""Whatever files a stream's rows lie in, and whatever becomes of them meanwhile: each row is read once, in order."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hostile_folders import nobody
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.protocol import Segment, segment_name, stream_schema
from megalens.runs import ClientError, RunFolder, recorded_streams
from megalens.runs.query import Query

SCHEMA = stream_schema("tensors")
QUERIES = [
    Query(),
    Query(flag="A"),
    Query(first=7, last=12),
    Query(first=20),
    Query(last=4),
    Query.of(steps="2-4,17-18"),
    Query(layers=((1, 1),), phase="train"),
]


def rows(chance: np.random.Generator, first: int, steps: int) -> pa.Table:
    """Rows of some steps, one of them of a rank that sends late."""
    step = np.repeat(np.arange(first, first + steps), 3)
    if first > 3:
        step[-1] = first - 2
    count = len(step)
    shapes = chance.integers(0, 5, count)
    columns: dict[str, Any] = {
        "step": step,
        "phase": ["train"] * count,
        "pass": ["forward"] * count,
        "layer": np.arange(count) % 3,
        "flag": [("A", "BB", "ü")[at] for at in chance.integers(0, 3, count)],
        "compressor": ["NoOp()"] * count,
        "shape": [[1, size] for size in shapes],
        "source_shape": [[1, size] for size in shapes],
        "values": [chance.normal(size=size) for size in shapes],
        "labels": [["é"] * int(size) for size in shapes],
        "mean": chance.normal(size=count),
    }
    arrays = [
        pa.array(columns.get(each.name, ["" if pa.types.is_string(each.type) else 0] * count), each.type)
        for each in SCHEMA
    ]
    return pa.table(arrays, schema=SCHEMA)


def tail(table: pa.Table) -> bytes:
    """An Arrow stream without an end, a message a step."""
    messages = [table.filter(pc.field("step") == step).combine_chunks() for step in steps_of(table)]
    batches = [batch for message in messages for batch in message.to_batches()]
    return b"".join([bytes(SCHEMA.serialize()), *(bytes(batch.serialize()) for batch in batches)])


def in_messages(table: pa.Table) -> pa.Table:
    """The rows as a tail has them."""
    return pa.concat_tables([table.filter(pc.field("step") == step) for step in steps_of(table)])


def steps_of(table: pa.Table) -> list[int]:
    return list(dict.fromkeys(table["step"].to_pylist()))


def sealed(table: pa.Table) -> pa.Table:
    """The rows as a sealed segment has them."""
    return table.take(pa.array(np.argsort(table["step"].to_numpy(), kind="stable")))


def write_sealed(table: pa.Table, path: Path) -> None:
    pq.write_table(sealed(table), path, compression="zstd", row_group_size=4)


def new_run(folder: Path) -> Path:
    (folder / "tensors").mkdir(parents=True)
    run = {"format": 2, "run": {"id": "run", "name": "run", "started": 1}, "ended": None}
    (folder / "run.json").write_text(json.dumps(run))
    return folder


def place(folder: Path, number: int, table: pa.Table, suffix: str) -> Path:
    if number < 0:
        return folder / f"tensors{suffix}"
    return folder / "tensors" / segment_name(number, table["step"][0].as_py(), suffix)


def seal(path: Path, table: pa.Table) -> None:
    """What a hub does: under another name, renamed, and then the tail goes."""
    partial = path.with_suffix(".parquet.partial")
    write_sealed(table, partial)
    partial.rename(path.with_suffix(".parquet"))
    path.unlink()


def agrees(run: RunFolder, expected: pa.Table) -> None:
    for query in QUERIES:
        found = run.read("tensors", query)
        assert found.equals(query.filter(expected)), query
        assert run.read("tensors", query, ["mean", "step"]).equals(found.select(["mean", "step"]))


def places_of(table: pa.Table) -> list[tuple[str, list[int], list[int]]]:
    """What there is of each flag: layers and steps, by pyarrow alone."""
    found = table.group_by("flag").aggregate([("layer", "distinct"), ("step", "distinct")]).to_pylist()
    return sorted((row["flag"], sorted(row["layer_distinct"]), sorted(row["step_distinct"])) for row in found)


def said_places(run: RunFolder) -> list[tuple[str, list[int], list[int]]]:
    return [(each["flag"], each["layers"], each["steps"]) for each in run.tensor_index().index()]


KINDS = st.sampled_from(["sealed", "tail", "both"])


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    old=st.sampled_from([None, ".parquet", ".arrows"]),
    kinds=st.lists(KINDS, max_size=4),
    cut=st.one_of(st.none(), st.integers(1, 60)),
    first_number=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_a_stream_in_any_files_is_read_once_and_in_order(
    tmp_path_factory, old, kinds, cut, first_number, seed
):
    folder = new_run(tmp_path_factory.mktemp("runs") / "run")
    chance = np.random.default_rng(seed)
    expected = [SCHEMA.empty_table()]
    step = 1
    all_kinds = [] if old is None else [(-1, "tail" if old == ".arrows" else "sealed")]
    all_kinds += list(enumerate(kinds, first_number))
    for number, kind in all_kinds:
        steps = int(chance.integers(1, 6))
        table = rows(chance, step, steps)
        step += steps
        if kind != "tail":
            write_sealed(table, place(folder, number, table, ".parquet"))
        if kind != "sealed":
            # Beside a sealed file that is what a hub left behind that was ended.
            data = tail(table)
            is_cut = cut is not None and kind == "tail" and number == all_kinds[-1][0]
            place(folder, number, table, ".arrows").write_bytes(data[: len(data) - cut] if is_cut else data)
        expected.append(sealed(table) if kind != "tail" else in_messages(table))
        if kind == "tail" and is_cut:
            newest = steps_of(table)[-1]
            expected[-1] = expected[-1].filter(pc.field("step") != newest)
    whole = pa.concat_tables(expected)
    run = RunFolder(folder)
    newest = pc.max(whole["step"]).as_py() or 0
    was_cut = bool(all_kinds) and all_kinds[-1][1] == "tail" and cut is not None
    # Asked twice: what is known of the files changes no answer.
    for _ in range(2):
        assert (run.newest_step("tensors"), run.truncated()) == (newest, ["tensors"] if was_cut else [])
        assert said_places(run) == places_of(whole)
        agrees(run, whole)
        run = run.reopened()
    assert run.bytes() == sum(
        path.stat().st_size
        for path in folder.rglob("tensors*/*")
        if path.suffix == ".parquet" or not path.with_suffix(".parquet").exists()
    ) + (0 if old is None else (folder / f"tensors{old}").stat().st_size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_run(tmp_path / "run")


@pytest.fixture
def recorded(folder: Path) -> list[pa.Table]:
    """Four sealed segments and a tail."""
    chance = np.random.default_rng(1)
    tables = [rows(chance, 1 + 5 * at, 5) for at in range(5)]
    for number, table in enumerate(tables[:-1]):
        write_sealed(table, place(folder, number, table, ".parquet"))
    place(folder, 4, tables[-1], ".arrows").write_bytes(tail(tables[-1]))
    return tables


def whole_of(tables: list[pa.Table], tails: int = 1) -> pa.Table:
    return pa.concat_tables([*map(sealed, tables[:-tails]), *map(in_messages, tables[-tails:])])


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen once, after the segments were listed and before they are read."""
    listed = recorded_streams.stream_segments
    left = [act]

    def stream_segments(folder: Path, stream: str) -> list[Segment]:
        found = listed(folder, stream)
        while stream == "tensors" and left:
            left.pop()()
        return found

    monkeypatch.setattr(recorded_streams, "stream_segments", stream_segments)


ASKED = {
    "rows": lambda run: run.read("tensors").sort_by([("step", "ascending"), ("mean", "ascending")]),
    "places": said_places,
    "newest": lambda run: run.newest_step("tensors"),
}


@pytest.mark.parametrize("question", ASKED)
def test_a_tail_that_is_sealed_between_the_look_and_the_reading_is_read_once(
    folder, recorded, monkeypatch, question
):
    expected = ASKED[question](RunFolder(folder))
    path = place(folder, 4, recorded[4], ".arrows")
    between(monkeypatch, lambda: seal(path, recorded[4]))
    assert ASKED[question](RunFolder(folder)) == expected
    assert not path.exists()
    assert ASKED[question](RunFolder(folder)) == expected


def test_the_tail_behind_one_that_was_sealed_meanwhile_is_read_too(folder, recorded, monkeypatch):
    later = rows(np.random.default_rng(9), 26, 3)

    def go_on() -> None:
        place(folder, 5, later, ".arrows").write_bytes(tail(later))
        seal(place(folder, 4, recorded[4], ".arrows"), recorded[4])

    between(monkeypatch, go_on)
    agrees_once = RunFolder(folder).read("tensors")
    assert agrees_once.equals(pa.concat_tables([*map(sealed, recorded), in_messages(later)]))


def test_a_tail_that_is_sealed_while_it_is_read_is_read_to_its_end(folder, recorded, monkeypatch):
    monkeypatch.setattr("megalens.runs.recorded_arrow._TOGETHER", 1)
    found: list[pa.RecordBatch] = []
    for batch in RunFolder(folder).batches("tensors"):
        found.append(batch)
        path = place(folder, 4, recorded[4], ".arrows")
        if batch["step"][0].as_py() == 21 and path.exists():
            seal(path, recorded[4])
    assert pa.Table.from_batches(found).equals(whole_of(recorded))


def test_oldest_segments_that_are_given_up_meanwhile_are_passed_over(folder, recorded, monkeypatch):
    run = RunFolder(folder)
    assert said_places(run) == places_of(whole_of(recorded))
    gone = [place(folder, number, recorded[number], ".parquet") for number in (0, 1)]
    between(monkeypatch, lambda: [path.unlink() for path in gone] and None)
    left = whole_of(recorded[2:])
    assert run.read("tensors").equals(left)
    assert said_places(run) == places_of(left)
    agrees(run, left)


@pytest.mark.slow
def test_a_stream_is_read_once_while_another_thread_records_and_seals_it(folder):
    """A page that polls sees every row once and none twice, whenever it looks."""
    chance = np.random.default_rng(2)
    tables = [rows(chance, 1 + 3 * at, 3) for at in range(40)]
    whole = pa.concat_tables(tables).column("mean").to_pylist()
    over = threading.Event()

    def record() -> None:
        behind: list[tuple[Path, pa.Table]] = []
        for number, table in enumerate(tables):
            path = place(folder, number, table, ".arrows")
            data = tail(table)
            with path.open("wb", buffering=0) as file:
                for at in range(0, len(data), 1000):
                    file.write(data[at : at + 1000])
            behind.append((path, table))
            if number % 3:
                seal(*behind.pop(0))
        over.set()

    writer = threading.Thread(target=record)
    writer.start()
    run, looks, seen = RunFolder(folder), 0, 0
    try:
        while not over.is_set() or looks < 3:
            found = run.read("tensors", columns=["mean", "step"])
            means = found["mean"].to_pylist()
            assert sorted(means) == sorted(whole[: len(means)]), looks
            assert len(means) >= seen
            steps = {step for each in said_places(run) for step in each[2]}
            assert set(found["step"].to_pylist()) <= steps
            assert run.newest_step("tensors") >= max(found["step"].to_pylist(), default=0)
            looks, seen = looks + 1, len(means)
            run = run.reopened()
    finally:
        writer.join()
    assert said_places(run) == places_of(pa.concat_tables(tables))
    assert run.read("tensors").num_rows == len(whole)


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that are opened from now on."""
    names: list[str] = []

    def open_(whole: Any) -> Any:
        def opening(path: Path, *rest: Any) -> Any:
            names.append(path.name)
            return whole(path, *rest)

        return opening

    monkeypatch.setattr(recorded_streams, "opened_parquet", open_(recorded_streams.opened_parquet))
    monkeypatch.setattr(recorded_streams, "ArrowStream", open_(recorded_streams.ArrowStream))
    return names


@pytest.mark.slow
def test_of_many_segments_those_of_other_steps_are_not_opened(folder, monkeypatch):
    chance = np.random.default_rng(3)
    tables = [rows(chance, 1 + 2 * at, 2) for at in range(60)]
    for number, table in enumerate(tables):
        write_sealed(table, place(folder, number, table, ".parquet"))
    run = RunFolder(folder)
    assert run.newest_step("tensors") == 120
    names = opened(monkeypatch)
    newest = Query(first=119).filter(pa.concat_tables(map(sealed, tables)))
    assert run.reopened().read("tensors", Query(first=119)).equals(newest)
    assert run.newest_step("tensors") == 120
    assert len(names) == 1


def test_of_what_is_known_only_what_came_since_is_read(folder, recorded, monkeypatch):
    run = RunFolder(folder)
    said_places(run), run.newest_step("tensors")
    read: list[tuple[str, int]] = []
    batches = recorded_streams.ArrowStream.batches

    def noted(reading: Any, since: int = 0) -> Iterator[pa.RecordBatch]:
        read.append((reading._path.name, since))
        return batches(reading, since)

    monkeypatch.setattr(recorded_streams.ArrowStream, "batches", noted)
    names = opened(monkeypatch)
    path = place(folder, 4, recorded[4], ".arrows")
    whole = path.stat().st_size
    # Nothing came.
    assert (said_places(run), run.newest_step("tensors")) == (places_of(whole_of(recorded)), 25)
    assert {name for name in names if name.endswith(".parquet")} == set()
    later = rows(np.random.default_rng(9), 26, 2)
    more = tail(later)[len(bytes(SCHEMA.serialize())) :]
    read.clear()
    with path.open("ab") as file:
        file.write(more[:-8])
    assert run.newest_step("tensors") == 27
    assert said_places(run)[0][2][-1] <= 27
    assert run.truncated() == ["tensors"]
    with path.open("ab") as file:
        file.write(more[-8:])
    assert said_places(run) == places_of(pa.concat_tables([*recorded, later]))
    assert (run.newest_step("tensors"), run.truncated()) == (27, [])
    assert {name for name in names if name.endswith(".parquet")} == set()
    assert min(since for _, since in read) >= whole
    # Rows of steps that came later begin there too.
    assert run.read("tensors", Query(first=28)).num_rows == 0
    assert read[-1][1] > whole


def test_another_tail_in_the_place_of_one_is_read_from_its_beginning(folder, recorded):
    run = RunFolder(folder)
    path = place(folder, 4, recorded[4], ".arrows")
    for again in (1, 2):
        said_places(run), run.newest_step("tensors")
        other = rows(np.random.default_rng(again), 21, 400 * again)
        new = path.with_suffix(".new")
        new.write_bytes(tail(other))
        os.replace(new, path)
        whole = pa.concat_tables([*map(sealed, recorded[:4]), in_messages(other)])
        assert run.newest_step("tensors") == 20 + 400 * again
        assert said_places(run) == places_of(whole)
        assert run.read("tensors").equals(whole)


def test_damage_in_one_segment_is_named_and_costs_what_lies_in_it(folder, recorded):
    path = place(folder, 1, recorded[1], ".parquet")
    data = bytearray(path.read_bytes())
    # Its pages; what its footer says stays.
    data[4:200] = b"\xee" * 196
    path.write_bytes(data)
    run, whole = RunFolder(folder), whole_of(recorded)
    assert run.newest_step("tensors") == 25
    for query in (Query(first=14), Query(last=3)):
        assert run.read("tensors", query).equals(query.filter(whole))
    batches = run.batches("tensors")
    for _ in range(2):
        assert next(batches)["step"][0].as_py() <= 5
    for query in (Query(), Query(first=6, last=7)):
        with pytest.raises(ClientError, match=path.name) as caught:
            run.read("tensors", query)
        assert caught.value.code == "unreadable"
        assert str(folder) not in caught.value.message


@pytest.mark.parametrize("kept", [0, 3, 100, -1, -9])
def test_a_sealed_segment_that_was_cut_short_is_named(folder, recorded, kept):
    path = place(folder, 1, recorded[1], ".parquet")
    path.write_bytes(path.read_bytes()[:kept])
    run = RunFolder(folder)
    for ask in (lambda: run.read("tensors"), lambda: run.newest_step("tensors"), run.truncated):
        with pytest.raises(ClientError, match=path.name) as caught:
            ask()
        assert caught.value.code == "unreadable"
        assert str(folder) not in caught.value.message


def test_a_tail_in_the_middle_that_was_cut_short_costs_its_end_alone(folder, recorded):
    path = place(folder, 1, recorded[1], ".parquet")
    path.unlink()
    left = path.with_suffix(".arrows")
    left.write_bytes(tail(recorded[1])[:-20])
    expected = [*map(sealed, recorded[:1]), in_messages(recorded[1]).slice(0, recorded[1].num_rows)]
    newest = steps_of(recorded[1])[-1]
    expected[1] = expected[1].filter(pc.field("step") != newest)
    run = RunFolder(folder)
    found = run.read("tensors")
    assert found.equals(pa.concat_tables([*expected, *map(sealed, recorded[2:4]), in_messages(recorded[4])]))
    assert run.truncated() == ["tensors"]


def test_a_text_of_a_tail_that_is_no_text_ends_its_reading_there(folder, recorded):
    path = place(folder, 4, recorded[4], ".arrows")
    data = bytearray(path.read_bytes())
    at = [found for found in range(len(data)) if data.startswith(b"forward", found)]
    data[at[3] : at[3] + 2] = b"\xff\xff"
    path.write_bytes(data)
    run = RunFolder(folder)
    assert run.truncated() == []
    assert run.read("tensors").num_rows == whole_of(recorded).num_rows - recorded[4].num_rows + 3
    assert run.truncated() == ["tensors"]


def test_a_folder_of_segments_that_may_not_be_read_is_named(folder):
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        run = RunFolder(shutil.copytree(folder, Path(place) / "run"))
        closed = run.path / "tensors"
        closed.chmod(0)
        try:
            with nobody(), pytest.raises(ClientError, match=r"tensors.*permission to read it"):
                run.read("tensors")
        finally:
            closed.chmod(0o755)
