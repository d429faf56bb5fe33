"""What the engine's pipe answers of a run's pipeline."""

from __future__ import annotations

import threading

import pytest
from span_rows import recorded

from megalens.instruments.timeline.pipeline_answer import read_pipeline
from megalens.runs import ClientError, open_run
from megalens.runs.answers import RunAnswers
from tests.kit.simulated_jobs import Job


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    recorded(folder, Job(1, 2, 1, micro_batches=2, steps=6, seed=2))
    with open_run(folder) as opened:
        yield opened


def test_the_pipe_asks_by_name(run):
    answer, rows = RunAnswers(run).answer("pipeline", {"request": {"last": 4}})
    assert (rows, [each["step"] for each in answer["steps"]]) == (b"", [1, 2, 3, 4])


def test_an_answer_that_nobody_waits_for_is_not_made(run):
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ClientError) as error:
        read_pipeline(RunAnswers(run)._rows, {}, "key", cancelled)
    assert error.value.code == "cancelled"
