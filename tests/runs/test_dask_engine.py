"""Questions on a real Dask cluster of processes: the answers of one process, or an error that says what to do."""

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from dask_cluster import local_cluster
from recorded_run import write_run
from test_jobs import record
from test_recorded_moments import QUERIES, in_memory, rows_of_a_run, same, sealed, tail
from test_segment_summaries import PICTURES, long_run, recording

from megalens.protocol import LAST_STEP, segment_name
from megalens.runs import ClientError, dask_engine, open_run
from megalens.runs.answers import RunAnswers
from megalens.runs.moments import MomentQuery, MomentSource, RecordedRows
from megalens.runs.moments.grouping import planned

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(memory_limit="600 MiB") as client:
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Statistics in many row groups, and tensors in four segments."""
    home = write_run(tmp_path_factory.mktemp("engine") / "run", steps=24)
    pq.write_table(rows_of_a_run(), home / "moments.parquet", row_group_size=16)
    tensors = pq.read_table(home / "tensors.parquet").sort_by("step")
    (home / "tensors.parquet").unlink()
    (home / "tensors").mkdir()
    for at in range(4):
        first = 1 + 6 * at
        steps = tensors["step"].to_numpy()
        rows = tensors.filter((steps >= first) & (steps < first + 6))
        pq.write_table(rows, home / "tensors" / segment_name(at, first, ".parquet"))
    return home


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    monkeypatch.setattr(planned, "_TASK_ROWS", 40)
    monkeypatch.setattr(planned, "_LEAST_TASKS", 2)


class Done(tuple):
    """A result that is there."""

    def done(self):
        return True


class Here:
    """Runs tasks at once, in this process, of what is pickled on its way there and back."""

    workers = 2

    def __init__(self):
        self.ran = []

    def submit(self, function, items, *shared):
        self.ran.append(function.__name__)
        brought = [pickle.loads(pickle.dumps((item, shared))) for item in items]
        return [Done(pickle.loads(pickle.dumps(function(*item, *more)))) for item, more in brought]

    def result(self, future, stop, looked):
        looked()
        return future

    def cancel(self, futures):
        assert not futures


def planned_here(folder, query):
    """Return the answer to a question, and the names of the tasks that gave it."""
    source = MomentSource(RecordedRows(folder), here := Here())
    source.refresh()
    return source.groups(MomentQuery.of_request(**{"stat": "grad", **query})), here.ran


@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_however_a_question_is_parted_its_answer_is_that_of_all_rows(query, rows, folder, monkeypatch):
    monkeypatch.setattr(planned, "_TASK_ROWS", rows)
    found, ran = planned_here(folder, query)
    same(found, in_memory(rows_of_a_run()).groups(MomentQuery.of_request(**{"stat": "grad", **query})))
    # There are no rows of it, or they lie in one row group.
    assert ran or query.get("stat") == "dgrad" or query.get("steps") == [4000, LAST_STEP]


def test_a_question_of_few_rows_is_answered_where_it_is_asked(folder, monkeypatch):
    monkeypatch.setattr(planned, "_LEAST_TASKS", 4)
    assert planned_here(folder, {"by": ["layer"], "steps": [1, 3]})[1] == []
    assert planned_here(folder, {"by": ["layer"]})[1] == ["_read"]


@pytest.mark.parametrize(("workers", "tasks"), [(1, 4), (3, 6)])
def test_a_question_of_many_rows_has_few_tasks_and_some_for_each_worker(workers, tasks, folder, monkeypatch):
    monkeypatch.setattr(planned, "_TASK_ROWS", 1)
    monkeypatch.setattr(planned, "_TASKS", 4)
    monkeypatch.setattr(planned, "_TASKS_A_WORKER", 2)
    monkeypatch.setattr(Here, "workers", workers)
    asked = []
    really = Here.submit
    monkeypatch.setattr(Here, "submit", lambda self, *of: asked.append(len(of[1])) or really(self, *of))
    found, _ = planned_here(folder, {"by": ["layer"]})
    assert asked[0] == tasks
    same(found, in_memory(rows_of_a_run()).groups(MomentQuery.of_request(stat="grad", by=["layer"])))


def test_rows_of_a_recording_that_grows_are_read_from_its_tail_too(tmp_path):
    table = rows_of_a_run()
    for at in range(5):
        write, suffix = (sealed, ".parquet") if at < 4 else (tail, ".arrows")
        write(tmp_path / "moments" / segment_name(at, 0, suffix), table.slice(at * 80, 80))
    for query in QUERIES[:3]:
        found, ran = planned_here(tmp_path, query)
        same(found, in_memory(table).groups(MomentQuery.of_request(**{"stat": "grad", **query})))
        assert ran


def test_pictures_of_many_steps_are_those_of_all_rows_where_tasks_read_blocks(tmp_path):
    table = long_run(np.random.default_rng(3))
    recording(tmp_path, table, 6)
    for query in ({"points": 16, **query} for query in PICTURES):
        found, ran = planned_here(tmp_path, query)
        same(found, in_memory(table).groups(MomentQuery.of_request(**{"stat": "grad", **query})))
        assert ran


def tasks(client, name):
    """Return how many tasks of a name gave results so far."""
    prefix = client.cluster.scheduler.task_prefixes.get(f"megalens-{name}")
    return 0 if prefix is None else prefix.state_counts["memory"]


@pytest.mark.parametrize(
    "question",
    [
        {"by": "layer"},
        {"by": ["name"], "stat": ["grad", "param"]},
        {"by": ["rank", r"linear_(fc\d)"], "steps": "3-30"},
        {"by": ["stage", "role"], "stat": "activation"},
    ],
    ids=str,
)
def test_statistics_are_those_of_one_process_and_counts_are_exact(question, cluster, folder):
    with open_run(folder) as here, open_run(folder, engine=cluster) as there:
        assert f"Dask cluster at {cluster.scheduler.address}" in repr(there)
        expected, found = here.moments(**question), there.moments(**question)
        pd.testing.assert_frame_equal(found, expected, rtol=1e-12, atol=1e-14)
        counts = [name for name in expected if name.endswith("count") or name == "samples"]
        pd.testing.assert_frame_equal(found[counts], expected[counts], check_exact=True)


def test_ranks_of_a_job_are_read_by_several_workers_and_merge_in_a_tree(cluster, tmp_path, monkeypatch):
    for rank in range(6):
        record(tmp_path / f"job-{rank}", rank=rank, loss=100.0 * rank)
    monkeypatch.setattr(planned, "_FAN_IN", 2)
    merges = tasks(cluster, "merge")
    looked = tasks(cluster, "looked-at")
    with open_run(f"{tmp_path}/job-*", engine=cluster) as there, open_run(f"{tmp_path}/job-*") as here:
        assert tasks(cluster, "looked-at") == looked + 6
        for by in ([], "layer", "rank"):
            pd.testing.assert_frame_equal(there.moments(by=by), here.moments(by=by), rtol=1e-12, atol=1e-12)
        assert tasks(cluster, "merge") >= merges + 5
        assert trend(there) == trend(here)


def trend(run, **more):
    request = {"flag": "MLP1_mat_mul", "statistic": "rms", **more}
    return bytes(RunAnswers(run).answer("tensor_lines", {"request": request})[1])


@pytest.mark.parametrize("more", [{}, {"layers": [1, 2], "steps": [4, 20]}, {"rank": "lowest"}], ids=str)
def test_lines_of_tensors_are_those_of_one_process(more, cluster, folder):
    with open_run(folder) as here, open_run(folder, engine=cluster) as there:
        read = tasks(cluster, "read-part")
        assert trend(there, **more) == trend(here, **more)
        assert tasks(cluster, "read-part") > read


def test_what_tasks_of_one_question_share_is_never_that_of_another(cluster):
    there = dask_engine.DaskEngine(cluster)
    texts = ["a" * 300_000, "b" * 300_000]
    asked = [there.submit(lambda at, shared: (at, shared[:1]), [(0,), (1,)], text) for text in texts]
    found = [[there.result(future) for future in futures] for futures in asked]
    assert found == [[(0, "a"), (1, "a")], [(0, "b"), (1, "b")]]


def test_a_worker_that_does_not_see_the_recording_is_named_with_the_file(cluster, tmp_path):
    there = dask_engine.DaskEngine(cluster)
    (future,) = there.submit(Path.read_bytes, [(tmp_path / "gone.parquet",)])
    with pytest.raises(ClientError, match=r"the worker tcp://\S+ finds no \S+gone\.parquet") as refused:
        there.result(future)
    assert refused.value.code == "unreadable"


def test_a_worker_that_is_killed_in_mid_question_changes_no_answer(cluster, folder, tmp_path, monkeypatch):
    marker, really = tmp_path / "killed", planned._read

    def read(*arguments):
        import os
        import signal

        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return really(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    with open_run(folder) as here, open_run(folder, engine=cluster) as there:
        monkeypatch.setattr(planned, "_read", read)
        pd.testing.assert_frame_equal(there.moments(by="name"), here.moments(by="name"), rtol=1e-12)
        assert marker.exists()


def test_a_question_that_needs_more_memory_than_workers_have_is_refused(cluster, folder, monkeypatch):
    def read(*arguments):
        import threading

        held = bytearray(900 << 20)
        held[:: 1 << 12] = b"\1" * len(held[:: 1 << 12])
        threading.Event().wait()

    monkeypatch.setattr(cluster.cluster.scheduler, "allowed_failures", 0)
    with open_run(folder, engine=cluster) as there:
        monkeypatch.setattr(planned, "_read", read)
        with pytest.raises(ClientError, match="Give them more memory") as refused:
            there.moments(by="name")
        assert refused.value.code == "too-large"


def test_a_worker_with_another_version_is_named_and_reads_nothing(cluster, folder, monkeypatch):
    with open_run(folder, engine=cluster) as there:
        monkeypatch.setattr(dask_engine, "__version__", "0.0.1")
        with pytest.raises(ClientError, match=r"0\.0\.1 asks, and the worker tcp://.* has") as refused:
            there.moments(by="name")
        assert refused.value.code == "version-mismatch"


def test_workers_without_megalens_or_of_another_version_are_named_before_the_first_question(folder, tmp_path):
    homes = {"none": tmp_path / "without", "0.0.1": tmp_path / "other"}
    for home in homes.values():
        home.mkdir()
        for found in Path(distributed.__file__).parents[1].iterdir():
            if "megalens" not in found.name:
                (home / found.name).symlink_to(found)
    about = homes["0.0.1"] / "megalens-0.0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: megalens\nVersion: 0.0.1\n")
    with ExitStack() as started:
        address = started.enter_context(scheduler())
        for home in homes.values():
            code = (
                f"import sys; sys.path[:0] = [{str(home)!r}]\n"
                "from distributed.cli.dask_worker import main; main()"
            )
            options = ("--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
            started.enter_context(process("-S", "-c", code, address, *options))
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        with pytest.raises(ClientError, match="pip install megalens") as refused:
            open_run(folder, engine=address)
        assert refused.value.code == "version-mismatch"
        for version in homes:
            assert re.search(rf"tcp://127\.0\.0\.1:\d+ has {version}\b", refused.value.message)


@contextmanager
def process(*arguments):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    started = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@contextmanager
def scheduler(ended=None, port="0"):
    """Start a scheduler without workers, and yield its address."""
    code = "from distributed.cli.dask_scheduler import main; main()"
    with process("-c", code, "--host", "127.0.0.1", "--port", port, "--no-dashboard", "--no-show") as started:
        line = next(line for line in started.stderr if "Scheduler at:" in line)
        if ended is not None:
            ended.append(started.kill)
        threading.Thread(target=started.stderr.read, daemon=True).start()
        yield line.split()[-1]


@contextmanager
def asked(monkeypatch, then):
    """Call a function in a thread of its own once a question waits for its first task."""
    there, really = threading.Event(), dask_engine.DaskEngine.result

    def result(*arguments):
        there.set()
        return really(*arguments)

    def follow():
        there.wait()
        then()

    monkeypatch.setattr(dask_engine.DaskEngine, "result", result)
    thread = threading.Thread(target=follow)
    thread.start()
    yield
    thread.join()


def test_a_question_ends_with_what_to_do_when_the_scheduler_goes_or_somebody_gives_it_up(folder, monkeypatch):
    kill = []
    with (
        scheduler(kill) as address,
        distributed.Client(address, set_as_default=False) as client,
        open_run(folder, engine=address) as run,
    ):
        given_up = pytest.raises(ClientError, match="given up")
        with asked(monkeypatch, run.moment_source.interrupt), given_up as refused:
            run.moments(by="name")
        assert refused.value.code == "cancelled"
        with (
            asked(monkeypatch, partial(os.kill, os.getpid(), signal.SIGINT)),
            pytest.raises(KeyboardInterrupt),
        ):
            run.moments(by="name")
        # Nothing of either is left on the cluster.
        until = time.monotonic() + 30
        while left := client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
            assert time.monotonic() < until, left
        gone = pytest.raises(ClientError, match=f"scheduler at {address} is gone")
        with asked(monkeypatch, kill[0]), gone as refused:
            run.moments(by="name")
        assert refused.value.code == "disconnected"
        with pytest.raises(ClientError, match="open the run without engine"):
            run.moments(by="layer")


def unless_gone(run):
    """Return statistics, or None while there is no scheduler."""
    try:
        return run.moments(by="layer")
    except ClientError as error:
        if error.code != "disconnected":
            raise
        return None


def test_a_scheduler_that_is_there_again_answers_again(folder, monkeypatch):
    monkeypatch.setattr(dask_engine, "_CONNECT_SECONDS", 1)
    kill = []
    with scheduler(kill) as address, ExitStack() as left:
        run = left.enter_context(open_run(folder, engine=address))
        kill[0]()
        with pytest.raises(ClientError, match=r"is gone|No Dask scheduler"):
            run.moments(by="layer")
        left.enter_context(scheduler(port=address.rpartition(":")[2]))
        code = "from distributed.cli.dask_worker import main; main()"
        left.enter_context(
            process("-c", code, address, "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        )
        while (found := unless_gone(run)) is None:
            pass
        with open_run(folder) as here:
            pd.testing.assert_frame_equal(found, here.moments(by="layer"), rtol=1e-12)


def test_what_is_no_engine_is_refused_in_words(folder, monkeypatch):
    monkeypatch.setattr(dask_engine, "_CONNECT_SECONDS", 0.3)
    with pytest.raises(ClientError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        open_run(folder, engine="tcp://127.0.0.1:9")
    with pytest.raises(ClientError, match="engine=… must be a dask"):
        open_run(folder, engine=2)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClientError, match=r"pip install 'megalens\[dask\]'"):
        open_run(folder, engine="tcp://127.0.0.1:9")
