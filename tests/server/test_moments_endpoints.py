"""Statistics of recorded and live runs over REST: what there is, rows, groups, and waiting for more."""

import asyncio
import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from recorded_moments import LAYERS, NAMES, SITES, moment_table, write_moments

from megalens.hub.segment_file import seal_tail
from megalens.protocol import STREAMS, encode_frame, merge_moments, read_moments, stream_schema

RUN = "20261120-101500-gpt-demo"


@pytest.fixture
def folder(jp_root_dir):
    return write_moments(jp_root_dir / "megalens-runs" / RUN)


def table_of(body):
    return pa.ipc.open_stream(body).read_all()


async def test_what_there_is_of_a_recorded_run(moments, folder):
    status, body, _ = await moments(RUN)
    assert status == 200
    assert body["stats"] == [
        {"stat": stat, "rows": 20 * len(NAMES), "first": 1, "last": 20, "steps": 20}
        for stat in ("param", "grad")
    ]
    assert sorted(body["names"]) == sorted(NAMES)
    assert (body["names_from"], body["samples"], body["warnings"]) == (0, True, [])
    again = (await moments(RUN))[1]
    assert again["version"] == body["version"]
    # Who knows the version is told no name twice.
    since = (await moments(RUN, params={"since": "0" + body["version"]}))[1]
    assert since["names_from"] == 0
    status, _, _ = await moments(RUN, params={"since": body["version"], "wait": "0"})
    assert status == 304


async def test_a_run_without_statistics_has_none(moments, folder):
    (folder / "moments.parquet").unlink()
    status, body, _ = await moments(RUN)
    assert (status, body["stats"], body["names"]) == (200, [], [])
    status, body, _ = await moments(RUN, "rows", body={"stats": ["param"]})
    assert (status, table_of(body).num_rows) == (200, 0)
    status, body, _ = await moments(RUN, "groups", body={"stat": "param", "statistic": "l2", "by": ["layer"]})
    assert (status, table_of(body).num_rows) == (200, 0)


async def test_rows_travel_as_numbers_with_what_repeats_as_dictionaries(moments, folder):
    body = {"stats": ["grad"], "where": {"layer": "1-2"}, "steps": [3, 5]}
    status, answer, headers = await moments(RUN, "rows", body=body)
    table = table_of(answer)
    assert status == 200
    assert headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    assert table.column_names == stream_schema("moments").names
    assert pa.types.is_dictionary(table.schema.field("name").type)
    assert table.schema.field("step").type == table.schema.field("samples").type == pa.float64()
    assert table.schema.field("rank").type == pa.int32()
    assert table["step"].to_pylist() == sorted(table["step"].to_pylist())
    wanted = moment_table(range(3, 6), ("grad",)).to_pylist()
    wanted = [row for row in wanted if row["name"].split(".")[2] in "12"]
    key = lambda row: (row["step"], row["name"])  # noqa: E731
    assert sorted(table.select(wanted[0].keys()).to_pylist(), key=key) == sorted(wanted, key=key)


async def test_more_rows_than_asked_for_are_refused_with_their_number(moments, folder):
    status, body, _ = await moments(RUN, "rows", body={"stats": ["param", "grad"], "limit_rows": 100})
    assert (status, body["code"], body["field"]) == (413, "too-large", "limit_rows")
    assert str(2 * 20 * len(NAMES)) in body["message"].replace(",", "")


