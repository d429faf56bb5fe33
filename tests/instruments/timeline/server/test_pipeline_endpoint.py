"""The endpoint of a run's measured pipeline steps in a real Jupyter server."""

from __future__ import annotations

import pytest
from pyarrow import parquet
from recorded_run import RUN_ID
from span_rows import recorded

from tests.kit.simulated_jobs import Job

JOB = Job(1, 2, 2, micro_batches=4, steps=30, seed=4)


@pytest.fixture
def folder(jp_root_dir):
    path = jp_root_dir / "megalens-runs" / RUN_ID
    recorded(path, JOB)
    return path


async def test_the_newest_ten_steps_are_answered(ask, folder):
    status, body, _ = await ask("runs", RUN_ID, "pipeline", body={})
    assert status == 200
    assert (body["steps_there"], [each["step"] for each in body["steps"]]) == ([1, 30], list(range(21, 31)))
    names = ("stages", "chunks", "micro_batches", "placement", "replicas", "ranks", "left", "problems")
    assert [body[name] for name in names] == [2, 1, 4, "loop", 2, [0, 2], 0, []]
    operations = body["operations"]
    assert {len(column) for column in operations.values()} == {10 * 2 * (4 + 4 + 1)}
    assert operations["kind"].count("O") == 20
    # A second stage cannot begin before the first has ended, on the one clock.
    rows = list(zip(*(operations[name] for name in ("step", "stage", "kind", "micro_batch", "begin_ms", "end_ms")), strict=True))  # fmt: skip
    for step, stage, kind, number, begin, _ in rows:
        if (stage, kind) == (1, "F"):
            (sent,) = (row[5] for row in rows if row[:4] == (step, 0, "F", number))
            assert begin > sent


async def test_steps_and_another_pipeline_can_be_chosen(ask, folder):
    _, body, _ = await ask("runs", RUN_ID, "pipeline", body={"first": 3, "last": 5, "replica": 1})
    assert ([each["step"] for each in body["steps"]], body["ranks"], body["left"]) == ([3, 4, 5], [1, 3], 0)
    _, body, _ = await ask("runs", RUN_ID, "pipeline", body={"first": 2, "last": 28})
    assert ([each["step"] for each in body["steps"]], body["left"]) == (list(range(9, 29)), 7)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"first": "x"}, 400, "first"),
        ({"first": -1}, 400, "first"),
        ({"first": 9, "last": 3}, 400, "last"),
        ({"replica": 2}, 400, "replica"),
        ({"replica": True}, 400, "replica"),
        ({"stages": 4}, 400, "stages"),
        ({"first": 31}, 404, None),
    ],
)
async def test_what_is_wrong_is_named(ask, folder, body, status, field):
    got, answer, _ = await ask("runs", RUN_ID, "pipeline", body=body)
    assert (got, answer.get("field")) == (status, field)


async def test_runs_without_spans_and_without_passes_are_told_apart(ask, folder):
    path = folder / "spans.parquet"
    table = parquet.read_table(path)
    path.unlink()
    assert (await ask("runs", RUN_ID, "pipeline", body={}))[:2] == (200, {"steps_there": None})
    parquet.write_table(table.filter([kind == "step" for kind in table["kind"].to_pylist()]), path)
    status, answer, _ = await ask("runs", RUN_ID, "pipeline", body={})
    assert (status, answer["code"]) == (404, "not-found")
    assert "timeline='phases'" in answer["message"]


async def test_no_run_and_no_login(ask, folder, http_server_client, jp_base_url):
    assert (await ask("runs", "nothing", "pipeline", body={}))[0] == 404
    refused = await http_server_client.fetch(
        f"{jp_base_url}megalens/api/runs/{RUN_ID}/pipeline", method="POST", body="{}", raise_error=False
    )
    assert refused.code == 403
