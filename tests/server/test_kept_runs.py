"""What a person does with the runs that are kept: notes, tags, deleting, and the table that compares them."""

import asyncio
import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from recorded_run import write_run

from bench.recordings import write_courses
from megalens.runs import RunFolder
from megalens.server.reader.run_summaries import RunSummaries

RUN = "20261120-101500-gpt-demo"


async def entry(ask, run=RUN):
    return next((each for each in (await ask("runs"))[1]["runs"] if each["id"] == run), None)


def recorded(folder, run, **changes):
    """Another recorded run, with members of its run.json replaced."""
    write_run(folder / run)
    header = json.loads((folder / run / "run.json").read_text())
    header["run"] = {**header["run"], "id": run}
    (folder / run / "run.json").write_text(json.dumps({**header, **changes}))
    return folder / run


async def test_a_run_is_listed_with_the_job_that_its_name_tells(ask, run_folder):
    assert (await entry(ask))["job"] == "gpt-demo"
    await ask("runs", RUN, method="PATCH", body={"name": "gpt-rank3"})
    assert (await entry(ask))["job"] == "gpt"


async def test_notes_and_tags_lie_beside_the_recording_and_are_listed(ask, run_folder):
    body = {"notes": "Warmup was 200.\nBad lr?", "tags": [" baseline ", "tp2"]}
    status, answer, _ = await ask("runs", RUN, method="PATCH", body=body)
    assert status == 200
    assert (answer["notes"], answer["tags"]) == ("Warmup was 200.\nBad lr?", ["baseline", "tp2"])
    assert json.loads((run_folder / "notes.json").read_text()) == {
        "format": 1,
        "notes": "Warmup was 200.\nBad lr?",
        "tags": ["baseline", "tp2"],
    }
    # Each is changed by itself, and somebody's editor is as good.
    await ask("runs", RUN, method="PATCH", body={"tags": [], "name": "lr 3e-4"})
    found = await entry(ask)
    assert (found["name"], found["notes"], found["tags"]) == ("lr 3e-4", "Warmup was 200.\nBad lr?", [])
    (run_folder / "notes.json").write_text('{"format": 1, "notes": "by hand", "tags": ["x"]}')
    assert (await entry(ask))["notes"] == "by hand"
    assert sorted(os.listdir(run_folder)) == sorted(
        [*(path.name for path in run_folder.glob("*.parquet")), "run.json", "notes.json"]
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": 5}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "", "tags": []}, "name"),
        ({"note": "x"}, "note"),
        ({"name": "x", "folder": "/"}, "folder"),
        ({"name": "x", "id": "y"}, "id"),
        ({"notes": 5}, "notes"),
        ({"notes": None}, "notes"),
        ({"notes": "x" * 10_001}, "notes"),
        ({"tags": "baseline"}, "tags"),
        ({"tags": [5]}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["  "]}, "tags"),
        ({"tags": ["a,b"]}, "tags"),
        ({"tags": ["a\nb"]}, "tags"),
        ({"tags": ["x" * 51]}, "tags"),
        ({"tags": ["x", "x "]}, "tags"),
        ({"tags": [str(at) for at in range(21)]}, "tags"),
    ],
)
async def test_bad_names_notes_and_tags_are_refused_by_name_and_change_nothing(ask, run_folder, body, field):
    status, answer, _ = await ask("runs", RUN, method="PATCH", body=body)
    assert (status, answer["code"], answer["field"]) == (400, "bad-parameter", field)
    assert not (run_folder / "notes.json").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2, "notes": "", "tags": []}', "x" * 200_000])
async def test_notes_that_cannot_be_read_hide_no_run_and_can_be_written_anew(ask, run_folder, text):
    (run_folder / "notes.json").write_text(text)
    for _ in range(2):
        _, body, _ = await ask("runs")
        assert "notes" not in body["runs"][0]
        assert sum("notes on megalens-runs" in warning for warning in body["warnings"]) == 1
    status, answer, _ = await ask("runs", RUN, method="PATCH", body={"notes": "anew"})
    assert (status, answer["notes"], answer["tags"]) == (200, "anew", [])
    assert (await ask("runs"))[1]["warnings"] == []


async def test_a_link_in_the_place_of_notes_is_not_followed(ask, run_folder, tmp_path):
    other = tmp_path / "secret.json"
    other.write_text('{"format": 1, "notes": "secret", "tags": []}')
    (run_folder / "notes.json").symlink_to(other)
    assert "notes" not in await entry(ask)
    assert (await ask("runs", RUN, method="PATCH", body={"notes": "mine"}))[0] == 200
    assert json.loads(other.read_text())["notes"] == "secret"
    assert not (run_folder / "notes.json").is_symlink()


