"""The endpoint of a run's timeline in a real Jupyter server."""

from __future__ import annotations

import pytest
from pyarrow import parquet
from recorded_run import RUN_ID, write_run

from bench.timeline.jobs import Fault, Job, simulate
from megalens.protocol import stream_schema

JOB = Job(1, 1, 2, micro_batches=2, steps=8, seed=4, faults=(Fault("device", (1,), 1.4, 1, 8),))


@pytest.fixture
def folder(jp_root_dir):
    path = write_run(jp_root_dir / "megalens-runs" / RUN_ID, steps=2, layers=1, nonfinite_at=None)
    schema = stream_schema("spans")
    parquet.write_table(simulate(JOB)[0].select(schema.names).cast(schema), path / "spans.parquet")
    return path


async def test_lanes_and_a_verdict_are_answered(ask, folder):
    status, body, _ = await ask("runs", RUN_ID, "timeline", body={"columns": 300})
    assert status == 200
    assert [each["ranks"] for each in body["verdict"]["culprits"]] == [[1]]
    assert [each["rank"] for each in body["lanes"]] == [0, 1]
    assert len(body["pieces"]["row"]) > 20


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"window": [3, 1]}, "window"),
        ({"ranks": "one"}, "ranks"),
        ({"colour": 1}, "colour"),
        ({"first": "x"}, "first"),
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
