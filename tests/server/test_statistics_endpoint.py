"""Trees of raw-moment files: opened by path, listed, read, followed; and what must not be opened."""

import asyncio
import json
import os
import shutil

import pyarrow as pa
import pytest
from recorded_moments import NAMES, PARAM, append_line, record_line, write_tree

from megalens.protocol.messages import check_message


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def tree(jp_root_dir):
    return write_tree(jp_root_dir / "logs" / "run-a")


@pytest.fixture
def opened(ask):
    """Open a tree and return its entries."""

    async def post(path):
        status, body, _ = await ask("statistics", body={"path": path})
        assert status == 200, body
        return body["runs"]

    return post


async def test_a_tree_becomes_a_run_of_statistics(ask, opened, moments, tree):
    assert (await ask("runs"))[1]["runs"] == []
    (entry,) = await opened("logs/run-a")
    assert entry["kind"] == "statistics"
    assert (entry["name"], entry["state"], entry["folder"]) == (
        "run-a",
        "recorded",
        "logs/run-a/training_stats",
    )
    assert (await ask("runs"))[1]["runs"] == [entry]
    status, body, _ = await moments(entry["id"])
    assert status == 200
    assert [(stat["stat"], stat["rows"], stat["last"]) for stat in body["stats"]] == [
        ("param", 10 * len(NAMES), 10),
        ("grad", 10 * len(NAMES), 10),
    ]
    _, answer, _ = await moments(
        entry["id"], "groups", body={"stat": "grad", "statistic": "mean", "by": ["layer"]}
    )
    assert pa.ipc.open_stream(answer).read_all().num_rows == 4 * 10
    # Its step is known once it was read.
    assert (await ask("runs"))[1]["runs"][0]["step"] == 10


async def test_an_output_folder_of_trainermon_becomes_one_too_and_no_link_leads_out(
    opened, moments, jp_root_dir, tmp_path
):
    line = 'vpp_stage,name,step,norm,shape,dtype\n0,layers.0.w,{},2.0,"[4]",torch.float32\n'
    for place in ("monitor/Nov21_12-20-04-rank0-82ac1f33", "monitor/Nov21_12-20-05-rank1-6272401d"):
        (jp_root_dir / place).mkdir(parents=True)
        (jp_root_dir / place / "grad_reduced_0-0.csv").write_text(line.format(0))
    away = tmp_path / "away.csv"
    away.write_text(line.format(7))
    (jp_root_dir / place / "grad_reduced_7-7.csv").symlink_to(away)
    (entry,) = await opened("monitor")
    assert (entry["kind"], entry["name"], entry["folder"]) == ("statistics", "monitor", "monitor")
    _, body, _ = await moments(entry["id"])
    assert [(stat["stat"], stat["rows"], stat["last"]) for stat in body["stats"]] == [("grad", 2, 0)]
    _, answer, _ = await moments(entry["id"], "groups", body={"stat": "grad", "statistic": "l2", "by": []})
    assert pa.ipc.open_stream(answer).read_all()["value"].to_pylist() == pytest.approx([8**0.5])


async def test_it_describes_itself_and_has_nothing_but_moments(ask, opened, tree):
    (entry,) = await opened("logs")
    status, body, _ = await ask("runs", entry["id"])
    check_message(body["hello"])
    check_message(body["status"])
    assert (status, body["kind"], body["truncated"]) == (200, "statistics", [])
    assert body["hello"]["run"]["name"] == "run-a"
    assert (await ask("runs", entry["id"], "index"))[1] == {"tensors": []}
    for stream in ("tensors", "scalars", "audit"):
        status, answer, _ = await ask("runs", entry["id"], "streams", stream, body={})
        assert (status, pa.ipc.open_stream(answer).read_all().num_rows) == (200, 0)
    status, body, _ = await ask("runs", entry["id"], method="PATCH", body={"name": "better"})
    assert (status, body["name"]) == (200, "better")
    assert (await ask("runs"))[1]["runs"][0]["name"] == "better"


async def test_several_runs_below_one_path_and_a_file_alone(opened, jp_root_dir, tree):
    write_tree(jp_root_dir / "logs" / "deep" / "run-b" / "tensorboard")
    assert sorted(entry["name"] for entry in await opened("logs")) == ["deep/run-b", "run-a"]
    assert len(await opened("")) == 2
    assert len(await opened("/")) == 2
    (alone,) = await opened(f"logs/run-a/training_stats/{PARAM}/rank0.jsonl")
    assert alone["folder"].endswith("rank0.jsonl")
    # What a terminal shows of the same place is the same place.
    assert [entry["id"] for entry in await opened(str(tree))] == [
        entry["id"] for entry in await opened("logs/run-a")
    ]


