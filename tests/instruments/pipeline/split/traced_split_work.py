"""A split training that is traced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from split_models import Case, Stage, loss_fn, made_optimizer
from split_work import stepped
from torch import distributed, nn

import megalens
from megalens.instruments.pipeline.split import SplitLayout, SplitTraining
from megalens.instruments.timeline.analysis import Analysis
from megalens.instruments.timeline.pipeline_answer import complete_steps, pipeline_steps
from megalens.instruments.timeline.pipeline_passes import pipeline_passes
from megalens.instruments.timeline.spans import Spans
from megalens.runs import open_run

STEPS = 4


def traced(rank: int, case: Case, folder: str) -> Any:
    """On rank 0 the steps as a planner is told them, and all spans."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "rt")
    layout = SplitLayout.of(**case.degrees)
    here = layout.place(rank)
    parts = nn.ModuleList([Stage(here.stage, case.dtype, case.dropout)])
    tracer = megalens.trace(
        parts,
        record=folder,
        linger=0.1,
        place=layout.tracer_place(rank),
        adapter=megalens.adapters.Adapter(layer="{i}"),
        timeline="phases",
    )
    with (
        tracer,
        SplitTraining(
            parts[0],
            layout=layout,
            loss_fn=loss_fn,
            optimizer=made_optimizer(case),
            tracer=tracer,
            timeout=30,
            **case.options,
        ) as training,
    ):
        assert rank > 0 or tracer.connected(30)
        distributed.barrier()
        for call in range(STEPS):
            with tracer.step():
                stepped(training, case, call)
    if rank > 0:
        return None
    with open_run(tracer.folder) as run:
        table = run.table("spans")
        passes = pipeline_passes(Analysis(Spans.of(table)))
        return (
            pipeline_steps(passes, complete_steps(passes)),
            passes.problems,
            table.to_pandas().to_dict("list"),
        )
