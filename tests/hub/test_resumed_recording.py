"""``megalens hub --resume``: a hub that goes on with a recording, and what it refuses."""

import json

import pytest
from hub_process import HubProcess, announce, scalars
from recorded_files import parquet_of

pytestmark = pytest.mark.slow


def record(hub, steps):
    viewer, producer = hub.viewer(), hub.producer()
    for step in steps:
        producer.send(scalars(step, value=step))
    viewer.wait_frames(len(steps), "scalars")
    return viewer, producer


def ended(hub, viewer, producer):
    producer.send({"type": "goodbye", "reason": "finished"})
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    hub.close()


def test_a_hub_goes_on_under_the_run_s_id_and_name_and_sets_aside_what_was_recorded(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path / "runs", "--name", "first", "--linger", 0)
    ended(hub, *record(hub, range(1, 6)))
    folder = hub.record
    before = json.loads((folder / "run.json").read_text())
    again = start_hub("--resume", folder, "--first-step", 4, "--linger", 0)
    assert (again.ready["id"], again.record) == (hub.ready["id"], folder)
    ended(again, *record(again, range(4, 8)))
    after, aside = (
        json.loads((place / "run.json").read_text()) for place in (folder, folder / "attempts" / "1")
    )
    assert {key: after["run"][key] for key in ("id", "started")} == {
        key: before["run"][key] for key in ("id", "started")
    }
    assert (aside["run"]["id"], aside["superseded_from"]) == (f"{hub.ready['id']}.attempt-1", 4)
    assert "superseded_from" not in after
    steps = [
        parquet_of(place, "scalars")["step"].to_pylist() for place in (folder, folder / "attempts" / "1")
    ]
    assert steps == [[4, 5, 6, 7], [1, 2, 3, 4, 5]]


def test_another_model_is_said_to_everybody(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path / "runs", "--linger", 0)
    ended(hub, *record(hub, [1]))
    again = start_hub("--resume", hub.record, "--first-step", 2, "--linger", 0)
    viewer = again.viewer()
    again.producer(model={**announce()["model"], "name": "Another"})
    told = viewer.wait("status", lambda m: m.get("warnings"))
    assert "goes on with something else than before" in told["warnings"][0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--resume", "nowhere", "--first-step", 2), "There is no recording in nowhere"),
        (("--resume", "nowhere"), "--resume and --first-step belong together"),
        (("--first-step", 3), "--resume and --first-step belong together"),
        (("--resume", "a", "--first-step", 2, "--record", "b"), "in the place of --record"),
        (("--resume", "a", "--first-step", 0), "expected a whole number from 1"),
    ],
)
def test_what_cannot_go_on_is_one_line_and_exit_code_2(runtime, options, words):
    hub = HubProcess(runtime, *options)
    _, said = hub.process.communicate(timeout=60)
    assert hub.process.returncode == 2
    assert words in said


def test_a_recording_that_a_hub_writes_is_refused_and_goes_on(start_hub, runtime, tmp_path):
    hub = start_hub("--record", tmp_path / "runs", "--linger", 0)
    viewer, producer = record(hub, [1, 2])
    other = HubProcess(runtime, "--resume", hub.record, "--first-step", 2)
    _, said = other.process.communicate(timeout=60)
    assert (other.process.returncode, "is live" in said) == (2, True)
    producer.send(scalars(3))
    viewer.wait_frames(3, "scalars")
    ended(hub, viewer, producer)
    assert parquet_of(hub.record, "scalars")["step"].to_pylist() == [1, 2, 3]