async def test_trees_beside_recorded_runs_are_found_by_themselves(ask, moments, jp_root_dir, outside):
    write_tree(jp_root_dir / "megalens-runs" / "run-c", steps=2)
    write_tree(outside / "run-d", steps=2)
    entries = {entry["name"]: entry for entry in (await ask("runs"))[1]["runs"]}
    assert sorted(entries) == ["run-c", "run-d"]
    assert entries["run-d"]["folder"] is None
    assert (await moments(entries["run-d"]["id"]))[0] == 200


async def test_an_appended_line_comes_to_who_waits(opened, moments, tree):
    (entry,) = await opened("logs")
    _, body, _ = await moments(entry["id"])
    for step in (11, 12):
        waiting = asyncio.ensure_future(moments(entry["id"], params={"since": body["version"], "wait": "30"}))
        # A piece of a line is no row, and does not hide the rest of it.
        line = record_line(step, PARAM, names=[*NAMES, f"new.{step}.weight"])
        append_line(tree, step, text=line[:50])
        append_line(tree, step, text=line[50:])
        status, body, _ = await waiting
        while body["stats"][0]["last"] < step:
            status, body, _ = await moments(entry["id"], params={"since": body["version"], "wait": "30"})
        assert status == 200
        assert body["names"] == [f"new.{step}.weight"]
    _, answer, _ = await moments(entry["id"], "rows", body={"stats": ["param"], "steps": [12, 20]})
    assert pa.ipc.open_stream(answer).read_all().num_rows == len(NAMES) + 1


async def test_two_who_ask_share_one_source(opened, moments, tree):
    (entry,) = await opened("logs")
    answers = await asyncio.gather(*(moments(entry["id"]) for _ in range(6)))
    # Each opening gives versions of its own.
    assert len({body["version"] for _, body, _ in answers}) == 1


BAD_PATHS = [
    (None, 400),
    (3, 400),
    ("logs/\0", 400),
    ("x" * 5000, 400),
    ("nothing-here", 404),
    ("../elsewhere", 403),
    ("logs/../../elsewhere", 403),
    ("/etc", 403),
    ("~", 403),
    ("/logs/nothing-here", 403),
    ("logs/out", 403),
    ("logs/empty", 404),
    ("logs/other", 404),
    ("logs/other/data.jsonl", None),
    ("logs/text.txt", 409),
    (".hidden", 404),
]


@pytest.mark.slow
async def test_what_is_no_tree_below_the_root_is_refused(ask, opened, tree, jp_root_dir, outside, tmp_path):
    write_tree(outside / "secret")
    (jp_root_dir / "logs" / "out").symlink_to(outside / "secret")
    write_tree(jp_root_dir / ".hidden" / "run")
    for name in ("empty", "other"):
        (jp_root_dir / "logs" / name).mkdir()
    (jp_root_dir / "logs" / "other" / "data.jsonl").write_text('{"text": "no moments"}\n' * 5)
    (jp_root_dir / "logs" / "text.txt").write_text("x")
    for path, expected in BAD_PATHS:
        status, body, _ = await ask("statistics", body={"path": path})
        if expected is None:
            # A file named by itself is taken at its word; reading it says that there is nothing in it.
            (entry,) = body["runs"]
            while (answer := await ask("runs", entry["id"], "moments"))[0] == 202:
                pass
            status, body, _ = answer
            assert (status, body["code"]) == (409, "unreadable")
            expected = 409
        assert status == expected, (path, body)
        assert body.get("field", "path") == "path"
        assert str(tmp_path) not in json.dumps(body)
    assert (await ask("statistics", body={"path": "logs", "more": 1}))[0] == 400
    assert [entry["name"] for entry in await opened("logs")] == ["run-a"]


async def test_links_that_lead_out_are_left_out(opened, moments, tree, jp_root_dir, outside):
    other = write_tree(outside / "secret", steps=3) / "training_stats"
    stats = tree / "training_stats"
    os.symlink(other / PARAM / "rank0.jsonl", stats / PARAM / "rank7.jsonl")
    shutil.rmtree(stats / "grad_raw_moments_by_param")
    os.symlink(other / "grad_raw_moments_by_param", stats / "grad_raw_moments_by_param")
    (entry,) = await opened("logs/run-a")
    _, body, _ = await moments(entry["id"])
    assert [(stat["stat"], stat["rows"]) for stat in body["stats"]] == [("param", 10 * len(NAMES))]


async def test_a_tree_that_is_gone_is_listed_no_more(ask, opened, moments, tree):
    (entry,) = await opened("logs")
    assert (await moments(entry["id"]))[0] == 200
    shutil.rmtree(tree)
    assert (await ask("runs"))[1]["runs"] == []
    status, body, _ = await moments(entry["id"])
    assert status in (404, 409)
    assert str(tree) not in json.dumps(body)


async def test_a_report_of_it_can_be_made(ask, opened, tree):
    (entry,) = await opened("logs")
    body = {"format": "html", "views": [{"view": "statistics", "stat": "param"}]}
    status, answer, _ = await ask("runs", entry["id"], "report", body=body)
    assert status == 200, answer
    assert b"run-a" in answer
