"""The REST endpoints over recorded runs."""

import json
import math
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_run import tensor, write_run

from megalens.protocol import LAST_STEP, stream_schema
from megalens.protocol.messages import check_message

RUN = "20261120-101500-gpt-demo"


def table_of(body):
    return pa.ipc.open_stream(body).read_all()


def as_arrows(folder, stream, cut=0):
    """Turn a Parquet stream back into a growing file, one message a step, less ``cut`` bytes."""
    table = pq.read_table(folder / f"{stream}.parquet")
    data = bytes(stream_schema(stream).serialize())
    for start in range(0, table.num_rows, 8):
        piece = table.slice(start, 8).cast(stream_schema(stream)).combine_chunks().to_batches()[0]
        data += bytes(piece.serialize())
    (folder / f"{stream}.arrows").write_bytes(data[: len(data) - cut])
    (folder / f"{stream}.parquet").unlink()
    return table


def edit(folder, **changes):
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, **changes}))


async def test_a_recorded_run_is_listed_with_its_folder_relative_to_the_root(ask, run_folder):
    status, body, _ = await ask("runs")
    assert status == 200
    assert body["runs"] == [
        {
            "id": RUN,
            "name": "gpt-demo",
            "job": "gpt-demo",
            "state": "recorded",
            "started": 1795000000.0,
            "ended": 1795000040.0,
            "step": 40,
            "folder": f"megalens-runs/{RUN}",
            "bytes": sum(file.stat().st_size for file in run_folder.iterdir()),
        }
    ]


async def test_a_run_outside_the_root_has_no_folder(ask, run_folder, outside):
    shutil.move(run_folder, outside / run_folder.name)
    _, body, _ = await ask("runs")
    assert [(run["id"], run["folder"]) for run in body["runs"]] == [(RUN, None)]


async def test_runs_are_listed_newest_first(ask, run_folder):
    newer = run_folder.with_name("newer")
    shutil.copytree(run_folder, newer)
    edit(newer, run={"id": "newer", "name": "newer", "started": 1796000000.0})
    _, body, _ = await ask("runs")
    assert [run["id"] for run in body["runs"]] == ["newer", RUN]


async def test_a_recorded_run_describes_itself_in_messages_of_the_protocol(ask, run_folder):
    status, body, _ = await ask("runs", RUN)
    assert status == 200
    check_message(body["hello"])
    check_message(body["status"])
    assert body["status"]["state"] == "finished"
    assert body["status"]["recording"]["missing_steps"] == [[8, 9]]
    assert body["status"]["warnings"] == ["The recording lacks steps 8 to 9."]
    assert body["truncated"] == []


async def test_a_run_that_nobody_closed_is_gone_and_says_what_is_cut_short(ask, run_folder):
    edit(run_folder, ended=None, state="training", streams={})
    whole = as_arrows(run_folder, "tensors", cut=11)
    as_arrows(run_folder, "scalars")
    _, body, _ = await ask("runs")
    assert body["runs"][0]["state"] == "gone"
    _, body, _ = await ask("runs", RUN)
    assert body["truncated"] == ["tensors"]
    assert body["status"]["state"] == "lost"
    assert body["status"]["step"] == 40
    assert any("tensors stream was cut short" in warning for warning in body["status"]["warnings"])
    status, body, _ = await ask("runs", RUN, "streams", "tensors", body={})
    found = table_of(body)
    assert status == 200
    assert whole.num_rows - 8 <= found.num_rows < whole.num_rows
    assert found.equals(whole.cast(found.schema).slice(0, found.num_rows)) or found["step"].equals(
        whole["step"].slice(0, found.num_rows)
    )


