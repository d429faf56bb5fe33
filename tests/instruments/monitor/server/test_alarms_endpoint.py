"""How many alarms other thresholds would have given: counted by the server, in the recording."""

from __future__ import annotations

import asyncio
import threading
import time

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from recorded_moments import write_moments

import megalens
from megalens.instruments.monitor import endpoints, recorded
from megalens.instruments.monitor.recorded import count_alarms

RUN = "20261120-101500-gpt-demo"


@pytest.fixture
def folder(jp_root_dir):
    folder = write_moments(jp_root_dir / "megalens-runs" / RUN)
    # Gradients of one step are ten times as large as before.
    table = pq.read_table(folder / "moments.parquet")
    far = pc.and_(pc.equal(table["step"], 18), pc.equal(table["stat"], "grad"))
    for name, times in (("mean", 10.0), ("min", 10.0), ("max", 10.0), ("m2", 100.0)):
        values = pc.if_else(far, pc.multiply(table[name], times), table[name])
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)
    pq.write_table(table, folder / "moments.parquet")
    return folder


@pytest.mark.slow
async def test_the_number_is_that_of_check(ask, folder):
    low = {"threshold": 2, "factor": 2, "gradient_factor": 2}
    for settings in ({}, {"rules": {"jump": {**low, "on": False}}}, {"rules": {"jump": low}}):
        status, body, _ = await ask("runs", RUN, "alarms", "count", body={"settings": settings})
        whole = count_alarms(megalens.open(folder), settings)
        assert status == 200, body
        assert body == {name: whole[name] for name in ("steps", "alarms", "rules", "whole")}
        assert (body["steps"], body["whole"]) == (20, True)
    assert body["rules"]["jump"] >= 1


async def test_rules_of_the_script_itself_are_left_out(ask, folder):
    settings = {"rules": {"loss_above_five": {"on": True}}}
    status, body, _ = await ask("runs", RUN, "alarms", "count", body={"settings": settings})
    assert (status, body["steps"]) == (200, 20)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "settings"),
        ({"settings": 3}, 400, "settings"),
        ({"settings": {}, "steps": 3}, 400, "steps"),
        (
            {"settings": {"rules": {"jump": {"threshold": "x"}}}},
            400,
            "instruments.monitor.rules.jump.threshold",
        ),
        ({"settings": {"muted": ["x" * 70_000]}}, 400, "instruments"),
    ],
)
async def test_what_is_wrong_is_named(ask, folder, body, status, field):
    got, answer, _ = await ask("runs", RUN, "alarms", "count", body=body)
    assert (got, answer["field"]) == (status, field)


async def test_no_run_and_no_login(ask, jp_fetch, folder, http_server_client, jp_base_url):
    assert (await ask("runs", "nothing", "alarms", "count", body={"settings": {}}))[0] == 404
    refused = await http_server_client.fetch(
        f"{jp_base_url}megalens/api/runs/{RUN}/alarms/count",
        method="POST",
        body='{"settings":{}}',
        raise_error=False,
    )
    assert refused.code == 403


async def test_counting_is_bounded_and_does_not_hold_the_reader(ask_reader, folder, monkeypatch):
    monkeypatch.setattr(endpoints, "_MOST_SECONDS", 0.2)
    of_run = recorded.recorded_steps

    asked = threading.Event()

    def slow(*given):
        for step in of_run(*given):
            assert asked.wait(60)
            time.sleep(0.1)
            yield step

    monkeypatch.setattr(recorded, "recorded_steps", slow)
    counting = asyncio.ensure_future(ask_reader("runs", RUN, "alarms", "count", body={"settings": {}}))
    # Others are answered while the count waits for just that.
    assert (await ask_reader("runs", RUN))[0] == 200
    assert not counting.done()
    asked.set()
    status, body = await counting
    assert (status, body["whole"]) == (200, False)
    assert 1 <= body["steps"] < 20