async def test_notes_need_a_recording(ask, live, outside):
    bare, kept = live(), live("--record", outside)
    status, answer, _ = await ask("runs", bare.id, method="PATCH", body={"notes": "x"})
    assert (status, answer["code"]) == (409, "refused")
    kept.step(1)
    for _ in range(1200):
        status, answer, _ = await ask("runs", kept.id, method="PATCH", body={"tags": ["x"]})
        if status == 200:
            break
        await asyncio.sleep(0.05)
    assert (await entry(ask, kept.id))["tags"] == ["x"]


async def test_the_size_of_a_recording_is_that_of_its_files(ask, run_folder):
    expected = sum(path.stat().st_size for path in run_folder.iterdir())
    assert (await entry(ask))["bytes"] == expected
    (run_folder / "big").symlink_to(shutil.which("sh"))
    assert (await entry(ask))["bytes"] == expected


async def test_a_recording_is_deleted_and_nothing_else(ask, run_folder):
    other = recorded(run_folder.parent, "other")
    assert (await ask("runs", RUN, method="DELETE"))[:2] == (200, {"gone": True})
    assert not run_folder.exists()
    assert [each["id"] for each in (await ask("runs"))[1]["runs"]] == ["other"]
    assert (await ask("runs", RUN))[0] == 404
    assert (await ask("runs", RUN, method="DELETE"))[0] == 404
    assert pq.read_table(other / "scalars.parquet").num_rows > 0


async def test_folders_of_streams_are_counted_and_deleted_and_what_others_put_there_stays(
    ask, run_folder, tmp_path
):
    before = (await entry(ask))["bytes"]
    (run_folder / "spans").mkdir()
    for name in ("000000-step-1.parquet", "000001-step-9.arrows", "000001-step-9.parquet.partial"):
        (run_folder / "spans" / name).write_bytes(b"rows")
    assert (await entry(ask))["bytes"] == before + 12
    (run_folder / "spans" / "mine.txt").write_bytes(b"mine")
    (tmp_path / "others").mkdir()
    kept = tmp_path / "others" / "000000-step-1.parquet"
    kept.write_bytes(b"rows")
    (run_folder / "kept").mkdir()
    (run_folder / "kept" / kept.name).write_bytes(b"no stream of ours")
    (run_folder / "audit").symlink_to(kept.parent)
    assert (await ask("runs", RUN, method="DELETE"))[:2] == (200, {"gone": False})
    assert kept.read_bytes() == b"rows"
    assert sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob("*")) == [
        "audit",
        "kept",
        f"kept/{kept.name}",
        "spans",
        "spans/mine.txt",
    ]


async def test_what_others_put_into_the_folder_stays(ask, run_folder, tmp_path):
    (run_folder / "checkpoint.pt").write_bytes(b"weights")
    (run_folder / "training_stats").mkdir()
    target = tmp_path / "elsewhere.parquet"
    target.write_bytes(b"rows")
    (run_folder / "moments.parquet").unlink(missing_ok=True)
    (run_folder / "moments.parquet").symlink_to(target)
    assert (await ask("runs", RUN, method="DELETE"))[:2] == (200, {"gone": False})
    assert sorted(os.listdir(run_folder)) == ["checkpoint.pt", "training_stats"]
    assert target.read_bytes() == b"rows"


async def test_a_link_to_a_run_is_not_deleted(ask, run_folder, outside, jp_root_dir):
    place = shutil.move(run_folder, outside / "real")
    run_folder.symlink_to(place)
    before = sorted(os.listdir(place))
    # The first folder of the configuration comes first, and it holds the link.
    status, answer, _ = await ask("runs", RUN, method="DELETE")
    assert (status, answer["code"]) == (403, "forbidden")
    assert sorted(os.listdir(place)) == before


async def test_a_live_run_that_is_recorded_says_so_wherever_its_folder_lies(ask, live, tmp_path):
    bare, kept = live(), live("--record", tmp_path / "not-known")
    kept.step(1)
    assert "bytes" not in await entry(ask, bare.id)
    for _ in range(1200):
        told = await entry(ask, kept.id)
        if told.get("bytes"):
            break
        await asyncio.sleep(0.05)
    assert (told["folder"], told["bytes"] > 0) == (None, True)


async def test_a_run_outside_the_known_folders_is_not_deleted(ask, live, tmp_path):
    run = live("--record", tmp_path / "not-known")
    run.step(2)
    assert (await ask("runs"))[0] == 200
    run.kill_hub()
    folder = next((tmp_path / "not-known").iterdir())
    assert (await entry(ask, run.id))["state"] == "gone"
    status, answer, _ = await ask("runs", run.id, method="DELETE")
    assert (status, answer["code"]) == (403, "forbidden")
    assert (folder / "run.json").exists()


async def test_a_live_run_is_not_deleted(ask, live, outside):
    run = live("--record", outside)
    run.step(2)
    status, answer, _ = await ask("runs", run.id, method="DELETE")
    assert (status, answer["code"]) == (409, "refused")
    assert next(outside.iterdir(), None) is not None


