"""Who may read a recording: its owner, unless the training or a shared folder says otherwise."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from hub_process import put, scalars, tensors, until
from recorded_files import segments_of, tails_of

from megalens.hub.recorder import Recorder
from megalens.hub.resumed import set_aside, upgrade_recording
from megalens.protocol import make_run_folder, replace_file
from megalens.runs.moments.rows.import_folder import cache_folder, locked

RECORDINGS = Path(__file__).parents[2] / "protocol/fixtures/recordings"


@pytest.fixture(autouse=True, params=[0o022, 0o077], ids=oct)
def mask(request):
    """A person's mask: no file of a run depends on it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder):
    """Return the modes of the folders, and those of the files, of a run folder."""
    inside = [folder, *folder.rglob("*")]
    return tuple({mode(path) for path in inside if path.is_dir() == wanted} for wanted in (True, False))


def record(folder, **options):
    recorder = Recorder(folder, {"format": 2}, 1 << 24, **options)
    put(recorder, tensors(1), scalars(1))
    return recorder


def test_a_recording_is_its_owners_alone(tmp_path):
    recorder = record(tmp_path / "runs/run")
    recorder.close({"format": 2})
    assert segments_of(tmp_path / "runs/run", "tensors")[0].suffix == ".parquet"
    assert modes(tmp_path / "runs/run") == ({0o700}, {0o600})


def test_a_chosen_mode_opens_all_that_is_in_it(tmp_path):
    record(tmp_path / "run", mode=0o750).close({"format": 2})
    assert modes(tmp_path / "run") == ({0o750}, {0o640})


@pytest.mark.parametrize(("shared", "run"), [(0o2770, 0o2750), (0o2755, 0o2750), (0o777, 0o700)])
def test_a_folder_that_a_group_shares_opens_runs_for_the_group_to_read(tmp_path, shared, run):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs").chmod(shared)
    record(tmp_path / "runs/run").close({"format": 2})
    assert modes(tmp_path / "runs/run") == ({run}, {run & 0o666})


def test_a_growing_tail_is_as_open_as_its_run(tmp_path):
    make_run_folder(tmp_path / "run", 0o750)
    recorder = record(tmp_path / "run", resumes=True)
    until(lambda: tails_of(tmp_path / "run", "scalars"))
    assert mode(tails_of(tmp_path / "run", "scalars")[0]) == 0o640
    recorder.close({"format": 2})
    replace_file(tmp_path / "run/notes.json", b"{}", mode=None)
    assert modes(tmp_path / "run") == ({0o750}, {0o640})


def test_an_attempt_is_as_open_as_its_run(tmp_path):
    record(tmp_path / "run", mode=0o750).close({"format": 2})
    header = {"format": 2, "run": {"id": "a", "name": "a", "started": 0.0}}
    set_aside(tmp_path / "run", header, 2)
    assert json.loads((tmp_path / "run/attempts/1/run.json").read_text())["superseded_from"] == 2
    assert modes(tmp_path / "run/attempts") == ({0o750}, {0o640})


@pytest.mark.parametrize("name", ["growing", "finished"])
def test_an_older_recording_is_rewritten_as_open_as_it_was(tmp_path, name):
    run = Path(shutil.copytree(RECORDINGS / name, tmp_path / "run"))
    for path in run.iterdir():
        path.chmod(0o640)
    run.chmod(0o750)
    assert list(upgrade_recording(run))
    assert modes(run) == ({0o750}, {0o640})


def test_what_is_imported_of_other_files_is_kept_for_its_owner(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    with locked(cache_folder() / "ab" / "abc"):
        pass
    assert {mode(cache_folder()), mode(cache_folder() / "ab" / "abc")} == {0o700}


@pytest.mark.slow
def test_a_hub_makes_its_run_folder_as_it_is_told(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path / "runs", "--record-mode", "750", "--linger", 0)
    viewer, producer = hub.viewer(), hub.producer()
    producer.send(scalars(1))
    viewer.wait_frames(1, "scalars")
    producer.send({"type": "goodbye", "reason": "finished"})
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    assert modes(hub.record) == ({0o750}, {0o640})
