"""Rows of a stream that the server does not know, by what its recording declares."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from weight_norms import DECLARED, NORMS, rows

RUN = "20261120-101500-gpt-demo"


@pytest.fixture
def normed(run_folder):
    """A recording that has norms of weights too."""
    header = json.loads((run_folder / "run.json").read_text())
    (run_folder / "run.json").write_text(json.dumps({**header, "announced": DECLARED}))
    table = pa.Table.from_pylist([row for step in range(1, 9) for row in rows(step)], NORMS.schema)
    pq.write_table(table, run_folder / "weight_norms.parquet")
    return run_folder


def norms_of(body):
    return pa.ipc.open_stream(body).read_all().to_pylist()


async def test_its_rows_are_answered_and_it_is_declared(ask, normed):
    _, detail, _ = await ask("runs", RUN)
    assert detail["hello"]["streams"]["weight_norms"]["policy"] == DECLARED["weight_norms"]["policy"]
    status, body, _ = await ask("runs", RUN, "streams", "weight_norms", body={})
    assert status == 200
    assert norms_of(body) == [row for step in range(1, 9) for row in rows(step)]


async def test_it_is_asked_for_by_what_its_policy_allows(ask, normed):
    asked = {"where": {"name": "lm_head"}, "steps": [3, 4]}
    status, body, _ = await ask("runs", RUN, "streams", "weight_norms", body=asked)
    assert status == 200
    assert norms_of(body) == [rows(3)[1], rows(4)[1]]


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ({"value": 1}, "where"),
        ({"name": 1}, "where"),
        ([], "where"),
        ({"name": 1.5}, "where.name"),
        ({"other": "x"}, "where"),
    ],
)
async def test_what_it_cannot_be_asked_for_is_refused(ask, normed, where, field):
    status, body, _ = await ask("runs", RUN, "streams", "weight_norms", body={"where": where})
    assert (status, body["code"], body["field"]) == (400, "bad-parameter", field)


async def test_a_stream_that_nobody_declared_is_not_found(ask, normed):
    status, body, _ = await ask("runs", RUN, "streams", "nothing", body={})
    assert (status, body["field"]) == (404, "stream")
    assert "weight_norms" in body["message"]


async def test_a_declaration_that_cannot_be_read_is_said_and_hides_nothing_else(ask, normed):
    header = json.loads((normed / "run.json").read_text())
    odd = {"odd": {"title": "x", "policy": 3, "fields": []}, "../odd": DECLARED["weight_norms"]}
    (normed / "run.json").write_text(json.dumps({**header, "announced": {**DECLARED, **odd}}))
    status, detail, _ = await ask("runs", RUN)
    assert status == 200
    assert "weight_norms" in detail["hello"]["streams"]
    assert "odd" not in detail["hello"]["streams"]
    assert any("odd" in text for text in detail["status"]["warnings"])