async def test_the_table_has_the_last_loss_and_the_settings_of_every_recording(ask, run_folder):
    recorded(run_folder.parent, "other", model={"name": "gpt", "layers": 8, "hidden": 64})
    table = pq.read_table(run_folder / "scalars.parquet")
    loss = table.filter(pc.equal(table["name"], "loss"))
    status, body, _ = await ask("summaries")
    assert status == 200
    assert body["runs"][RUN]["loss"] == {
        "name": "loss",
        "step": loss["step"][-1].as_py(),
        "value": loss["value"][-1].as_py(),
    }
    assert body["runs"]["other"]["settings"]["model.layers"] == 8
    own = json.loads((run_folder / "run.json").read_text())
    assert body["runs"][RUN]["settings"]["model.layers"] == own["model"]["layers"]
    assert body["runs"][RUN]["settings"]["layout.tp"] == own["layout"]["tp"]


async def test_a_loss_that_is_not_finite_is_told_as_text(ask, run_folder):
    table = pq.read_table(run_folder / "scalars.parquet")
    at = max(i for i, name in enumerate(table["name"].to_pylist()) if name == "loss")
    values = table["value"].to_pylist()
    values[at] = float("nan")
    column = table.schema.get_field_index("value")
    pq.write_table(
        table.set_column(column, table.schema.field(column), pa.array(values)), run_folder / "scalars.parquet"
    )
    assert (await ask("summaries"))[1]["runs"][RUN]["loss"]["value"] == "nan"


async def test_a_table_of_runs_that_cannot_be_read_says_nothing_of_them(ask, run_folder):
    (run_folder / "scalars.parquet").write_bytes(b"PAR1 no more")
    assert (await ask("summaries"))[1]["runs"][RUN]["loss"] is None


def test_losses_in_a_folder_that_may_not_be_listed_cost_no_other_run_its_summary(run_folder, monkeypatch):
    other = recorded(run_folder.parent, "other")
    (run_folder / "scalars").mkdir()
    listed = os.scandir

    def scandir(path):
        # As the system answers a person: who runs these tests may be allowed everything.
        if Path(path) == run_folder / "scalars":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    summaries = RunSummaries()
    assert summaries.of(RunFolder(run_folder))["loss"] is None
    assert summaries.of(RunFolder(other))["loss"]["name"] == "loss"


async def test_courses_of_many_runs_come_with_outliers_first_and_bands_of_numpy(ask, run_folder):
    rng = np.random.default_rng(0)
    values = 2 + rng.normal(0, 0.01, (9, 300))
    values[4] += 1
    values[7, 199] = np.nan
    for run, loss in enumerate(values):
        write_courses(run_folder.parent / f"run-{run}", {"loss": loss, "tokens": loss * 100})
    ids = [f"run-{run}" for run in range(9)]
    groups = [{"name": "a", "runs": [0, 2, 9, 2, 70]}, {"name": "b", "runs": []}]
    status, body, _ = await ask("courses", body={"runs": [*ids, "nobody"], "groups": groups})
    assert status == 200
    assert (body["name"], body["names"], body["left_out"]) == ("loss", ["loss", "tokens"], 1)
    assert [(each["name"], each["runs"]) for each in body["groups"]] == [("a", 2), ("b", 0)]
    some = np.array(body["groups"][0]["quantiles"])
    ends = np.clip((np.arange(some.shape[1]) + 1) * 8 - 1, None, 300)
    np.testing.assert_allclose(
        some, np.quantile(values[[0, 2]][:, ends - 1], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0), rtol=1e-5
    )
    assert set(body["groups"][1]["quantiles"][0]) == {None}
    assert [each["id"] for each in body["runs"][:2]] == ["run-7", "run-4"]
    assert [each["why"] for each in body["runs"][:3]] == ["not-finite", "far", "usual"]
    assert body["runs"][0]["bad_at"] == 200
    steps = np.array(body["steps"])
    np.testing.assert_allclose(
        body["quantiles"], np.quantile(values[:, steps - 1], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0), rtol=1e-5
    )
    assert body["counts"] == [9] * len(steps)
    for each in body["runs"]:
        own = values[int(each["id"][-1])]
        assert min(each["low"]) == pytest.approx(np.nanmin(own), rel=1e-5)
        assert max(each["high"]) == pytest.approx(np.nanmax(own), rel=1e-5)
    assert [len(each["low"]) <= 48 for each in body["runs"][1:3]] == [False, True]
    _, other, _ = await ask("courses", body={"runs": ids, "name": "tokens"})
    assert other["quantiles"][2][0] == pytest.approx(100 * np.median(values[:, steps[0] - 1]), rel=1e-5)
    status, error, _ = await ask("courses", body={"scale": "cubic"})
    assert (status, error["field"]) == (400, "scale")
    _, none, _ = await ask("courses", body={"runs": ids, "name": "nothing"})
    assert (none["runs"], none["steps"], none["left_out"]) == ([], [], 9)
