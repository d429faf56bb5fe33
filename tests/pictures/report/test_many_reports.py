"""A report of each of many runs, here and on a real Dask cluster of processes."""

import re

import pytest
from dask_cluster import cluster  # noqa: F401
from recorded_run import write_run

import megalens
from megalens.pictures.report import ReportError
from megalens.runs import ClientError

pytestmark = pytest.mark.slow

VIEWS = [{"view": "scalars"}]


@pytest.fixture
def runs(tmp_path):
    for number in range(3):
        write_run(tmp_path / "runs" / f"run {number}", steps=2 + number, layers=1)
    return tmp_path / "runs"


def words(path):
    """Return a report without the time at which it was made."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?", "", path.read_text())


@pytest.mark.parametrize("format", ["md", "html"])
def test_reports_of_a_cluster_are_those_of_one_process(runs, tmp_path, cluster, format):  # noqa: F811
    options = {"format": format} | ({} if format == "md" else {"views": VIEWS})
    here = megalens.report_all(runs, tmp_path / "here", **options)
    there = megalens.report_all(runs, tmp_path / "deep" / "there", engine=cluster, **options)
    assert list(here) == list(there) == [str(runs / f"run {number}") for number in range(3)]
    assert [path.name for path in there.values()] == [f"run-{number}.{format}" for number in range(3)]
    if format == "md":
        assert [words(path) for path in there.values()] == [words(path) for path in here.values()]
    else:
        assert all(path.stat().st_size > 100_000 for path in there.values())


def test_a_run_of_which_no_report_can_be_made_has_its_error_and_the_others_theirs(
    runs,
    tmp_path,
    cluster,  # noqa: F811
):
    (runs / "run 1" / "run.json").write_text("{")
    for engine in (None, cluster):
        found = list(megalens.report_all(runs, tmp_path / "out", format="md", engine=engine).values())
        assert isinstance(found[1], ClientError)
        assert "run 1: " in str(found[1])
        assert found[0].is_file()
        assert found[2].is_file()
    wrong = megalens.report_all([runs / "run 0"], tmp_path / "out", [{"view": "none"}], engine=cluster)
    assert all(re.search("run 0: .*got 'none'", str(error)) for error in wrong.values()), wrong


def test_runs_of_one_name_have_files_of_their_own_and_what_cannot_be_written_is_named(runs, tmp_path):
    other = write_run(tmp_path / "others" / "run 0", steps=1, layers=1)
    found = megalens.report_all([runs / "run 0", other], tmp_path / "out", format="md")
    assert [path.name for path in found.values()] == ["run-0.md", "run-0-2.md"]
    with pytest.raises(ReportError, match="format must be html, ipynb or md"):
        megalens.report_all(runs, tmp_path / "never", format="pdf")
    assert not (tmp_path / "never").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="Could not make file"):
        megalens.report_all(runs, tmp_path / "file")
