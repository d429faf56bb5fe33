"""What docs/scale.md says is what was measured last, and what the simulation computes of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.common import RESULTS, Row
from bench.scale import Costs, computed, question_seconds, step_of, table, through

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
COSTS = Costs(
    row=1e-7, task=1e-3, row_bytes=50.0, frame=1e-5, sent=2e-5, byte=1e-9, recording=1e-3, known=1e-4
)


def test_the_page_has_the_figures_of_the_last_measurement_and_what_follows_from_them() -> None:
    found = json.loads((RESULTS / "scale.json").read_text(encoding="utf-8"))
    assert not found["quick"]
    rows = [Row(**row) for row in found["rows"]]
    again = computed(Costs(**rows[0].extra))
    assert [row.what for row in again] == [row.what for row in rows[-len(again) :]]
    np.testing.assert_allclose([row.value for row in again], [row.value for row in rows[-len(again) :]])
    page = PAGE.read_text(encoding="utf-8")
    for kind in ("measured", "computed"):
        assert table(found["rows"], kind) in page, kind


def test_frames_leave_a_hub_one_after_the_other_and_never_before_they_came() -> None:
    arrived = np.random.default_rng(0).uniform(0, 1, 200)
    now, left = 0.0, []
    for at in sorted(arrived):
        now = max(now, at) + 0.007
        left.append(now)
    np.testing.assert_allclose(through(arrived, 0.007), left)


@pytest.mark.parametrize("workers", [1, 2, 40])
def test_a_question_takes_as_long_as_its_rows_or_its_tasks(workers: int) -> None:
    # 64 tasks of 1.6 million rows, or four for each worker.
    found = question_seconds(102_400_000, workers, COSTS)
    assert found == pytest.approx(10.24 / workers, rel=0.2)
    slow = Costs(**{**COSTS.__dict__, "task": 0.5})
    assert question_seconds(102_400_000, 40, slow) > 63 * 0.5


def test_hubs_below_spare_the_top_no_frame_and_hubs_above_spare_it_viewers() -> None:
    alone, below = step_of(10_000, 50, COSTS), step_of(10_000, 50, COSTS, leaves=10)
    above = step_of(10_000, 50, COSTS, leaves=10, relays=10)
    assert alone.late == pytest.approx(10_000 * (1e-5 + 50 * 2e-5))
    assert below.late >= alone.late
    assert above.late < alone.late / 2
    assert above.busy < below.busy == alone.busy
    joined = step_of(10_000, 50, COSTS, leaves=10, joins=True)
    # Ten frames of 2.55 MB, each into the hub and out to 50 viewers.
    assert joined.busy == pytest.approx(10 * 2.55e6 * 1e-9 * 51 / 2)
    assert joined.late < alone.late
