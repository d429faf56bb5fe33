"""Questions of a page that a Dask cluster of processes answers for the Jupyter server."""

import asyncio
import json
import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from dask_cluster import local_cluster
from recorded_moments import NAMES, moment_table, write_moments

from megalens.protocol import segment_name
from megalens.runs import open_run
from megalens.runs.answers import RunAnswers

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.slow

RUN = "20261120-101500-gpt-demo"
# A pattern over names, for which all rows are read.
QUESTION = {"stat": "grad", "statistic": "l2", "by": ["capture"], "pattern": r"\.(mlp|attention)\."}
STEPS = 210_000


@pytest.fixture(scope="module")
def cluster():
    with local_cluster() as client:
        yield client.cluster


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """As many rows as several tasks read."""
    step = moment_table([1], ("grad",))
    table = step.take(pa.array(np.tile(np.arange(len(NAMES)), STEPS)))
    at = table.schema.get_field_index("step")
    table = table.set_column(
        at, table.schema.field(at), pa.array(np.repeat(np.arange(1, STEPS + 1), len(NAMES)))
    )
    path = tmp_path_factory.mktemp("many") / "moments.parquet"
    pq.write_table(table, path, row_group_size=100_000)
    return path


@pytest.fixture
def jp_server_config(jp_server_config, cluster):
    jp_server_config["MegalensExtension"]["engine"] = f" {cluster.scheduler_address} "
    return jp_server_config


@pytest.fixture
def folder(jp_root_dir, many):
    home = write_moments(jp_root_dir / "megalens-runs" / RUN)
    (home / "moments.parquet").unlink()
    os.link(many, home / "moments.parquet")
    tensors = pq.read_table(home / "tensors.parquet")
    (home / "tensors.parquet").unlink()
    (home / "tensors").mkdir()
    for at, first in enumerate((1, 2, 3)):
        rows = tensors.filter(pc.equal(tensors["step"], first))
        pq.write_table(rows, home / "tensors" / segment_name(at, first, ".parquet"))
    return home


@pytest.fixture
def moments(ask):
    """Ask an endpoint of statistics; wait while the server still reads."""

    async def fetch(*path, **options):
        while (answer := await ask("runs", RUN, "moments", *path, **options))[0] == 202:
            pass
        return answer

    return fetch


def table_of(body):
    return pa.ipc.open_stream(body).read_all()


async def test_groups_come_from_the_cluster_equal_to_those_of_one_process_and_say_so(
    ask, moments, folder, cluster
):
    status, index, _ = await moments()
    assert status == 200
    assert index["read_by"] == {"address": cluster.scheduler_address, "workers": 2}
    status, body, headers = await moments("groups", body={**QUESTION, "points": 400})
    assert status == 200, body
    assert int(headers["X-Megalens-Tasks"]) >= 4
    with open_run(folder) as run:
        expected = RunAnswers(run).answer("moments_groups", {"request": {**QUESTION, "points": 400}})[1]
    found, expected = table_of(body), table_of(bytes(expected))
    assert found.drop_columns(["value", "error"]) == expected.drop_columns(["value", "error"])
    np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-12)
    assert (await moments("tasks"))[1]["of"] == int(headers["X-Megalens-Tasks"])
    request = {"flag": "MLP1_mat_mul", "statistic": "rms"}
    status, lines, _ = await ask("runs", RUN, "lines", "tensors", body=request)
    with open_run(folder) as run:
        expected = RunAnswers(run).answer("tensor_lines", {"request": request})[1]
    assert (status, lines) == (200, bytes(expected))
    assert cluster.scheduler.task_prefixes["megalens-read-part"].state_counts["memory"]
    # Few rows are read by the server itself.
    _, _, headers = await moments("groups", body={**QUESTION, "steps": [1, 3]})
    assert "X-Megalens-Tasks" not in headers


async def test_how_far_a_question_is_can_be_asked_and_taking_it_back_ends_it_on_the_cluster(
    moments, folder, cluster, jp_base_url, jp_http_port, jp_auth_header
):
    await moments()
    with distributed.Client(cluster, set_as_default=False) as client:
        pids = list((await asyncio.to_thread(client.run, os.getpid)).values())
        left = lambda: client.run_on_scheduler(  # noqa: E731
            lambda dask_scheduler: sum("megalens-read" in str(key) for key in dask_scheduler.tasks)
        )
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            body = json.dumps({**QUESTION, "points": 300})
            headers = {**jp_auth_header, "Host": "127.0.0.1", "Content-Length": len(body)}
            lines = [
                f"POST {jp_base_url}megalens/api/runs/{RUN}/moments/groups HTTP/1.1",
                *(f"{name}: {value}" for name, value in headers.items()),
            ]
            _, asking = await asyncio.open_connection("127.0.0.1", jp_http_port)
            asking.write("\r\n".join([*lines, "", body]).encode())
            while not (told := (await moments("tasks"))[1])["of"]:
                pass
            assert told["done"] == 0
            while await asyncio.to_thread(left) != told["of"]:
                pass
            asking.close()
            while await asyncio.to_thread(left):
                pass
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    status, _, _ = await moments("groups", body={**QUESTION, "points": 200})
    assert status == 200


async def test_a_cluster_that_is_gone_is_an_error_that_names_the_setting_and_never_part_of_an_answer(
    moments, folder, cluster
):
    await moments()
    cluster.close()
    for _ in range(2):
        status, body, _ = await moments("groups", body={**QUESTION, "points": 100})
        assert (status, body["code"]) == (502, "disconnected")
        assert cluster.scheduler_address in body["message"]
        assert "unset MegalensExtension.engine" in body["message"]
        status, body, _ = await moments()
        assert (status, body["code"]) == (502, "disconnected")
