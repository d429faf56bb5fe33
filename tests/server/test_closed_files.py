"""What the server may not read: a typed error that says so, and every other run as before."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from plain_server import PlainServer
from recorded_moments import GRAD, NAMES, PARAM, append_line, write_moments, write_tree
from recorded_run import RUN_ID

# The server of these tests is a process of its own.
pytestmark = pytest.mark.slow
OTHER = "other"


@pytest.fixture(scope="module")
def place():
    """A folder with a server's root in it."""
    folder = Path(tempfile.mkdtemp())
    (folder / "root").mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGALENS_RUNTIME_DIR", str(place / "hubs"))
        patch.setenv("MEGALENS_CACHE_DIR", str(place / "cache"))
        server = PlainServer(place / "root", place)
    yield server
    server.close()


@pytest.fixture
def root(place, server):
    """The root of a server that has a run, which stays readable whatever a test closes."""
    root = place / "root"
    write_moments(root / "megalens-runs" / RUN_ID)
    yield root
    for at, folders, files in os.walk(root):
        for name in (*folders, *files):
            (Path(at) / name).chmod(0o755)
    for entry in root.iterdir():
        shutil.rmtree(entry)


@pytest.fixture
def ask(server, root):
    """Ask the server; whatever it answers, it goes on, names no folder of this machine, and the run that is open stays readable."""

    def asked(*path, **options):
        while True:
            status, body = server.ask(*path, **options)
            if status != 202:
                break
        if isinstance(body, dict):
            assert str(root) not in json.dumps(body)
        listed, runs = server.ask("runs")
        assert listed == 200
        assert RUN_ID in [run["id"] for run in runs["runs"]]
        assert (
            server.ask("runs", RUN_ID)[0]
            == server.ask("runs", RUN_ID, "streams", "scalars", body={})[0]
            == 200
        )
        return status, body

    return asked


@pytest.fixture
def other(root):
    """A second recorded run."""
    folder = write_moments(root / "megalens-runs" / OTHER)
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, "run": {**header["run"], "id": OTHER}}))
    return folder


@pytest.fixture
def opened(ask):
    def post(path):
        status, body = ask("statistics", body={"path": path})
        assert status == 200, body
        return body["runs"][0]["id"]

    return post


def refused(answer, *words):
    status, body = answer
    assert (status, body["code"]) == (409, "unreadable"), body
    for word in (*words, "Permission denied"):
        assert word in body["message"]
    return True


def test_a_single_statistics_file_that_may_not_be_read(ask, opened, root):
    file = write_tree(root / "logs" / "run-a") / "training_stats" / PARAM / "rank0.jsonl"
    file.chmod(0)
    run = opened(file.relative_to(root).as_posix())
    assert refused(ask("runs", run, "moments"), "rank0.jsonl", "permission to read it")
    assert refused(ask("runs", run, "moments", "rows", body={"stats": ["param"]}), "rank0.jsonl")
    assert ask("runs", run)[0] == 200
    # Once it may be read it is, without opening it again.
    file.chmod(0o644)
    assert ask("runs", run, "moments")[1]["stats"][0]["rows"] == 10 * len(NAMES)


def test_of_several_files_the_others_are_read_and_the_closed_one_is_named(ask, opened, root):
    stats = write_tree(root / "logs" / "run-several") / "training_stats"
    (stats / PARAM / "rank0.jsonl").chmod(0)
    run = opened("logs/run-several")
    status, body = ask("runs", run, "moments")
    assert (status, [stat["stat"] for stat in body["stats"]]) == (200, ["grad"])
    assert any("rank0.jsonl cannot be read: Permission denied" in warning for warning in body["warnings"])
    (stats / PARAM / "rank0.jsonl").chmod(0o644)
    status, body = ask("runs", run, "moments")
    assert ([stat["stat"] for stat in body["stats"]], body["warnings"]) == (["param", "grad"], [])
    # So it is where it was closed while the run was open: the rows that are known stay, and it is said.
    (stats / GRAD / "rank0.jsonl").chmod(0)
    status, known = ask("runs", run, "moments")
    assert (status, known["stats"]) == (200, body["stats"])
    assert known["version"] != body["version"]
    assert any("rank0.jsonl cannot be read: Permission denied" in warning for warning in known["warnings"])


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_run_folders_that_cannot_be_read_are_named_beside_the_list_of_the_others(
    server, ask, other, root, mode
):
    runs = root / "megalens-runs"
    assert ask("runs")[1]["warnings"] == []
    (runs / "torn").mkdir()
    (runs / "torn" / "run.json").write_text('{"format": 1, "run"')
    other.chmod(mode)
    for _ in range(2):
        status, body = ask("runs")
        assert (status, [run["id"] for run in body["runs"]]) == (200, [RUN_ID])
        closed, torn = body["warnings"]
        assert closed == f"megalens-runs/{OTHER} cannot be looked into: Permission denied."
        assert torn.startswith("megalens-runs/torn: Could not read the run folder. run.json")
    (runs / "torn" / "run.json").unlink()
    other.chmod(0o755)
    _, body = ask("runs")
    assert ({run["id"] for run in body["runs"]}, body["warnings"]) == ({RUN_ID, OTHER}, [])
    runs.chmod(mode)
    status, body = server.ask("runs")
    assert (status, body["runs"]) == (200, [])
    assert "megalens-runs" in body["warnings"][0]
    assert all("Permission denied." in warning for warning in body["warnings"])


