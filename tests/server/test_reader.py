"""The process that reads files: its end, its limits and its silence towards others cost one question, and no server."""

import asyncio
import gc
import gzip
import json
import logging
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_streams import BOMBS
from warm import COLD

from megalens.server.errors import ServerError
from megalens.server.reader.process import Answer, Collected, Reader

RUN = "20261120-101500-gpt-demo"


@pytest.fixture
def reader(jp_serverapp):
    return jp_serverapp.web_app.settings["megalens_reader"]


@pytest.fixture
def reader_of():
    """Make readers of given limits; they end with their test."""
    executor = ThreadPoolExecutor(2)

    def make(memory, limit_bytes):
        return Reader(memory, limit_bytes, 1_000_000, executor, logging.getLogger("reader"))

    yield make
    executor.shutdown()


def stopped(pid):
    """Whether a process is stopped, by the system's word."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_question_that_the_process_was_killed_over_is_answered_by_the_next(ask, reader, run_folder):
    _, expected, _ = await ask("runs", RUN, "index")
    first = reader.pid
    os.kill(first, signal.SIGSTOP)
    await until(lambda: stopped(first))
    asked = [asyncio.ensure_future(ask("runs", RUN, "index")) for _ in range(3)]
    await asyncio.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    for status, body, _ in await asyncio.gather(*asked):
        assert (status, body) == (200, expected)
    assert reader.pid not in (None, first)


async def test_a_question_that_ends_the_process_each_time_is_refused_and_others_are_answered(
    ask, reader, run_folder
):
    question = {"method": "GET", "path": f"/runs/{RUN}/index", "body": b"", "runs": {}}
    with pytest.raises(ServerError, match="ended the process that reads files") as refused:
        # As a library does that meets damage.
        await reader.tell(question, Answer, lambda stream: os.kill(reader.pid, signal.SIGKILL))
    assert (refused.value.status, refused.value.code) == (409, "unreadable")
    assert (await ask("runs", RUN, "index"))[0] == 200


async def test_what_needs_more_memory_than_it_may_take_is_refused_and_it_goes_on(
    reader_of, run_folder, monkeypatch
):
    # One that was forked has more memory than it needs.
    monkeypatch.setenv(COLD, "1")
    rows, values = 24, np.zeros(4_000_000, np.float32)
    one = pq.read_table(run_folder / "tensors.parquet").slice(0, 1)
    for name, each in (("values", values), ("shape", [1, 2000, 2000])):
        field = one.schema.field(name)
        one = one.set_column(one.schema.get_field_index(name), field, pa.array([each], field.type))
    with pq.ParquetWriter(run_folder / "tensors.parquet", one.schema) as writer:
        for step in range(rows):
            row = one.set_column(one.schema.get_field_index("step"), "step", pa.array([step], pa.int64()))
            writer.write_table(row.cast(one.schema))
    small = reader_of(memory=400 << 20, limit_bytes=1 << 30)
    places = {RUN: {"name": RUN, "folder": str(run_folder)}}

    async def ask(path, method="GET"):
        taken = []

        def answer():
            taken.append(Collected())
            return taken[-1]

        question = {"method": method, "path": f"/runs/{RUN}{path}", "body": b"{}", "runs": places}
        await small.tell(question, answer)
        return taken[-1].status, b"".join(taken[-1].pieces)

    status, body = await ask("/streams/tensors", "POST")
    assert (status, json.loads(body)["code"]) == (413, "too-large"), body
    pid = small.pid
    # The next process has all of it again.
    await until(lambda: small.pid is None)
    assert (await ask("/index"))[0] == 200
    assert small.pid not in (None, pid)
    await small.close()
    assert small.pid is None


HOSTILE = {
    "run/training_stats/grad_raw_moments_by_param/rank0.jsonl": [b"[]\n" * 3_000_000, b'{"iter":1,"values":{"a":"' + b"x" * 40_000_000 + b'"}}\n'],
    "out/Nov21_12-20-04-rank0-82ac1f33/grad_reduced_0-9999.csv": [b"vpp_stage,name,step\n" * 600_000],
    "trace.json.gz": [
        gzip.compress(b'{"traceEvents":[{"ph":"X","name":[' + b"[]," * 13_000_000 + b'[]],"ts":1,"dur":1}],"schemaVersion":1}'),
        gzip.compress(b"[" + b",".join(b'{"ph":"X","name":"forward","ts":%d,"dur":1}' % (2 * n) for n in range(200_000)) + b"]"),
    ],
    "benchmark-data-0-pipeline-0-tensor-0.json": [b'[{"name":"iteration","ph":"B","pad_before":5},' + b"[]," * 10_000_000 + b"[]]"],
}  # fmt: skip


async def others_waited(ask, reading):
    """Ask for the list of runs while something is read; return the longest that the server's process had others wait.

    In seconds of processor time of the server's own process, so that how busy the machine is decides nothing.
    """
    waits, answered = [], 0
    # A server has not imported what the tests have, torch with it: to collect that takes longer than all of its own.
    gc.freeze()

    async def beat():
        before = time.process_time()
        while True:
            await asyncio.sleep(0.005)
            now = time.process_time()
            waits.append(now - before)
            before = now

    beating, reading = asyncio.ensure_future(beat()), asyncio.ensure_future(reading)
    while not reading.done():
        assert (await ask("runs"))[0] == 200
        answered += not reading.done()
    beating.cancel()
    gc.unfreeze()
    await reading
    assert answered > 0
    return max(waits)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(HOSTILE))
async def test_the_server_answers_others_within_100_ms_while_files_of_others_are_read(
    ask, jp_root_dir, run_folder, monkeypatch, tmp_path, name
):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    path = jp_root_dir / "logs" / name
    path.parent.mkdir(parents=True)
    await ask("runs")

    async def read():
        status, body, _ = await ask("statistics", body={"path": f"logs/{name.partition('/')[0]}"})
        for run in body["runs"] if status == 200 else ():
            while status in (200, 202) and (status := (await ask("runs", run["id"], "moments"))[0]) == 202:
                pass

    for data in HOSTILE[name]:
        path.write_bytes(data)
        assert await others_waited(ask, read()) < 0.1


QUESTIONS = {
    "index": None,
    "streams/tensors": {},
    "moments": None,
    "report": {"format": "html", "views": [{"view": "trend"}]},
}


@pytest.mark.slow
async def test_the_server_answers_others_within_100_ms_while_hostile_recordings_are_read(ask, run_folder):
    await ask("runs")
    (run_folder / "tensors.parquet").unlink()
    for bomb in BOMBS:
        bomb(run_folder)
        answers = []

        async def read(answers=answers):
            for path, body in QUESTIONS.items():
                answers.append((await ask("runs", RUN, *path.split("/"), body=body))[0])

        assert await others_waited(ask, read()) < 0.1, bomb.__name__
        # 400: there is nothing to draw.
        assert set(answers) <= {200, 400, 409, 413}, bomb.__name__
        assert answers[1] != 200 or bomb.__name__ == "moment_text_bomb"
        for each in (*run_folder.glob("*/*.parquet"), *run_folder.glob("*/*.arrows")):
            each.unlink()


async def test_it_refuses_whoever_is_not_its_server(ask_reader, run_folder):
    assert (await ask_reader("runs", RUN))[0] == 200
    status, body = await ask_reader("runs", RUN, token="guessed")
    assert (status, body["code"]) == (401, "unauthorized")
    assert (await ask_reader("runs", "other"))[0] == 404


async def test_a_body_is_bounded_before_it_is_parsed(ask, run_folder):
    body = b'{"settings":' + b"[" * (1 << 20) + b"}"
    for path in (("runs", RUN, "moments", "groups"), ("runs", RUN, "report"), ("statistics",), ("hubs",)):
        status, answer, _ = await ask(*path, body=body)
        assert (status, answer["code"]) == (413, "too-large")


async def test_the_server_answers_others_while_the_process_does_nothing(ask, reader, run_folder):
    await ask("runs", RUN, "index")
    os.kill(reader.pid, signal.SIGSTOP)
    try:
        waiting = asyncio.ensure_future(ask("runs", RUN, "index"))
        assert (await ask("runs"))[0] == 200
        assert not waiting.done()
    finally:
        os.kill(reader.pid, signal.SIGCONT)
    assert (await waiting)[0] == 200
