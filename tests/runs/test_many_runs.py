"""The same question to each of many runs, here and on a real Dask cluster of processes."""

import os
import signal
from functools import partial

import pytest
from dask_cluster import cluster  # noqa: F401
from recorded_run import write_run
from test_jobs import record

import megalens
from megalens.runs import ClientError, many

pytestmark = pytest.mark.slow


@pytest.fixture
def runs(tmp_path):
    """Five runs of which each has another loss."""
    for number in range(5):
        record(tmp_path / "runs" / f"run-{number}", loss=100.0 * number, name=f"run-{number}")
    return tmp_path / "runs"


def loss(run):
    return run.name, sorted(row["value"] for row in run.scalars("loss").to_pylist())


def once(marker, run):
    """Answer, but end the process at the first question about one of the runs."""
    import os
    import signal

    if run.name == "run-2":
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return run.name
        os.kill(os.getpid(), signal.SIGKILL)
    return run.name


def ends(run):
    """End the process whenever one of the runs is asked."""
    if run.name == "run-3":
        os.kill(os.getpid(), signal.SIGKILL)
    return run.name


def fails(run):
    return 1 / (run.name != "run-1") and run.name


def test_the_answers_of_a_cluster_are_those_of_one_process_in_the_same_order(runs, cluster, monkeypatch):  # noqa: F811
    here = megalens.ask_all(runs, loss)
    assert here == {
        str(runs / f"run-{n}"): (f"run-{n}", [100.0 * n + step for step in range(1, 11)]) for n in range(5)
    }
    assert list(megalens.ask_all(f"{runs}/*/", loss, engine=cluster).items()) == list(here.items())
    monkeypatch.chdir(runs)
    # Workers are in another folder.
    names = ["run-1", "run-0"]
    assert megalens.ask_all(names, loss, engine=cluster) == {name: here[str(runs / name)] for name in names}
    # In a sequence a pattern is a job.
    (job,) = megalens.ask_all(["run-*"], lambda run: len(run.recordings), engine=cluster).values()
    assert job == 5


def test_how_many_are_done_is_told_and_whoever_hears_it_may_stop(runs, cluster):  # noqa: F811
    heard = []
    megalens.ask_all(runs, loss, engine=cluster, progress=lambda *told: heard.append(told))
    assert [told[:2] for told in heard] == [(at, 5) for at in range(6)]

    def stop(done, of, path):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        megalens.ask_all(runs, loss, engine=cluster, progress=stop)


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_question_that_fails_of_one_run_names_it_and_answers_nothing(runs, cluster, where):  # noqa: F811
    engine = cluster if where == "there" else None
    with pytest.raises(ClientError, match=r"run-1 could not be asked: ZeroDivisionError"):
        megalens.ask_all(runs, fails, engine=engine)
    write_run(runs / "damaged", steps=1)
    (runs / "damaged" / "run.json").write_text("{")
    with pytest.raises(ClientError, match=r"/damaged: ") as refused:
        megalens.ask_all(runs, loss, engine=engine)
    assert refused.value.code == "unreadable"
    with pytest.raises(ClientError, match=r"nowhere: .*does not exist"):
        megalens.ask_all([runs / "nowhere"], loss, engine=engine)
    # Whoever wants the others has them, each with its path.
    answers = dict(many.ask_each(runs, fails, engine=engine))
    assert [isinstance(answer, ClientError) for answer in answers.values()] == [
        path.endswith(("damaged", "run-1")) for path in answers
    ]


def test_a_worker_that_is_killed_changes_no_answer_and_a_run_that_kills_all_is_named(
    runs,
    cluster,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    names = [f"run-{number}" for number in range(5)]
    answers = megalens.ask_all(runs, partial(once, tmp_path / "killed"), engine=cluster)
    assert list(answers.values()) == names
    assert (tmp_path / "killed").exists()
    monkeypatch.setattr(cluster.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(ClientError, match=r"run-3: 1 workers? ended") as refused:
        # Alone, since Dask suspects all that a worker had when it ended.
        megalens.ask_all([runs / "run-3"], ends, engine=cluster)
    assert refused.value.code == "too-large"


def test_what_is_no_list_of_runs_is_refused(tmp_path):
    with pytest.raises(ClientError, match="paths=… must be a folder of runs"):
        megalens.ask_all(3, loss)
    with pytest.raises(ClientError, match="nothing: "):
        megalens.ask_all(tmp_path / "nothing", loss)
    assert megalens.ask_all([], loss) == {}