async def test_groups_are_merged_on_the_server(moments, folder):
    body = {"stat": "param", "statistic": "kurtosis", "by": ["layer"]}
    status, answer, headers = await moments(RUN, "groups", body=body)
    table = table_of(answer)
    assert status == 200
    assert (headers["X-Megalens-Groups"], headers["X-Megalens-Steps"]) == (str(LAYERS), "20")
    assert table["layer"].to_pylist() == [layer for layer in range(LAYERS) for _ in range(20)]
    assert table["group"].to_pylist() == table["layer"].to_pylist()
    assert table["step"].to_pylist() == [*range(1, 21)] * LAYERS
    rows = moment_table([7], ("param",))
    columns = {name: rows[name].to_numpy() for name in ("count", "mean", "m2", "m3", "m4", "min", "max")}
    columns |= {name: np.zeros(len(NAMES)) for name in ("nan_count", "inf_count")}
    merged = merge_moments(columns, np.arange(len(NAMES)) // 2, LAYERS)
    at_seven = [
        value
        for value, step in zip(table["value"].to_pylist(), table["step"].to_pylist(), strict=True)
        if step == 7
    ]
    np.testing.assert_allclose(at_seven, read_moments(merged)["kurtosis"], rtol=1e-12)
    assert set(table["count"].to_pylist()) == {200.0}
    assert (
        set(table["nonfinite"].to_pylist())
        == set(table["scaled"].to_pylist())
        == set(table["error"].to_pylist())
        == {0.0}
    )


async def test_the_total_and_text_keys_and_fewer_points(moments, folder):
    status, answer, _ = await moments(RUN, "groups", body={"stat": "param", "statistic": "l2", "by": []})
    assert (status, set(table_of(answer)["group"].to_pylist())) == (200, {0})
    body = {"stat": "param", "statistic": "rms", "by": ["kind", "family", "rank"], "points": 4, "series": 1}
    status, answer, headers = await moments(RUN, "groups", body=body)
    table = table_of(answer)
    assert headers["X-Megalens-Groups"] == "2"
    assert set(table["group"].to_pylist()) == {0}
    assert set(table["kind"].to_pylist()) == {"weight"}
    assert 2 <= table.num_rows < 20


# That the schema is asked, and what it cannot say; tests/protocol/test_requests.py has what it says.
BAD_ROWS = [
    ({"stats": []}, "stats"),
    ({"stats": ["param"], "where": {"colour": "red"}}, "where.colour"),
    ({"stats": ["param"], "where": {"name": "("}}, None),
    ({"stats": ["param"], "where": {"layer": "3-1"}}, None),
    ({"stats": ["param"], "steps": [True, 4]}, "steps.0"),
    ("[]", None),
    ('{"stats": ["param"], "limit_rows": NaN}', "limit_rows"),
]
GROUPS = {"stat": "param", "statistic": "l2", "by": []}
BAD_GROUPS = [
    ({"statistic": "l2", "by": []}, "stat"),
    ({**GROUPS, "by": ["capture"]}, None),
    ({**GROUPS, "by": ["capture"], "pattern": "(a"}, None),
    ({**GROUPS, "steps": [0, 1e300]}, "steps.1"),
    ({**GROUPS, "ratio": "gain"}, "ratio"),
    ({**GROUPS, "drop": "table"}, "drop"),
]


async def test_what_cannot_be_asked_is_refused_by_name_and_nothing_breaks(moments, folder):
    for kind, cases in (("rows", BAD_ROWS), ("groups", BAD_GROUPS)):
        for body, field in cases:
            status, answer, _ = await moments(RUN, kind, body=body)
            assert status == 400, (body, answer)
            assert answer["code"] in ("bad-parameter", "bad-message"), body
            assert field is None or answer["field"] == field, (body, answer)
            assert len(answer["message"]) > 20
    for wait in ("-1", "31", "x", "nan", "inf"):
        status, answer, _ = await moments(RUN, params={"wait": wait})
        assert (status, answer["field"]) == (400, "wait")
    for run in ("no-such-run", "..", "%2e%2e", "a/b"):
        assert (await moments(run))[0] == 404
    status, _, _ = await moments(RUN, "rows", body={"stats": ["param"]})
    assert status == 200


async def test_inputs_and_outputs_do_not_mix_unless_asked(moments, folder):
    table = pa.concat_tables([moment_table([1], ("activation",), SITES)])
    pq.write_table(table, folder / "moments.parquet")
    body = {"stat": "activation", "statistic": "rms", "by": ["layer"]}
    status, answer, _ = await moments(RUN, "groups", body=body)
    assert (status, answer["code"], answer["field"]) == (400, "mixed", "mixed")
    assert (await moments(RUN, "groups", body={**body, "mixed": True}))[0] == 200
    assert (await moments(RUN, "groups", body={**body, "where": {"role": ["output"]}}))[0] == 200


async def test_a_file_that_is_none_is_unreadable_and_comes_back_once_it_is_one(moments, folder):
    whole = (folder / "moments.parquet").read_bytes()
    (folder / "moments.parquet").write_bytes(whole[: len(whole) // 2])
    status, answer, _ = await moments(RUN)
    assert (status, answer["code"]) == (409, "unreadable")
    assert str(folder) not in json.dumps(answer)
    (folder / "moments.parquet").write_bytes(whole)
    assert (await moments(RUN))[0] == 200


async def test_a_recording_that_is_replaced_while_it_is_open_is_read_anew(moments, folder):
    before = (await moments(RUN))[1]
    waiting = asyncio.ensure_future(moments(RUN, params={"since": before["version"], "wait": "30"}))
    other = moment_table(range(1, 6), ("param",), ["other.weight"])
    pq.write_table(other, folder / "new.parquet")
    (folder / "new.parquet").rename(folder / "moments.parquet")
    status, body, _ = await waiting
    assert status == 200
    assert [(entry["stat"], entry["rows"]) for entry in body["stats"]] == [("param", 5)]
    _, answer, _ = await moments(RUN, "rows", body={"stats": ["param", "grad"]})
    assert set(table_of(answer)["name"].to_pylist()) == {"other.weight"}


async def test_a_folder_that_goes_while_it_is_open_says_so(moments, folder):
    assert (await moments(RUN))[0] == 200
    shutil.rmtree(folder)
    status, answer, _ = await moments(RUN, "rows", body={"stats": ["param"]})
    assert status in (404, 409), answer
    assert str(folder) not in json.dumps(answer)


async def test_a_live_runs_statistics_come_to_who_waits_as_they_are_recorded(moments, live, outside):
    run = live("--record", outside)

    def send(step):
        table = moment_table([step], ("param",))
        run.send(encode_frame("moments", table, step=step))

    send(1)
    status, body, _ = await moments(run.id)
    while not body["stats"]:
        status, body, _ = await moments(run.id, params={"since": body["version"], "wait": "30"})
    assert [entry["last"] for entry in body["stats"]] == [1]
    for step in (2, 3):
        waiting = asyncio.ensure_future(moments(run.id, params={"since": body["version"], "wait": "30"}))
        send(step)
        status, body, _ = await waiting
        assert status == 200
        assert [(entry["last"], entry["rows"]) for entry in body["stats"]] == [(step, step * len(NAMES))]
        assert (body["names_from"], body["names"]) == (len(NAMES), [])
    # The recording is packed when the run ends; the same source goes on with the packed file.
    run.finish()
    status, body, _ = await moments(run.id, params={"since": body["version"], "wait": "30"})
    assert status == 200
    _, answer, _ = await moments(run.id, "rows", body={"stats": ["param"]})
    assert table_of(answer).num_rows == 3 * len(NAMES)


@pytest.mark.slow
async def test_many_rows_come_in_pieces(moments, folder):
    names = [f"layers.{n}.weight" for n in range(1000)]
    pq.write_table(moment_table(range(1, 141), ("param",), names), folder / "moments.parquet")
    status, answer, _ = await moments(RUN, "rows", body={"stats": ["param"]})
    table = table_of(answer)
    assert (status, table.num_rows, table["mean"].num_chunks) == (200, 140_000, 9)
    assert table["mean"].to_pylist() == table["step"].to_pylist()


async def test_a_server_with_recordings_gets_ready_for_questions_while_nobody_asks(
    jp_serverapp, folder, monkeypatch
):
    reader = jp_serverapp.web_app.settings["megalens_reader"]
    monkeypatch.setattr("megalens.server.extension._QUIET_SECONDS", 0.0)
    [extension] = jp_serverapp.extension_manager.extension_apps["megalens.server"]
    kept = folder.parent.with_name("kept")

    async def start():
        await extension._start_jupyter_server_extension(jp_serverapp)
        await asyncio.sleep(0.3)

    shutil.move(folder, kept)
    await start()
    assert reader.pid is None
    shutil.move(kept, folder)
    async with asyncio.timeout(20):
        while (first := reader.pid) is None:
            await start()
    await start()
    assert reader.pid == first


async def test_a_server_that_lists_a_live_run_with_a_recording_gets_ready_for_questions(
    ask, live, outside, jp_serverapp
):
    reader = jp_serverapp.web_app.settings["megalens_reader"]
    other = live()
    other.step(1)
    await ask("runs")
    assert reader.pid is None
    live("--record", outside).step(1)
    async with asyncio.timeout(20):
        while (first := reader.pid) is None:
            await ask("runs")
    await ask("runs")
    assert reader.pid == first


@pytest.mark.slow
def test_the_libraries_of_questions_are_all_loaded_before_the_first(tmp_path):
    # As a hub packs it.
    rows = moment_table(range(1, 21))
    rows = rows.take(pc.sort_indices(rows, [("step", "ascending")]))
    (tmp_path / RUN).mkdir()
    with pa.ipc.new_stream(tmp_path / RUN / "moments.arrows", rows.schema) as writer:
        writer.write_table(rows)
    seal_tail(tmp_path / RUN / "moments.arrows", STREAMS["moments"])
    program = """
import sys
from pathlib import Path
from megalens.runs.moments import MomentQuery, MomentSource, RecordedRows, load_libraries
load_libraries()
libraries = lambda: {name.partition(".")[0] for name in sys.modules}
before = libraries()
source = MomentSource(RecordedRows(Path(sys.argv[1])))
source.refresh()
source.index()
source.groups(MomentQuery.of_request(**{"stat": "grad", "by": ["layer"], "points": 5}, lean=True))
source.rows(["grad"])
print(*sorted(libraries() - before | {"duckdb"} & before))
"""
    run = [sys.executable, "-c", program, str(tmp_path / RUN)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.split() == []