async def test_damage_within_a_stream_is_said_once_somebody_has_read_up_to_it(ask, run_folder):
    table = pq.read_table(run_folder / "tensors.parquet").cast(stream_schema("tensors")).combine_chunks()
    (run_folder / "tensors.parquet").unlink()
    whole, spoiled, last = (bytes(batch.serialize()) for batch in table.to_batches(table.num_rows // 3 + 1))
    spoiled = spoiled[: len(spoiled) // 2] + b"\xee" * (len(spoiled) - len(spoiled) // 2)
    (run_folder / "tensors.arrows").write_bytes(bytes(table.schema.serialize()) + whole + spoiled + last)
    assert (await ask("runs", RUN))[1]["truncated"] == []
    _, body, _ = await ask("runs", RUN, "streams", "tensors", body={})
    assert table_of(body).num_rows == table.num_rows // 3 + 1
    _, body, _ = await ask("runs", RUN)
    assert body["truncated"] == ["tensors"]
    assert any("tensors stream was cut short" in warning for warning in body["status"]["warnings"])
    # Another file in its place is another matter.
    (run_folder / "tensors.arrows").write_bytes(bytes(table.schema.serialize()) + whole + last)
    assert (await ask("runs", RUN))[1]["truncated"] == []


async def test_a_run_folder_of_a_newer_format_is_not_listed_and_not_read(ask, run_folder):
    edit(run_folder, format=3)
    _, body, _ = await ask("runs")
    assert body["runs"] == []
    status, body, _ = await ask("runs", RUN)
    assert (status, body["code"]) == (404, "not-found")


async def test_the_index_names_flags_parts_layers_and_steps(ask, run_folder):
    status, body, _ = await ask("runs", RUN, "index")
    assert status == 200
    found = {entry["flag"]: entry for entry in body["tensors"]}
    assert found["MLP1_mat_mul"] == {
        "flag": "MLP1_mat_mul",
        "phase": "train",
        "pass": "forward",
        "parts": [""],
        "layers": [0, 1, 2, 3],
        "ranks": [0],
        "steps": list(range(1, 41)),
    }
    assert found["QKV_mat_mul"]["parts"] == ["k", "q", "v"]


@pytest.mark.parametrize("form", ["parquet", "arrows"])
async def test_a_stream_answers_just_the_rows_asked_for(ask, run_folder, form):
    if form == "arrows":
        as_arrows(run_folder, "tensors")
    query = {"flag": "MLP1_mat_mul", "layers": [0, 1, 3], "steps": [10, 12], "phase": "train", "part": ""}
    status, body, headers = await ask("runs", RUN, "streams", "tensors", body=query)
    table = table_of(body)
    assert (status, headers["Content-Type"]) == (200, "application/vnd.apache.arrow.stream")
    assert table.schema.equals(stream_schema("tensors"), check_metadata=True)
    assert list(zip(table["step"].to_pylist(), table["layer"].to_pylist(), strict=True)) == [
        (step, layer) for step in (10, 11, 12) for layer in (0, 1, 3)
    ]
    assert "X-Megalens-Sampled-Every" not in headers


async def test_ranks_and_passes_are_kept_apart(ask, run_folder):
    values = np.ones((1, 2, 3), dtype=np.float32)
    more = [
        tensor(step, layer, "HiddenStates", "", "NoOp()", values * rank, **{"rank": rank, "pass": pass_})
        for step in (1, 2)
        for rank, layer in ((2, 1), (3, 1), (3, 2))
        for pass_ in ("forward", "backward")
    ]
    shutil.rmtree(run_folder)
    write_run(run_folder, more=more)
    _, body, _ = await ask("runs", RUN, "index")
    found = [entry for entry in body["tensors"] if entry["flag"] == "HiddenStates"]
    assert [(entry["pass"], entry["ranks"]) for entry in found] == [("backward", [2, 3]), ("forward", [2, 3])]

    async def rows(**query):
        query = {"flag": "HiddenStates", "pass": "backward", **query}
        _, body, _ = await ask("runs", RUN, "streams", "tensors", body=query)
        table = table_of(body)
        assert set(table["pass"].to_pylist()) <= {"backward"}
        return sorted(
            zip(table["step"].to_pylist(), table["layer"].to_pylist(), table["rank"].to_pylist(), strict=True)
        )

    assert await rows(rank="lowest") == [(1, 1, 2), (1, 2, 3), (2, 1, 2), (2, 2, 3)]
    # Layer 0 of rank 3 is a replica's, also where only later steps are asked for.
    assert await rows(rank="lowest", steps=[2, LAST_STEP]) == [(2, 1, 2), (2, 2, 3)]
    assert await rows(rank=3, steps=[0, 1]) == [(1, 1, 3), (1, 2, 3)]
    assert await rows(rank=7) == []


@pytest.mark.parametrize("form", ["parquet", "arrows"])
async def test_the_newest_measured_row_of_each_layer_is_found(ask, run_folder, form):
    values = np.ones((1, 2, 3), dtype=np.float32)
    errors = {(2, 1): 0.25, (6, 1): 0.5, (4, 2): 0.125}
    more = [
        tensor(
            step,
            layer,
            "HiddenStates",
            "",
            "NoOp()",
            values,
            compression_error=errors.get((step, layer), math.nan),
        )
        for step in range(1, 9)
        for layer in (1, 2)
    ]
    shutil.rmtree(run_folder)
    write_run(run_folder, more=more)
    if form == "arrows":
        as_arrows(run_folder, "tensors")

    async def measured(last):
        query = {"flag": "HiddenStates", "rank": "lowest", "measured": True, "steps": [0, last]}
        _, body, _ = await ask("runs", RUN, "streams", "tensors", body=query)
        table = table_of(body)
        columns = (table[name].to_pylist() for name in ("step", "layer", "compression_error"))
        return sorted(zip(*columns, strict=True))

    assert await measured(8) == [(4, 2, 0.125), (6, 1, 0.5)]
    assert await measured(5) == [(2, 1, 0.25), (4, 2, 0.125)]
    assert await measured(1) == []


async def test_a_recording_from_before_errors_were_measured_has_no_measured_row(ask, run_folder):
    table = pq.read_table(run_folder / "tensors.parquet")
    pq.write_table(table.drop_columns(["compression_error"]), run_folder / "tensors.parquet")
    query = {"flag": "MLP1_mat_mul", "measured": True}
    status, body, _ = await ask("runs", RUN, "streams", "tensors", body=query)
    assert (status, table_of(body).num_rows) == (200, 0)


async def test_non_finite_values_cross_as_they_are(ask, run_folder):
    query = {"flag": "MLP1_mat_mul", "layers": [1], "steps": [30, 30]}
    _, body, _ = await ask("runs", RUN, "streams", "tensors", body=query)
    values = table_of(body)["values"][0].values.to_numpy()
    kinds = [str(value) for value in values if not abs(value) < 1e30]
    assert sorted(kinds) == ["-inf", "inf", "nan"]


@pytest.mark.parametrize("stream", ["scalars", "audit"])
async def test_the_other_streams_come_whole(ask, run_folder, stream):
    status, body, _ = await ask("runs", RUN, "streams", stream, body={})
    assert status == 200
    assert table_of(body).num_rows == pq.read_table(run_folder / f"{stream}.parquet").num_rows


@pytest.mark.parametrize("form", ["parquet", "arrows"])
async def test_of_each_row_just_the_columns_asked_for_come(ask, run_folder, form):
    if form == "arrows":
        as_arrows(run_folder, "tensors")
    asked = {"flag": "MLP1_mat_mul", "layers": [1], "steps": [3, 4]}
    columns = ["nan_count", "layer"]
    status, body, _ = await ask("runs", RUN, "streams", "tensors", body={**asked, "columns": columns})
    table = table_of(body)
    fields = [stream_schema("tensors").field(name) for name in ("step", "layer", "nan_count")]
    assert status == 200
    assert table.schema.equals(pa.schema(fields), check_metadata=True)
    assert (table["step"].to_pylist(), table["layer"].to_pylist()) == ([3, 4], [1, 1])


async def test_steps_are_not_thinned_for_columns_that_nobody_asked_for(ask, run_folder):
    query = {"flag": "MLP1_mat_mul", "limit_bytes": 60_000, "columns": ["layer"]}
    status, body, headers = await ask("runs", RUN, "streams", "tensors", body=query)
    assert status == 200
    assert "X-Megalens-Sampled-Every" not in headers
    assert sorted(set(table_of(body)["step"].to_pylist())) == list(range(1, 41))


@pytest.mark.parametrize("columns", ["layer", [1], ["colour"]])
async def test_columns_that_there_are_not_are_refused(ask, run_folder, columns):
    status, body, _ = await ask("runs", RUN, "streams", "tensors", body={"columns": columns})
    assert (status, body["code"], body["field"]) == (
        400,
        "bad-parameter",
        "columns.0" if columns == [1] else "columns",
    )


async def test_a_text_that_is_too_long_with_its_candidates_comes_without_them(ask, run_folder):
    candidates = {
        "candidate_ids": list(range(20)),
        "candidate_texts": [f" word {at}" for at in range(20)],
        "candidate_probabilities": [0.05] * 20,
    }
    empty = {
        each.name: [] if pa.types.is_list(each.type) else "" if pa.types.is_string(each.type) else 0
        for each in stream_schema("tokens")
    }
    rows = [{**empty, **candidates, "generation": 1, "position": at, "piece": " a"} for at in range(3000)]
    pq.write_table(pa.Table.from_pylist(rows, stream_schema("tokens")), run_folder / "tokens.parquet")

    async def tokens(**query):
        where = {"generation": 1, **query.pop("where", {})}
        params = {"where": where, "limit_bytes": 500_000, **query}
        return await ask("runs", RUN, "streams", "tokens", body=params)

    status, body, _ = await tokens()
    assert (status, body["code"]) == (413, "too-large")
    status, body, _ = await tokens(columns=["position", "piece"])
    assert (status, table_of(body)["position"].to_pylist()) == (200, list(range(3000)))
    status, body, _ = await tokens(where={"position": 7})
    assert (status, table_of(body)["candidate_ids"].to_pylist()) == (200, [list(range(20))])


async def test_a_stream_that_was_never_recorded_is_empty_and_typed(ask, run_folder):
    (run_folder / "audit.parquet").unlink()
    status, body, _ = await ask("runs", RUN, "streams", "audit", body={})
    assert status == 200
    assert table_of(body).schema.equals(stream_schema("audit"))


async def test_steps_are_thinned_until_they_fit_and_those_that_depart_and_the_newest_stay(ask, run_folder):
    path = run_folder / "tensors.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    mine = [row for row in rows if row["flag"] == "MLP1_mat_mul"]
    for row in mine:
        row["min"], row["max"] = -(10.0 ** row["layer"]), 10.0 ** row["layer"] * (1 + row["step"] / 1000)
        # Small beside other layers, large beside its own; and one that falls to nothing.
        if (row["step"], row["layer"]) == (13, 0):
            row["max"] = 5.0
        if row["step"] == 22:
            row["min"] = row["max"] = 0.0
        if (row["step"], row["layer"]) == (31, 1):
            row["nan_count"] = 1
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    query = {"flag": "MLP1_mat_mul", "limit_bytes": 60_000}
    status, body, headers = await ask("runs", RUN, "streams", "tensors", body=query)
    every = int(headers["X-Megalens-Sampled-Every"])
    found = table_of(body)["step"].to_pylist()
    steps = sorted(set(found))
    assert status == 200
    assert every > 1
    assert len(body) <= 60_000
    assert {13, 22, 31, 40} <= set(steps)
    # Of every so many before the newest one.
    assert [(39 - step) // every for step in steps[:-1]] == list(range(-(-39 // every)))[::-1]
    assert all(found.count(step) == 4 for step in steps)


async def test_one_step_that_does_not_fit_is_refused_with_the_way_out(ask, run_folder):
    query = {"flag": "MLP1_mat_mul", "limit_bytes": 9000}
    status, body, _ = await ask("runs", RUN, "streams", "tensors", body=query)
    assert (status, body["code"], body["field"]) == (413, "too-large", "limit_bytes")
    assert "fewer layers" in body["message"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"layers": [0, -2]}, "layers.1"),
        ({"limit_bytes": 0}, "limit_bytes"),
        ({"phase": "sleep"}, "phase"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_bad_parameter_is_named(ask, run_folder, query, field):
    status, body, _ = await ask("runs", RUN, "streams", "tensors", body=query)
    assert (status, body["code"], body["field"]) == (400, "bad-parameter", field)


@pytest.mark.parametrize(
    "path",
    [
        ("runs", "no-such-run"),
        ("runs", "no-such-run", "index"),
        ("runs", "no-such-run", "streams", "tensors"),
        ("runs", ".."),
        ("runs", "..", "streams", "tensors"),
        ("runs", "a" * 300),
        ("runs", RUN, "streams", "passwords"),
        ("nothing",),
    ],
)
async def test_what_is_not_there_is_a_typed_404(ask, run_folder, path):
    status, body, _ = await ask(*path, body={} if "streams" in path else None)
    assert status == 404
    if path != ("nothing",) and ".." not in path:
        assert body["code"] == "not-found"


@pytest.mark.parametrize("run", ["%2e%2e%2fsecret", "..%2f..%2fetc", f"x%2f{RUN}", "%00", "a%0ab"])
async def test_an_encoded_path_is_no_run(http_server_client, jp_base_url, jp_auth_header, run_folder, run):
    (run_folder.parent.parent / "secret").mkdir()
    shutil.copy(run_folder / "run.json", run_folder.parent.parent / "secret" / "run.json")
    url = f"{jp_base_url}megalens/api/runs/{run}/streams/audit"
    answer = await http_server_client.fetch(
        url, method="POST", body="{}", headers=jp_auth_header, raise_error=False
    )
    assert answer.code in (400, 404)


async def test_a_link_to_a_stream_outside_is_not_followed(ask, run_folder, tmp_path):
    secret = tmp_path / "secret.parquet"
    shutil.move(run_folder / "audit.parquet", secret)
    (run_folder / "audit.parquet").symlink_to(secret)
    _, body, _ = await ask("runs", RUN, "streams", "audit", body={})
    assert table_of(body).num_rows == 0


async def test_renaming_writes_run_json_and_keeps_the_rest(ask, run_folder):
    before = json.loads((run_folder / "run.json").read_text())
    status, body, _ = await ask("runs", RUN, method="PATCH", body={"name": " better name "})
    after = json.loads((run_folder / "run.json").read_text())
    assert (status, body["name"]) == (200, "better name")
    assert after["run"].pop("name") == "better name"
    before["run"].pop("name")
    assert after == before
    assert [path.name for path in run_folder.iterdir() if path.name.startswith(".")] == []
    _, body, _ = await ask("runs", RUN)
    assert body["hello"]["run"]["name"] == "better name"


@pytest.mark.parametrize("body", ["", "[]", "{", "null", "[" * 100000])
async def test_a_body_that_is_no_object_is_refused(ask, run_folder, body):
    status, answer, _ = await ask("runs", RUN, method="PATCH", body=body)
    assert (status, answer["code"]) == (400, "bad-message")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": true, "run": {}}', "\x00" * 100]
)
async def test_a_folder_with_a_broken_run_json_is_left_out_and_the_others_stay(ask, run_folder, text):
    broken = run_folder.with_name("broken")
    broken.mkdir()
    (broken / "run.json").write_text(text)
    status, body, _ = await ask("runs")
    assert status == 200
    assert [run["id"] for run in body["runs"]] == [RUN]


async def test_a_garbage_stream_is_a_typed_error_and_the_server_stays_up(ask, run_folder):
    (run_folder / "audit.parquet").write_bytes(b"PAR1 garbage PAR1")
    status, body, _ = await ask("runs", RUN, "streams", "audit", body={})
    assert (status, body["code"]) == (409, "unreadable")
    status, _, _ = await ask("runs", RUN, "streams", "scalars", body={})
    assert status == 200


async def test_attention_of_many_heads_comes_as_coarse_as_it_is_asked_for(ask, run_folder):
    values = np.random.default_rng(0).uniform(0, 1, (1, 8, 64, 64)).astype(np.float32)
    flag = "RawAttentionScore_mat_mul"
    more = tensor(9, 0, flag, "", "Peaks(cells=64)", values, source_shape=[1, 8, 1024, 1024])
    shutil.rmtree(run_folder)
    write_run(run_folder, more=[more])
    query = {"flag": flag, "steps": [9, 9], "limit_bytes": 60_000}
    status, body, _ = await ask("runs", RUN, "streams", "tensors", body=query)
    assert (status, body["code"]) == (413, "too-large")
    status, body, _ = await ask("runs", RUN, "streams", "tensors", body={**query, "peaks": 16})
    (found,) = table_of(body).to_pylist()
    assert (status, found["shape"]) == (200, [1, 8, 16, 16])
    wanted = values.reshape(1, 8, 16, 4, 16, 4).max(axis=(3, 5))
    np.testing.assert_array_equal(np.reshape(found["values"], found["shape"]), wanted)
    status, body, _ = await ask("runs", RUN, "streams", "scalars", body={"peaks": 16})
    assert (status, body["field"]) == (400, "peaks")
