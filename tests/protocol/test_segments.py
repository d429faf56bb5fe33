"""Where the rows of a recorded stream lie."""

from __future__ import annotations

from pathlib import Path

from megalens.protocol import file_name, segment_name, stream_segments


def _files(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"rows")


def _found(folder: Path) -> list[tuple[int, int, str]]:
    return [(each.number, each.first_step, each.path.name) for each in stream_segments(folder, "moments")]


def test_segments_come_in_the_order_in_which_they_were_recorded(tmp_path: Path) -> None:
    _files(
        tmp_path / "moments",
        "1000000-step-9.arrows",
        "000001-step-70.parquet",
        "000000-step-80.parquet",
    )
    assert _found(tmp_path) == [
        (0, 80, "000000-step-80.parquet"),
        (1, 70, "000001-step-70.parquet"),
        (1000000, 9, "1000000-step-9.arrows"),
    ]
    assert [each.sealed for each in stream_segments(tmp_path, "moments")] == [True, True, False]


def test_a_tail_that_is_sealed_counts_once(tmp_path: Path) -> None:
    _files(tmp_path / "moments", "000000-step-0.arrows", "000000-step-0.parquet", "000001-step-5.arrows")
    assert [name for _, _, name in _found(tmp_path)] == ["000000-step-0.parquet", "000001-step-5.arrows"]


def test_the_one_file_of_an_older_recording_comes_first(tmp_path: Path) -> None:
    _files(tmp_path, "moments.arrows")
    _files(tmp_path / "moments", "000000-step-0.parquet")
    assert _found(tmp_path)[0] == (-1, 0, "moments.arrows")
    _files(tmp_path, "moments.parquet")
    assert [name for _, _, name in _found(tmp_path)] == ["moments.parquet", "000000-step-0.parquet"]


def test_what_is_no_segment_is_passed_over(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    _files(elsewhere, "000007-step-1.parquet")
    run = tmp_path / "run"
    _files(
        run / "moments",
        "000000-step-0.parquet.partial",
        "notes.txt",
        "0-step-1.parquet",
        "000001-step-.parquet",
    )
    (run / "moments" / "000002-step-0.parquet").symlink_to(elsewhere / "000007-step-1.parquet")
    (run / "moments" / "000003-step-0.parquet").mkdir()
    assert _found(run) == []
    (run / "spans").symlink_to(elsewhere)
    assert stream_segments(run, "spans") == []
    assert stream_segments(tmp_path / "nowhere", "moments") == []


def test_a_name_says_the_number_and_the_first_step() -> None:
    assert segment_name(3, 1200, ".parquet") == "000003-step-1200.parquet"
    # A row that belongs to no step has -1.
    assert segment_name(1234567, -1, ".arrows") == "1234567-step-0.arrows"


def test_a_file_is_called_by_its_stream() -> None:
    assert file_name(Path("/runs/a/moments/000003-step-1200.parquet")) == "moments/000003-step-1200.parquet"
    assert file_name(Path("/runs/a/moments.parquet")) == "moments.parquet"
