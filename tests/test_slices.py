"""Packages of others bring a slice by an entry point: what it adds is there, and one that cannot be loaded harms nobody."""

import sys
import textwrap
import warnings
from pathlib import Path

import pytest
from recorded_run import RUN_ID, write_run

import megalens
from megalens.cli.main import main
from megalens.runs.answers import RunAnswers
from megalens.slices import GROUP, find_slices

OURS = {path.parent.name for path in (Path(megalens.__file__).parent / "instruments").glob("*/slice.py")}
WORKING = """
    import argparse

    from megalens.runs.exports import Format
    from megalens.slices import Slice

    SLICE = Slice(
        name="counts",
        run={"row_count": "counts_slice:row_count"},
        notebook={"row_count": "counts_slice:in_words"},
        answers={"counts": "counts_slice:count"},
        exports={"counts": "counts_slice:COUNTS"},
        commands="counts_slice:add_commands",
    )


    def row_count(run, stream="tensors"):
        return run.table(stream).num_rows


    def in_words(notebook_run, stream="tensors"):
        return f"{notebook_run.run.row_count(stream)} rows"


    def count(rows, request, run, cancelled):
        number = sum(batch.num_rows for batch in rows.batches(request["stream"]))
        return {"run": run, "rows": number, "cancelled": cancelled.is_set()}


    def write(export):
        text = "".join(f"{stream} {batch.num_rows};" for stream in export.streams for batch in export.batches(stream))
        (export.folder / "counts.txt").write_text(text)


    COUNTS = Format(write, ("scalars", "audit"))


    def add_commands(commands):
        parser = commands.add_parser("count-to")
        parser.add_argument("number", type=int)
        parser.set_defaults(run=lambda parsed: print(*range(1, parsed.number + 1)) or 7)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Lay packages on the import path as installers do, each a module and its entry point, and look for slices anew."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    names = []

    def install(name, code, entry=None):
        names.append(name)
        if code is not None:
            (site / f"{name}.py").write_text(textwrap.dedent(code))
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {entry or f'{name}:SLICE'}\n")
        find_slices.cache_clear()

    yield install
    find_slices.cache_clear()
    for name in names:
        sys.modules.pop(name, None)


def test_our_own_slices_are_found_by_the_same_entry_point():
    assert {each.name for each in find_slices()} >= OURS


def test_a_slice_adds_attributes_to_runs_and_to_runs_of_notebooks(install, tmp_path):
    install("counts_slice", WORKING)
    with megalens.open(write_run(tmp_path / RUN_ID, steps=3, layers=2)) as opened:
        run = opened.run
        assert run.row_count() == len(run.table("tensors")) > 0
        assert run.row_count("scalars") == len(run.table("scalars"))
        assert opened.row_count() == f"{run.row_count()} rows"
        assert "row_count" in dir(run)


def test_a_slice_answers_what_a_view_asks_by_its_name(install, tmp_path):
    install("counts_slice", WORKING)
    with megalens.open(write_run(tmp_path / RUN_ID, steps=3, layers=2)) as opened:
        rows = len(opened.run.table("tensors"))
        asked = RunAnswers(opened.run).answer("counts", {"request": {"stream": "tensors"}})
    assert asked == ({"run": RUN_ID, "rows": rows, "cancelled": False}, b"")


def test_a_slice_adds_commands(install, capsys):
    install("counts_slice", WORKING)
    assert main(["count-to", "3"]) == 7
    assert capsys.readouterr().out == "1 2 3\n"


def test_a_slice_exports_in_a_format_of_its_own(install, tmp_path, capsys):
    install("counts_slice", WORKING)
    folder = write_run(tmp_path / RUN_ID, steps=3, layers=2)
    assert main(["export", str(folder), "--to", "counts", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "counts.txt").read_text() == "scalars 7;audit 4;"
    assert "7 rows of scalars" in capsys.readouterr().out


def test_a_run_without_the_slice_has_no_such_attribute(tmp_path):
    with megalens.open(write_run(tmp_path / RUN_ID, steps=3, layers=2)) as opened:
        assert not hasattr(opened.run, "row_count")
        assert "row_count" not in dir(opened.run)
        with pytest.raises(megalens.ClientError, match="cannot be asked 'counts'"):
            RunAnswers(opened.run).answer("counts", {"request": {}})


@pytest.mark.parametrize(
    ("code", "entry", "why"),
    [
        ("1 / 0", None, "division by zero"),
        ("import no_such_package_of_anybody", None, "no_such_package_of_anybody"),
        ("PART = 1", None, "SLICE"),
        ("SLICE = 'text'", None, "Slice, got str"),
        # The package itself is at fault, before the module that is named can be looked for.
        ("raise RuntimeError('no driver')", "broken_slice.inner:SLICE", "no driver"),
    ],
)
def test_a_slice_that_cannot_be_loaded_is_left_out_with_a_warning(install, code, entry, why):
    install("broken_slice", code, entry)
    with pytest.warns(UserWarning, match=f"The slice broken_slice could not be loaded: .*{why}"):
        found = {each.name for each in find_slices()}
    assert found >= OURS
    assert "broken_slice" not in found


@pytest.mark.parametrize("entry", ["deleted_slice:SLICE", "megalens.instruments.deleted.slice:SLICE"])
def test_a_slice_whose_folder_was_deleted_is_skipped_in_silence(install, entry):
    install("deleted_slice", None, entry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = {each.name for each in find_slices()}
    assert found >= OURS
    assert "deleted_slice" not in found
