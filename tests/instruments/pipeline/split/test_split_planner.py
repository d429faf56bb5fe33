"""Whether a split is worth it, asked from Python."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, median

import pytest
from examples_work import trained

import megalens
from megalens.instruments.pipeline.split import SplitError, plan
from megalens.pictures.engine import run_job
from megalens.runs.answers import RunAnswers

ROOT = Path(__file__).parents[4]
GOLDEN = json.loads((ROOT / "protocol/fixtures/split-planned.json").read_text())
GB = 10**9
TIGHT = {
    "devices": [
        {"name": "large", "count": 2, "forward": 24.0, "memory_bytes": 13 * GB},
        {"name": "small", "count": 2, "forward": 72.0, "memory_bytes": 4 * GB},
    ],
    "layers": 6,
    "micro_batches": 7,
    "weight_bytes": 2 * GB,
    "state_bytes": 16 * GB,
    "activation_bytes": 8 * GB,
}


def test_the_engine_answers_as_the_page_does() -> None:
    for name, case in GOLDEN.items():
        if "answer" in case:
            assert run_job("split", case["request"], {}, timeout=60)[0] == case["answer"], name


def test_a_plan_says_what_to_do_and_what_the_others_take() -> None:
    made = plan(TIGHT)
    # By hand: 36 ms of the small device, 7 × (12 + 24) of the last stage, 24 ms back through the first.
    assert made.step_ms("split") == pytest.approx(312)
    assert made.worth_it
    assert made.percent is not None
    assert made.high_percent is not None
    assert made.percent < made.high_percent < 0
    other = made.layout("other")
    assert other["family"] == "pipeline_recompute"
    assert made.percent == pytest.approx(100 * (312 / made.step_ms("other") - 1))
    refused = made.layouts.set_index("family")["refused"]
    assert "fits in memory" in refused["ordinary"]
    assert made.layout() == made.layout("split")
    last = made.operations("split").query("role == 'backward' and stage == 0").iloc[-1]
    assert (last["kind"], last["end"]) == ("O", pytest.approx(312))
    assert not plan(TIGHT, activation_bytes=0).worth_it


@pytest.mark.parametrize(
    ("wish", "field"),
    [({"micro_batches": 0}, "micro_batches"), ({"devices": []}, "devices"), ({"latency": -1}, "latency")],
)
def test_what_is_no_request_is_refused_by_its_field(wish, field) -> None:
    with pytest.raises(SplitError) as caught:
        plan(TIGHT, **wish)
    assert caught.value.field == field
    with pytest.raises(SplitError, match="got a int"):
        plan(3)
    with pytest.raises(SplitError, match="got 'fastest'"):
        plan(TIGHT).step_ms("fastest")
    with pytest.raises(SplitError, match="fits in memory"):
        plan(TIGHT).step_ms("ordinary")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_example_trains_and_its_run_can_be_planned(tmp_path: Path) -> None:
    asked = ["--no-last-forward", "--layers=2", "--steps=6"]
    with megalens.open(trained("split", 3, asked, tmp_path)) as run:
        losses = run.scalars().to_pandas().query("name == 'loss'")
        assert len(losses) == 6
        made = plan(run)
        own = made.layout("own")
        assert own["family"] == "split"
        assert [each["forward_device"] for each in own["stages"]] == [0, None]
        # The times that the plan was made of, as the recording has them.
        rows = RunAnswers(run).answer("pipeline", {"request": {}})[0]["operations"]
        taken: dict[tuple[int, int], list[float]] = {}
        for step, lane, kind, begin, end in zip(
            *(rows[name] for name in ("step", "stage", "kind", "begin_ms", "end_ms")), strict=True
        ):
            if kind == "B":
                taken.setdefault((lane, step), []).append(end - begin)
        whole = sum(median(mean(each) for (at, _), each in taken.items() if at == lane) for lane in (1, 2))
        planned = made.operations("own").query("kind == 'B' and micro_batch == 0")
        assert (planned["end"] - planned["begin"]).sum() == pytest.approx(whole, rel=1e-6)
