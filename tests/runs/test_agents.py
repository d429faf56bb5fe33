"""What an agent is told of runs: asked by the protocol's own client, of a process that it starts."""

import asyncio
import json
import os
import sys

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from recorded_run import RUN_ID, write_run

from megalens.cli.agents import agent_server
from megalens.runs import open_run


def ask_all(server, *questions):
    """Return what a server answers to (tool, arguments), and the names of its tools first."""

    async def ask():
        async with Client(server) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return [tools, *[await client.call_tool(name, given) for name, given in questions]]

    return asyncio.run(ask())


def told(result):
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


def test_an_agent_reads_runs_by_a_process_of_its_own(tmp_path, runtime):
    folder = write_run(tmp_path / "megalens-runs" / RUN_ID)
    server = stdio_client(
        StdioServerParameters(
            command=sys.executable,
            args=["-m", "megalens", "mcp", "--folder", str(folder.parent)],
            env={"MEGALENS_RUNTIME_DIR": str(runtime), "PYTHONPATH": os.pathsep.join(sys.path)},
        ),
        # The one of this module's import may be closed.
        errlog=sys.__stderr__,
    )
    tools, runs, info, digest, scalars, picture, elsewhere = ask_all(
        server,
        ("list_runs", {}),
        ("run_info", {"run": RUN_ID}),
        ("digest", {"run": "gpt-demo"}),
        ("scalars", {"run": RUN_ID, "names": ["loss"], "steps": "3-5"}),
        ("picture", {"run": RUN_ID, "view": "scalars"}),
        ("run_info", {"run": str(folder)}),
    )
    assert not {"pause", "trace"} & set(tools)
    with open_run(folder) as run:
        assert told(runs)["id"] == run.id
        assert told(info)["step"] == run.step
        assert told(scalars)["columns"]["value"] == run.scalars("loss", steps="3-5")["value"].to_pylist()
    assert "## loss" in digest.content[0].text
    assert "<svg" in picture.content[1].resource.text
    # No tool takes a path.
    assert elsewhere.is_error
    assert "list_runs says which there are" in elsewhere.content[0].text


def test_a_run_is_changed_only_where_that_was_allowed(live):
    run = live()
    asked = ("trace", {"run": run.id, "flag": "MLP1_mat_mul", "layers": "1", "every": 2})
    _, refused = ask_all(agent_server([]), asked)
    assert refused.is_error
    _, wrong, *_ = ask_all(
        agent_server([], changes=True), ("trace", {"run": run.id, "flag": "Nope"}), ("list_runs", {})
    )
    assert wrong.is_error
    assert "Nope" in wrong.content[0].text


def test_many_rows_are_thinned_with_both_ends_and_what_is_not_finite_is_text():
    import pyarrow as pa

    from megalens.cli.agents import _rows

    found = _rows(
        pa.table({"step": range(9_000), "value": [float("nan")] * 9_000, "values": [[1.0]] * 9_000})
    )
    assert (found["rows"], found["shown"]) == (9_000, 2_000)
    assert found["columns"]["step"][0] == 0
    assert found["columns"]["step"][-1] == 8_999
    assert set(found["columns"]) == {"step", "value"}
    assert set(found["columns"]["value"]) == {"nan"}


@pytest.mark.parametrize("name", ["digest", "compare_runs"])
def test_the_words_of_a_tool_tell_an_agent_what_it_gives(name):
    async def tools():
        async with Client(agent_server([])) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    assert asyncio.run(tools())[name].description.startswith("Say ")
