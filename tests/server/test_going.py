"""A run that goes from live to gone is there at every moment in between."""


async def test_a_killed_hub_leaves_no_gap(ask, live, outside):
    run = live("--record", outside)
    run.step(3)
    states = []
    assert (await ask("runs", run.id))[1]["state"] == "live"
    run.kill_hub()
    for _ in range(40):
        status, body, _ = await ask("runs", run.id)
        assert status == 200, body
        states.append("recorded" if "hello" in body else body["state"])
        await ask("runs")
    assert states[-1] == "recorded"
    assert "live" not in states[states.index("recorded") :]


async def test_a_run_without_a_recording_is_gone_and_not_unknown(ask, live):
    run = live()
    run.step(3)
    assert (await ask("runs", run.id))[1]["state"] == "live"
    run.kill_hub()
    status, body, _ = await ask("runs", run.id)
    assert (status, body["id"], body["state"], body["folder"]) == (200, run.id, "gone", None)
    # There is nothing to look at, so it is not in the list.
    assert [entry["id"] for entry in (await ask("runs"))[1]["runs"]] == []
    status, body, _ = await ask("runs", run.id, "index")
    assert status == 404


async def test_a_run_that_never_was_is_unknown(ask):
    status, body, _ = await ask("runs", "no-such-run")
    assert (status, body["code"]) == (404, "not-found")
