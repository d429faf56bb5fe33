"""Metrics of pipelines whose times are known."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import pytest
from pipeline_jobs import LATENCY, Pipeline
from span_rows import table

import megalens
from megalens.instruments.timeline.megascan_files import TimelineError
from megalens.instruments.timeline.pipeline_passes import span_metrics
from megalens.instruments.timeline.spans import Spans
from megalens.runs import ClientError


def metrics_of(rows):
    found = span_metrics(Spans.of(rows))
    keys = zip(found["metric"], found["rank"], found["peer"], strict=True)
    return dict(zip(keys, found["value"], strict=True))


def test_a_trace_of_two_stages_gives_what_is_found_by_hand(tmp_path):
    path = tmp_path / "trace.json"
    # Rank 0: F 0-10, 10-20, B 56-76, 76-96; rank 1: F 13-23, 23-33, B 33-53, 53-73; the iteration ends at 100.
    path.write_text(json.dumps(Pipeline(2, 1, 2).chrome(iterations=3)))
    with megalens.open(path) as run:
        frame = run.pipeline_metrics()
        first = run.pipeline_metrics(steps=0)
    assert list(frame.columns) == ["metric", "rank", "peer", "value"]
    rows = [
        (metric, rank, peer, round(value, 9)) for metric, rank, peer, value in frame.itertuples(index=False)
    ]
    assert rows == [
        ("iteration_ms", -1, -1, 100.0),
        ("compute_window_ms", 0, -1, 15.0),
        ("compute_window_ms", 1, -1, 15.0),
        ("compute_ratio", 0, -1, 0.6),
        ("compute_ratio", 1, -1, 0.6),
        ("reduce_window_ms", 0, -1, 4.0),
        ("reduce_window_ms", 1, -1, 27.0),
        ("forward_send_window_ms", 0, 1, 3.0),
        ("backward_send_window_ms", 1, 0, 3.0),
    ]
    # The first iteration, twice as long, counts only where there is no other.
    assert first["value"][0] == 200.0


@pytest.mark.parametrize("placement", ["loop", "v"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_sends_are_found_in_either_placement_and_each_replica(placement, replicas):
    job = Pipeline(3, 2, 4, placement)
    found = metrics_of(job.table(steps=3, replicas=replicas))
    ended = {
        (each.kind, job.virtual(each.stage, each.chunk), each.micro_batch): each for each in job.passes()
    }
    windows = defaultdict(list)
    for (kind, at, m), each in ended.items():
        after = ended.get((kind, at + (1 if kind == "forward" else -1), m))
        if after and after.stage != each.stage:
            for replica in range(replicas):
                pair = (each.stage * replicas + replica, after.stage * replicas + replica)
                windows[(f"{kind}_send_window_ms", *pair)].append(after.begin - each.end)
    sends = {key: value for key, value in found.items() if "send" in key[0]}
    assert sends.keys() == windows.keys()
    for key, value in sends.items():
        assert value == pytest.approx(sum(windows[key]) / len(windows[key]))
    assert min(sends.values()) >= LATENCY


def test_clocks_that_are_seconds_apart_are_put_together_first():
    job = Pipeline(2, 1, 2)
    found = metrics_of(job.table(steps=4, offset_ms=70_000))
    assert found["forward_send_window_ms", 0, 1] == pytest.approx(3, abs=0.01)
    assert found["iteration_ms", -1, -1] == pytest.approx(100, abs=0.01)


def test_a_geometric_mean_is_taken_of_ratios():
    def row(kind, step, rank, end, **more):
        return {"kind": kind, "name": "", "group": "", "step": step, "rank": rank, "stage": rank, "start": step * 1000, "end": step * 1000 + end, **more}  # fmt: skip

    of = {"chunk": 0, "micro_batch": 0}
    rows = [row("step", step, rank, 100) for step in (1, 2, 3) for rank in (0, 1)]
    rows += [row("forward", step, rank, long, **of) for step, long in ((1, 50), (2, 20), (3, 80)) for rank in (0, 1)]  # fmt: skip
    found = metrics_of(table(*rows))
    assert found["compute_ratio", 0, -1] == pytest.approx(math.sqrt(0.2 * 0.8))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (Pipeline(1, 1, 2).table(), "one pipeline stage"),
        (table({"kind": "step", "name": "", "group": ""}), "timeline='phases'"),
        (table().slice(0, 0), "timeline='phases'"),
        (table({"kind": "forward", "name": "", "micro_batch": 1 << 30, "stage": 1}), "at most"),
        (table({"kind": "forward", "name": "", "micro_batch": 0, "stage": 1 << 30}), "at most"),
    ],
)
def test_what_is_no_pipeline_is_said_with_what_to_record(rows, said):
    with pytest.raises(TimelineError, match=said):
        span_metrics(Spans.of(rows))


def test_a_run_without_spans_says_what_to_record(tmp_path):
    from recorded_run import write_run

    folder = write_run(tmp_path / "one", steps=2, layers=1, nonfinite_at=None)
    with megalens.open(folder) as run, pytest.raises(ClientError, match="timeline='phases'") as error:
        run.pipeline_metrics()
    assert error.value.code == "not-found"
