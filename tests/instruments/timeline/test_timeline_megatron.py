"""Spans of Megatron-Core's own schedules and parallel layers."""

from __future__ import annotations

from collections import Counter

import pandas
import pyarrow
import pytest
from processes import run_job
from shape import LAYOUTS, MICRO_BATCHES, STEPS

from megalens.instruments.timeline import analyse
from megalens.instruments.timeline.pipeline_answer import complete_steps, pipeline_steps
from megalens.instruments.timeline.pipeline_passes import pipeline_passes, span_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "layout",
    [
        "tensor parallel",
        "pipeline, one forward and one backward in turn",
        "pipeline, interleaved",
        "data parallel",
        "tensor and pipeline parallel",
    ],
)
def test_passes_messages_and_collectives_of_each_layout_fit_together(tmp_path, layout) -> None:
    shape = LAYOUTS[layout]
    rows = pandas.DataFrame(run_job(shape.processes, "megatron_work:timed", shape, tmp_path)[0])
    assert sorted(set(rows["rank"])) == list(range(shape.processes))
    assert len(set(rows["stage"])) == shape.pp
    chunks = shape.vpp or 1
    mine = MICRO_BATCHES // shape.dp
    for (_, _), own in rows.groupby(["rank", "step"]):
        whole = own[own["name"] == ""]
        kinds = Counter(whole["kind"])
        assert (kinds["forward"], kinds["backward"]) == (mine * chunks, mine * chunks)
        assert kinds["step"] == 1
        assert (own["kind"] == "optimizer").sum() >= 1
        for chunk in range(chunks):
            passes = whole[(whole["chunk"] == chunk) & (whole["kind"] == "forward")].sort_values("start")
            assert list(passes["micro_batch"]) == list(range(mine))
        layers = own[(own["kind"] == "forward") & own["name"].str.contains("layers.", regex=False)]
        assert len(layers) == mine * shape.layers // shape.pp
    traffic = rows[rows["kind"].isin(["send", "receive"])]
    assert (len(traffic) > 0) == (shape.pp > 1)
    analysis = analyse(pyarrow.Table.from_pandas(rows))
    found = analysis.dependencies
    assert found.count > 0
    # Groups of one rank meet nobody; all others are whole.
    assert found.problems == ()
    if shape.pp > 1:
        # Each micro-batch goes forth and back between the chunks of neighbours.
        hops = (shape.pp * chunks - 1) * 2 * mine * STEPS
        assert int(found.message.sum()) == hops * shape.tp * shape.dp
        passes = pipeline_passes(analysis)
        assert (passes.stages, passes.chunks, passes.micro_batches) == (shape.pp, chunks, mine)
        assert (passes.placement, passes.problems) == ("loop", ())
        answer = pipeline_steps(passes, complete_steps(passes))
        assert len(answer["steps"]) == STEPS
        assert sorted(set(answer["operations"]["kind"])) == ["B", "F", "O"]
        # No stage begins what another has not sent, as exactly as clocks are known after two steps.
        found = span_metrics(analysis.spans)
        windows = [
            value for name, value in zip(found["metric"], found["value"], strict=True) if "send" in name
        ]
        assert len(windows) == 2 * (shape.pp - 1 + (chunks > 1)) * shape.tp * shape.dp
        assert min(windows) * 1e6 > -2 * analysis.clocks.half_width_ns.max()
    assert all(analysis._prices._replay.duration(step) > 0 for step in range(1, STEPS + 1))