def test_of_many_run_folders_that_cannot_be_read_some_are_named_and_the_rest_counted(ask, root):
    for at in range(13):
        (root / "megalens-runs" / f"torn-{at:02}").mkdir()
        (root / "megalens-runs" / f"torn-{at:02}" / "run.json").write_text("[]")
    warnings = ask("runs")[1]["warnings"]
    assert (len(warnings), warnings[-1]) == (11, "And 3 more.")


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_tree_that_may_not_be_entered(ask, opened, root, mode):
    write_tree(root / "logs" / "run-a")
    write_tree(root / "logs" / "run-b")
    first, second = opened("logs/run-a"), opened("logs/run-b")
    closed = root / "logs/run-a/training_stats"
    closed.chmod(mode)
    assert refused(ask("runs", first, "moments"))
    assert ask("runs", second, "moments")[0] == 200
    assert {first, second} <= {run["id"] for run in ask("runs")[1]["runs"]}
    closed.chmod(0o755)
    assert ask("runs", first, "moments")[0] == 200


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_of_several_folders_of_a_tree_the_others_are_read_and_the_closed_one_is_named(
    ask, opened, root, mode
):
    stats = write_tree(root / "logs" / f"folders-{mode}") / "training_stats"
    (stats / PARAM).chmod(mode)
    run = opened(f"logs/folders-{mode}")
    status, body = ask("runs", run, "moments")
    assert (status, [stat["stat"] for stat in body["stats"]]) == (200, ["grad"])
    # Where its files are known by name, they are what cannot be read.
    what = f"{PARAM} cannot be looked into" if mode == 0 else "rank0.jsonl cannot be read"
    assert any(f"{what}: Permission denied." in warning for warning in body["warnings"])
    (stats / PARAM).chmod(0o755)
    status, body = ask("runs", run, "moments")
    assert ([stat["stat"] for stat in body["stats"]], body["warnings"]) == (["param", "grad"], [])
    # So it is where it was closed while the run was open: the rows that are known stay, what is new in the others is read, and it is said.
    (stats / GRAD).chmod(mode)
    append_line(stats.parent, 11, PARAM)
    status, known = ask("runs", run, "moments")
    assert (status, [stat["last"] for stat in known["stats"]]) == (200, [11, 10])
    assert known["version"] != body["version"]
    assert any("Permission denied." in warning for warning in known["warnings"])
    status, rows = ask("runs", run, "moments", "rows", body={"stats": ["grad"]})
    assert (status, pa.ipc.open_stream(rows).read_all().num_rows) == (200, 10 * len(NAMES))
    # Nothing is left to answer from where every one of them is closed.
    (stats / PARAM).chmod(mode)
    assert refused(ask("runs", run, "moments"))


def test_a_link_in_a_tree_to_where_nobody_may_look_hides_no_other_folder(ask, opened, root):
    deep = root / "closed" / "deep"
    deep.mkdir(parents=True)
    stats = write_tree(root / "logs" / "linked", stats=(PARAM,)) / "training_stats"
    (stats / GRAD).symlink_to(deep)
    (deep / "rank1.jsonl").write_text("")
    (stats / PARAM / "rank1.jsonl").symlink_to(deep / "rank1.jsonl")
    deep.parent.chmod(0)
    run = opened("logs/linked")
    status, body = ask("runs", run, "moments")
    assert (status, [stat["stat"] for stat in body["stats"]]) == (200, ["param"])
    assert any(f"{GRAD} cannot be looked into" in warning for warning in body["warnings"])


