"""The endpoint of a run's timeline in a real Jupyter server."""

from __future__ import annotations

import json

import pytest
from recorded_run import RUN_ID
from span_rows import recorded

from megalens.instruments.timeline import timeline_answer
from tests.kit.simulated_jobs import Fault, Job

JOB = Job(1, 1, 2, micro_batches=2, steps=8, seed=4, faults=(Fault("device", (1,), 1.4, 1, 8),))


@pytest.fixture
def folder(jp_root_dir):
    path = jp_root_dir / "megalens-runs" / RUN_ID
    recorded(path, JOB)
    return path


async def test_lanes_and_a_verdict_are_answered(ask, folder):
    status, body, _ = await ask("runs", RUN_ID, "timeline", body={"columns": 300})
    assert status == 200
    assert [each["ranks"] for each in body["verdict"]["culprits"]] == [[1]]
    assert [each["rank"] for each in body["lanes"]] == [0, 1]
    assert len(body["pieces"]["row"]) > 20


async def test_lanes_alone_are_answered_where_they_will_do(ask_reader, folder, monkeypatch):
    monkeypatch.setattr(timeline_answer, "_DRAFT_ROWS", 10)
    wanted = {"ranks": "0", "first": 2, "draft": True}
    _, body = await ask_reader("runs", RUN_ID, "timeline", body=wanted)
    assert (body["draft"], body["verdict"]["culprits"]) == (True, [])
    assert [each["rank"] for each in body["lanes"]] == [0]
    _, body = await ask_reader("runs", RUN_ID, "timeline", body={"ranks": "0", "first": 2})
    assert [each["ranks"] for each in body["verdict"]["culprits"]] == [[1]]
    # Now it is known.
    _, body = await ask_reader("runs", RUN_ID, "timeline", body=wanted)
    assert [each["ranks"] for each in body["verdict"]["culprits"]] == [[1]]


async def test_the_critical_path_and_spans_that_are_searched_for_are_answered(ask, folder):
    _, body, _ = await ask("runs", RUN_ID, "timeline", body={"path": True, "find": "optimizer"})
    assert {each["rank"] for each in body["path"]} == {0, 1}
    assert body["found"]["count"] == 2 * 8
    _, body, _ = await ask("runs", RUN_ID, "timeline", body={})
    assert (body["path"], body["found"]) == ([], {"count": 0, "since": 0, "first": []})


async def test_traces_of_other_tools_open_as_runs(ask, jp_root_dir):
    folder = jp_root_dir / "traces"
    folder.mkdir()
    events = [
        {"ph": "X", "name": name, "pid": rank, "tid": 0, "ts": begin, "dur": 40, "args": {"step": 1}}
        for rank in (0, 1)
        for name, begin in (("forward", 0), ("backward", 50))
    ]
    (folder / "job.json").write_text(json.dumps({"traceEvents": events}))
    status, body, _ = await ask("statistics", body={"path": "traces"})
    assert status == 200
    (entry,) = body["runs"]
    assert (entry["name"], entry["state"]) == ("traces", "recorded")
    _, body, _ = await ask("runs", entry["id"], "timeline", body={})
    assert [each["rank"] for each in body["lanes"]] == [0, 1]
    # It is in the list from now on, and stays one run.
    assert entry["id"] in [each["id"] for each in (await ask("runs"))[1]["runs"]]
    assert (await ask("statistics", body={"path": "traces"}))[1]["runs"][0]["id"] == entry["id"]


async def test_traces_outside_of_the_root_are_not_read(ask, jp_root_dir, tmp_path):
    outside = tmp_path / "elsewhere.json"
    outside.write_text('{"traceEvents": [{"ph": "X", "name": "forward", "pid": 0, "ts": 0, "dur": 4}]}')
    folder = jp_root_dir / "traces"
    folder.mkdir()
    (folder / "job.json").symlink_to(outside)
    assert (await ask("statistics", body={"path": "traces"}))[0] == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"window": [3, 1]}, "window"),
        ({"ranks": "one"}, "ranks"),
        ({"colour": 1}, "colour"),
        ({"first": "x"}, "first"),
        ({"path": 1}, "path"),
        ({"find": ["x"]}, "find"),
        ({"find": "x" * 201}, "find"),
    ],
)
async def test_what_is_wrong_is_named(ask, folder, body, field):
    status, answer, _ = await ask("runs", RUN_ID, "timeline", body=body)
    assert (status, answer["field"]) == (400, field)


async def test_no_run_and_no_login(ask, folder, http_server_client, jp_base_url):
    assert (await ask("runs", "nothing", "timeline", body={}))[0] == 404
    refused = await http_server_client.fetch(
        f"{jp_base_url}megalens/api/runs/{RUN_ID}/timeline", method="POST", body="{}", raise_error=False
    )
    assert refused.code == 403
