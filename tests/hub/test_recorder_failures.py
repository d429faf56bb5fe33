"""A disk that fails for a while: the recording waits, goes on, and says exactly what it lacks."""

import errno
import json
import os
import shutil

import hub_process
import pytest
from hub_process import scalars, tensors, until
from recorded_files import parquet_of, recorded_table, tails_of

from megalens.hub.options import HubError
from megalens.hub.recording_folder import RecordingFolder

RETRY = 0.02


class Disk:
    """Errors of the system, for files of the run folder only, for as long as ``error`` is set."""

    def __init__(self, folder, monkeypatch):
        self.error = None
        self.at = ()
        self.part = 0
        self.folder = str(folder)
        real = {"write": os.write, "open": os.open, "ftruncate": os.ftruncate, "replace": os.replace}

        def ours(name, first):
            if name in ("write", "ftruncate"):
                first = os.readlink(f"/proc/self/fd/{first}")
            return str(first).startswith(self.folder)

        def failing(name):
            def call(first, *rest, **named):
                if self.error is not None and name in self.at and ours(name, first):
                    if name == "write" and self.part:
                        # Half of it fits.
                        done, self.part = real["write"](first, rest[0][: self.part]), 0
                        return done
                    raise OSError(self.error, os.strerror(self.error))
                return real[name](first, *rest, **named)

            return call

        for name in real:
            monkeypatch.setattr(os, name, failing(name))


@pytest.fixture
def disk(tmp_path, monkeypatch):
    return Disk(tmp_path / "run", monkeypatch)


def put(recorder, steps, make=scalars):
    hub_process.put(recorder, *map(make, steps))


def written(recorder, steps):
    until(
        lambda: tails_of(recorder._folder.path, "scalars") and recorder._waiting_bytes == 0,
        f"{steps} not written",
    )


def remove(folder):
    """Remove a folder in one go, whatever is written in it at this moment."""
    shutil.rmtree(folder.rename(folder.with_name("gone")))


def finish(recorder):
    recorder.close({"format": 2})
    return json.loads((recorder._folder.path / "run.json").read_text())


def steps_of(recorder, stream="scalars"):
    return parquet_of(recorder._folder.path, stream).column("step").to_pylist()


@pytest.mark.parametrize(
    ("error", "at"),
    [
        (errno.ENOSPC, ("write",)),
        (errno.EIO, ("write", "ftruncate")),
        (errno.EMFILE, ("open",)),
        (errno.EACCES, ("open", "replace")),
    ],
)
@pytest.mark.parametrize("part", [0, 100])
def test_a_disk_that_fails_for_a_while_costs_no_row(recorder, disk, error, at, part):
    """Also when half a message was written, and when a stream's file could not be made."""
    recording = recorder()
    put(recording, range(1, 4))
    written(recording, "1-3")
    disk.at, disk.part, disk.error = at, part, error
    put(recording, range(4, 8), lambda step: tensors(step) if step == 4 else scalars(step))
    until(lambda: recording.status()["state"] == "failed", "the failure was not noticed")
    status = recording.status()
    assert os.strerror(error) in status["message"]
    assert "tried again" in status["message"]
    assert status["missing_steps"] == [[4, 7]]
    put(recording, range(8, 10))
    assert recording.status()["missing_steps"] == [[4, 9]]
    disk.error = None
    until(lambda: recording.status()["state"] == "on", "it did not go on")
    assert "Nothing is missing" in recording.status()["message"]
    assert "missing_steps" not in recording.status()
    assert recording.dropped_rows == 0
    run = finish(recording)
    assert run["missing_steps"] == []
    assert steps_of(recording) == [1, 2, 3, 5, 6, 7, 8, 9]
    assert steps_of(recording, "tensors") == [4, 4]


def test_what_does_not_fit_meanwhile_is_named_to_the_step(recorder, disk):
    recording = recorder(queue_bytes=3 * len(scalars(1)))
    put(recording, [1])
    written(recording, "1")
    disk.at, disk.error = ("write",), errno.ENOSPC
    put(recording, range(2, 12))
    until(lambda: recording.status()["state"] == "failed", "the failure was not noticed")
    disk.error = None
    until(lambda: recording.status()["state"] == "on", "it did not go on")
    put(recording, [12])
    status = recording.status()
    assert status["missing_steps"] == [[5, 11]]
    assert recording.dropped_rows == 7
    assert "7 rows are missing" in status["message"]
    (said,) = recording.sentences
    assert said.startswith(
        "Rows of scalars: 1 row of step 5 was given up, because too much waits for the disk ("
    )
    run = finish(recording)
    assert run["missing_steps"] == [[5, 11]]
    assert steps_of(recording) == [1, 2, 3, 4, 12]


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EEXIST, errno.EIO, errno.ENOSPC])
def test_a_training_whose_first_run_json_cannot_be_written_begins_all_the_same(recorder, disk, error):
    disk.at, disk.error = ("replace",), error
    recording = recorder()
    assert recording.status()["state"] == "failed"
    assert os.strerror(error) in recording.status()["message"]
    put(recording, [1, 2])
    disk.error = None
    until(lambda: recording.status()["state"] == "on", "it never went on")
    assert "missing_steps" not in recording.status()
    finish(recording)
    assert steps_of(recording) == [1, 2]