def test_of_many_runs_those_in_closed_folders_are_left_out_and_that_is_said(ask, root):
    trees = [write_tree(root / "logs" / name, steps=1, stats=(PARAM,)) for name in "abc"]
    assert ask("statistics", body={"path": "logs"})[1]["warnings"] == []
    trees[1].chmod(0)
    (trees[2] / "training_stats").chmod(0)
    status, body = ask("statistics", body={"path": "logs"})
    assert (status, [run["name"] for run in body["runs"]]) == (200, ["a"])
    assert body["warnings"] == [
        "logs/b cannot be looked into: Permission denied.",
        "logs/c/training_stats cannot be looked into: Permission denied.",
    ]
    for number in range(20):
        (root / "logs" / f"more-{number}").mkdir(mode=0)
    warnings = ask("statistics", body={"path": "logs"})[1]["warnings"]
    assert (len(warnings), warnings[-1]) == (11, "And 12 more.")


def test_a_tree_below_a_folder_that_may_not_be_entered_is_not_said_to_hold_nothing(ask, opened, root):
    stats = write_tree(root / "logs" / "run-a") / "training_stats"
    run = opened("logs/run-a")
    stats.chmod(0)
    assert refused(ask("statistics", body={"path": "logs/run-a"}), "training_stats")
    stats.parent.chmod(0)
    assert refused(ask("statistics", body={"path": "logs/run-a"}), "run-a")
    assert refused(ask("runs", run, "moments"))


def test_a_stream_of_a_recording_that_may_not_be_read(ask, other):
    for name in ("tensors.parquet", "moments.parquet"):
        (other / name).chmod(0)
    assert refused(ask("runs", OTHER), "permission to read it")
    assert refused(ask("runs", OTHER, "streams", "tensors", body={}), "tensors.parquet")
    assert refused(ask("runs", OTHER, "index"), "tensors.parquet")
    assert ask("runs", OTHER, "streams", "scalars", body={})[0] == 200
    status, body = ask("runs", OTHER, "moments")
    assert (status, body["code"]) == (409, "unreadable")
    for name in ("tensors.parquet", "moments.parquet"):
        (other / name).chmod(0o644)
    assert ask("runs", OTHER)[0] == ask("runs", OTHER, "moments")[0] == 200


def test_a_growing_stream_that_may_not_be_read(ask, other):
    table = pa.table({"step": [1]})
    (other / "scalars.parquet").unlink()
    with pa.ipc.new_stream(str(other / "scalars.arrows"), table.schema) as writer:
        writer.write_table(table)
    (other / "scalars.arrows").chmod(0)
    assert refused(ask("runs", OTHER), "scalars.arrows", "permission to read it")
    assert refused(ask("runs", OTHER, "streams", "scalars", body={}), "scalars.arrows")


@pytest.mark.parametrize("mode", [0o000, 0o444])
@pytest.mark.parametrize("closed", [".", "run.json"])
def test_a_run_folder_that_may_not_be_entered_is_left_out_until_it_may(ask, other, closed, mode):
    listed = lambda: [run["id"] for run in ask("runs")[1]["runs"]]  # noqa: E731
    assert OTHER in listed()
    (other / closed).chmod(mode)
    shut = closed == "." or mode == 0
    assert (OTHER not in listed()) == shut
    assert ask("runs", OTHER)[0] == (404 if shut else 200)
    (other / closed).chmod(0o755)
    assert OTHER in listed()
    assert ask("runs", OTHER)[0] == 200


def test_a_link_to_where_nobody_may_look_hides_no_other_run(ask, root, other):
    deep = root / "closed" / "deep"
    deep.mkdir(parents=True)
    (root / "megalens-runs" / "a-link").symlink_to(deep)
    deep.parent.chmod(0)
    assert OTHER in [run["id"] for run in ask("runs")[1]["runs"]]


def test_a_recording_that_is_replaced_while_it_is_open_by_one_that_may_not_be_read(ask, root, other):
    assert ask("runs", OTHER, "moments")[1]["stats"][0]["last"] == 20
    new = write_moments(root / "new", steps=5) / "moments.parquet"
    new.chmod(0)
    new.replace(other / "moments.parquet")
    status, body = ask("runs", OTHER, "moments")
    assert (status, body["code"]) == (409, "unreadable")
    (other / "moments.parquet").chmod(0o644)
    assert ask("runs", OTHER, "moments")[1]["stats"][0]["last"] == 5
