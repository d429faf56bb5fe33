"""The index of thousands of run folders: what it spares, when it is stale, and the list of the command line."""

import json

import pytest
from recorded_run import write_run

from megalens.cli.main import main
from megalens.runs import run_index
from megalens.runs.run_index import RunIndex


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "hubs"))
    home = tmp_path / "runs"
    for at, name in enumerate(["job-0", "job-1", "other"]):
        folder = write_run(home / f"run-{at}")
        change(folder, run={"id": folder.name, "name": name, "started": 1_700_000_000.0 + 86_400 * at})
    (home / "run-1" / "notes.json").write_text(
        json.dumps({"format": 1, "notes": "Slow start", "tags": ["kept"]})
    )
    return home


def change(folder, **members):
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, **members}))


def listed(home):
    index = RunIndex(home)
    found = {folder.name: index.run(folder) for folder in sorted(home.iterdir())}
    taken = {name: index.bytes(run) for name, run in found.items()}
    index.save()
    return found, taken


@pytest.fixture
def reads(monkeypatch):
    """Count what is read of folders."""
    own, names = run_index.RunFolder, []

    def read(path):
        names.append(path.name)
        return own(path)

    monkeypatch.setattr(run_index, "RunFolder", read)
    return names


def test_another_process_reads_the_index_and_no_run_json(home, reads):
    before = listed(home)
    assert reads == ["run-0", "run-1", "run-2"]
    assert listed(home) == before
    assert len(reads) == 3
    assert before[1]["run-0"] == sum(path.stat().st_size for path in (home / "run-0").iterdir())


def test_what_changed_is_read_again_and_what_is_gone_is_not_kept(home, reads):
    listed(home)
    change(home / "run-2", state="lost")
    (home / "run-0" / "run.json").unlink()
    found, _ = listed(home) if (home / "run-0").rename(home.parent / "gone") else ({}, {})
    assert (sorted(found), found["run-2"].lost) == (["run-1", "run-2"], True)
    assert reads[3:] == ["run-2"]
    (file,) = (home.parent / "cache" / "lists").iterdir()
    assert len(json.loads(file.read_text())["runs"]) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 9}', '{"format": 1, "runs": {"x": [1, 2, 3]}}'])
def test_a_damaged_index_is_made_anew(home, reads, text):
    before = listed(home)
    (file,) = (home.parent / "cache" / "lists").iterdir()
    file.write_text(text)
    assert listed(home) == before
    assert len(reads) == 6


def test_a_run_that_cannot_be_read_is_left_out_of_the_list_in_a_sentence(home, capsys):
    (home / "run-0" / "run.json").write_text("{")
    assert main(["runs", str(home)]) == 0
    said = capsys.readouterr()
    assert "run-0 is left out" in said.err
    assert [line.split()[0] for line in said.out.splitlines()] == ["other", "job-1"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["run-2", "run-1", "run-0"]),
        (["--search", "START slow"], ["run-1"]),
        (["--search", "job"], ["run-1", "run-0"]),
        (["--tag", "kept"], ["run-1"]),
        (["--since", "2023-11-15T12:00"], ["run-2", "run-1"]),
        (["--until", "2023-11-15T12:00"], ["run-0"]),
        (["--sort", "name"], ["run-0", "run-1", "run-2"]),
        (["--limit", "1"], ["run-2"]),
    ],
)
def test_recordings_are_searched_and_sorted(home, capsys, options, expected):
    assert main(["runs", str(home), "--json", *options]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == expected


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("job", {"other": ["run-2"], "job": ["run-1", "run-0"]}),
        ("tag", {"no tag": ["run-2", "run-0"], "kept": ["run-1"]}),
        ("state", {"recorded": ["run-2", "run-1", "run-0"]}),
    ],
)
def test_recordings_are_grouped(home, capsys, by, expected):
    assert main(["runs", str(home), "--json", "--by", by]) == 0
    found = {}
    for line in map(json.loads, capsys.readouterr().out.splitlines()):
        found.setdefault(line["group"], []).append(line["id"])
    assert found == expected


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["runs", str(tmp_path / "nothing")]) == 2
    assert "is no folder" in capsys.readouterr().err
