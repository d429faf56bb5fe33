"""Structured logs of torchtitan: lines as its logger writes them, of planted times."""

from __future__ import annotations

import json
import math

import pytest
from span_rows import opened

import megalens
from megalens.runs import ClientError

START = 1_790_000_000_000_000


class Log:
    """One process's file; times in µs from the job's start."""

    def __init__(self, rank, at=0, source="training"):
        self.rank, self.source, self.at, self.step, self.lines = rank, source, at, None, []

    def line(self, name, kind="event", **others):
        step = {} if self.step is None else {"step": self.step, "relative_step": self.step}
        self.lines.append(
            {
                "rank": self.rank, "global_rank": self.rank, "local_rank": self.rank, "source": self.source, **step,
                "time_us": START + self.at, "log_type": kind, "log_type_name": name, "event_name": None,
                "seq_id": len(self.lines), "message": "", **others,
            }
        )  # fmt: skip

    def span(self, name, us, inside=(), task=None):
        task = {} if task is None else {"task_name": task}
        self.line(f"{name}_start", **task)
        begin = self.at
        for each in inside:
            self.span(*each)
        self.at = begin + us
        self.line(f"{name}_end", value=us / 1000, **task)

    def write(self, folder, stamp="20261101-120000"):
        place = folder / "structured_logs"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{self.source}.global_rank_{self.rank}.{stamp}-ABC123.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


def training(rank, steps, wait=2_000, at=0):
    """Each step takes 60 ms; who waits longer for its batch waits less for the others."""
    log = Log(rank, at)
    log.span("Trainer.build", 5_000_000)
    for step in steps:
        log.step = step
        log.span("step", 60_000, [("fetching_batch", wait), ("fwd_bwd", 50_000 - wait), ("optim", 9_000)])
        log.line("metric_value", "instant", event_name="loss", value=1 / step)
    return log


def test_the_rank_that_waits_for_its_batches_is_named_and_nobody_is_blamed_for_what_holds_waiting(tmp_path):
    from megalens.instruments.timeline.analysis import analyse

    for rank in range(4):
        training(rank, range(1, 41), wait=22_000 if rank == 2 else 1_000).write(tmp_path / "out")
    with megalens.open(tmp_path / "out") as run:
        spans = run.table("spans").to_pandas()
        verdict = analyse(run.table("spans")).verdict()
    data = spans[(spans.kind == "data") & (spans["rank"] == 2)]
    assert len(data) == 40
    assert set(data.end - data.start) == {22_000_000}
    assert set(spans[spans.kind == "user"].name) == {"fwd_bwd", "optim"}
    (found,) = verdict.culprits
    # 22 of 60 ms.
    assert (found.kind, found.ranks) == ("data", (2,))
    assert math.isclose(found.slower, 22 / 60, rel_tol=1e-6)
    assert "rank 2 waits for data for 36.7 %" in str(found)
    assert str(found).endswith("of its steps.")


def test_numbers_are_read_by_rank_and_those_that_are_not_finite_as_themselves(tmp_path):
    log = training(3, [1, 2])
    log.line("metric_value", "instant", event_name="loss", value=float("nan"))
    log.line("metric_value", "instant", event_name="tps", value=float("-inf"))
    log.write(tmp_path / "out")
    with megalens.open(tmp_path / "out") as run:
        rows = run.table("scalars").to_pandas()
    assert list(rows["rank"].unique()) == [3]
    assert [*rows.value[:2]] == [1.0, 0.5]
    assert math.isnan(rows.value[2])
    assert rows.value[3] == -math.inf


def test_steps_that_a_restart_did_again_count_once(tmp_path):
    training(0, range(1, 7)).write(tmp_path / "out")
    training(0, range(4, 9), wait=7_000, at=10_000_000).write(tmp_path / "out", "20261101-130000")
    with megalens.open(tmp_path / "out") as run:
        losses = run.table("scalars").to_pandas()
    spans, warnings = opened(tmp_path / "out")
    data = spans[spans.kind == "data"]
    assert [*data.step] == [*range(1, 9)]
    assert [*(data.end - data.start) // 1_000_000] == [2, 2, 2, 7, 7, 7, 7, 7]
    assert [*losses.step] == [*range(1, 9)]
    assert "12 spans of steps that were trained again after a restart are left out." in warnings


def test_spans_of_tasks_that_overlap_are_paired_by_their_task(tmp_path):
    log = Log(0)
    log.step = 1
    log.line("generate_start", task_name="a")
    log.at = 100
    log.line("generate_start", task_name="b")
    log.at = 300
    log.line("generate_end", task_name="a", value=0.3)
    log.at = 900
    log.line("generate_end", task_name="b", value=0.8)
    log.write(tmp_path / "out")
    spans = opened(tmp_path / "out")[0].query("kind == 'user'")
    assert sorted((spans.end - spans.start) // 1000) == [300, 800]


def test_a_cut_line_an_end_without_a_begin_and_a_begin_without_an_end_cost_themselves(tmp_path):
    log = training(0, range(1, 5))
    log.line("optim_end")
    log.line("eval_start")
    path = log.write(tmp_path / "out")
    with path.open("a") as file:
        file.write('{"rank": 0, "global_rank": 0, "log_type": "event", "log_ty')
    spans, warnings = opened(tmp_path / "out")
    assert len(spans.query("kind == 'step'")) == 4
    for what in ("1 ends without a begin", "1 spans that did not end", "1 lines that cannot be read"):
        assert f"{what} are left out." in warnings


def test_an_end_without_a_begin_tells_when_it_began(tmp_path):
    log = training(0, range(1, 5))
    log.at += 7_000
    end = log.at
    log.line("gc_collect_end", value=2.5)
    log.write(tmp_path / "out")
    spans, _ = opened(tmp_path / "out")
    found, steps = spans.query("name == 'gc_collect'"), spans.query("kind == 'step'")
    assert [*(found.end - found.start)] == [2_500_000]
    assert [*found.step] == [4]
    # 7 ms after the last step had ended.
    assert int(found.end.iloc[0] - steps.end.max()) == 7_000_000
    assert end == 5_000_000 + 4 * 60_000 + 7_000


def test_a_span_that_failed_is_named_with_its_rank_and_step(tmp_path):
    training(0, range(1, 5)).write(tmp_path / "out")
    log = training(1, range(1, 5))
    log.line("checkpoint_save_start")
    log.at += 30_000
    log.line(
        "checkpoint_save_error", message="[step 4] checkpoint_save_error: RuntimeError: the disk is full"
    )
    log.line("checkpoint_save_end", value=30.0)
    log.write(tmp_path / "out")
    spans, said = opened(tmp_path / "out")
    saved = spans.query("kind == 'checkpoint'")
    assert [*(saved.end - saved.start)] == [30_000_000]
    assert "checkpoint_save of rank 1 ended with an error in step 4: RuntimeError: the disk is full" in said


def test_logs_of_several_sources_are_several_jobs(tmp_path):
    training(0, range(1, 9)).write(tmp_path / "out")
    other = Log(0, source="generator")
    other.step = 1
    other.span("generate", 1000)
    other.write(tmp_path / "out")
    spans, warnings = opened(tmp_path / "out")
    assert "generate" not in set(spans.name)
    assert any("Open those of generator from a folder of their own" in each for each in warnings)


def test_logs_without_a_step_are_refused_in_a_sentence(tmp_path):
    log = Log(0)
    log.span("Trainer.build", 10)
    log.write(tmp_path / "out")
    with pytest.raises(ClientError, match="holds no step of a training"):
        megalens.open(tmp_path / "out")