def test_one_that_never_gets_better_is_no_recording_that_was_deleted(recorder, disk):
    disk.at, disk.error = ("replace",), errno.EIO
    recording = recorder()
    recording.close({"format": 2})
    assert recording.status()["message"] == (
        f"The recording stopped: {os.strerror(errno.EIO)}. What is recorded so far stays readable."
    )


def test_a_folder_that_may_not_be_written_is_refused_at_once(recorder, disk):
    disk.at, disk.error = ("replace",), errno.EACCES
    with pytest.raises(HubError, match=r"Permission denied. Choose another folder"):
        recorder()


def test_a_folder_that_is_removed_is_made_again_and_what_it_held_is_missing(recorder, monkeypatch):
    monkeypatch.setattr("megalens.hub.recorder._DESCRIBE_SECONDS", RETRY)
    recording = recorder()
    put(recording, range(1, 6))
    written(recording, "1-5")
    remove(recording._folder.path)
    put(recording, range(6, 9))
    until(lambda: recording.status().get("missing_steps") == [[1, 5]], "nobody noticed")
    assert "removed" in recording.status()["message"]
    run = finish(recording)
    assert run["missing_steps"] == [[1, 5]]
    assert steps_of(recording) == [6, 7, 8]


def test_a_deleted_recording_of_which_nothing_new_comes_stays_deleted(recorder, monkeypatch):
    monkeypatch.setattr("megalens.hub.recorder._DESCRIBE_SECONDS", RETRY)
    recording = recorder()
    put(recording, range(1, 6))
    written(recording, "1-5")
    folder = recording._folder.path
    remove(folder)
    recording.describe({"format": 2, "ended": 1.0})
    recording.close({"format": 2, "ended": 1.0})
    assert not folder.exists()
    assert recording.status()["message"] == "The recording was deleted."


@pytest.mark.parametrize("before", ["mend", "write_description"])
def test_a_recording_that_is_deleted_while_it_is_looked_after_stays_deleted(recorder, monkeypatch, before):
    recording = recorder()
    put(recording, range(1, 6))
    written(recording, "1-5")
    folder, real = recording._folder.path, getattr(RecordingFolder, before)

    def after_its_end(*arguments, **named):
        remove(folder)
        monkeypatch.undo()
        return real(*arguments, **named)

    monkeypatch.setattr(RecordingFolder, before, after_its_end)
    recording.describe({"format": 2, "ended": 1.0})
    until(lambda: not folder.exists(), "nobody wrote")
    recording.close({"format": 2, "ended": 1.0})
    assert not folder.exists()
    assert recording.status()["message"] == "The recording was deleted."


def test_a_disk_that_stays_full_to_the_end_is_said_with_every_step(recorder, disk):
    recording = recorder()
    put(recording, [1])
    written(recording, "1")
    disk.at, disk.error = ("write",), errno.ENOSPC
    put(recording, [2, 3])
    until(lambda: recording.status()["state"] == "failed", "the failure was not noticed")
    run = finish(recording)
    assert run["missing_steps"] == [[2, 3]]
    assert "tried again" not in recording.status()["message"]
    assert recorded_table(recording._folder.path, "scalars").column("step").to_pylist() == [1]


def test_a_recording_never_says_that_it_has_ended_while_rows_wait(recorder, disk):
    recording = recorder()
    put(recording, range(1, 4))
    written(recording, "1-3")
    disk.at, disk.error = ("write",), errno.ENOSPC
    put(recording, [4])
    until(lambda: recording.status()["state"] == "failed", "the failure was not noticed")
    path = recording._folder.path / "run.json"
    recording.describe({"format": 2, "state": "finished", "ended": 5.0})
    until(lambda: json.loads(path.read_text()).get("state") == "finished", "not described")
    assert json.loads(path.read_text())["ended"] is None
    disk.error = None
    until(lambda: json.loads(path.read_text())["ended"] == 5.0, "its end was never told")
    recording.close({"format": 2, "state": "finished", "ended": 5.0})
    assert steps_of(recording) == [1, 2, 3, 4]
