"""``megalens.TrainerMon`` on replicas: each rank writes its own, and only the ranks that are to."""

from __future__ import annotations

import csv

import pytest
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_gradients_are_a_ranks_own_before_the_reduction_and_everybodys_after(tmp_path) -> None:
    _, norms = run_job(2, "trainermon_work:replicas", str(tmp_path))
    (folder,) = tmp_path.glob("*-rank*-*")
    assert "-rank1-" in folder.name
    for kind, expected in (("grad_unreduced", norms["own"]), ("grad_reduced", norms["all"])):
        rows = csv.DictReader((folder / f"{kind}_0-0.csv").open())
        found = {row["name"]: float(row["norm"]) for row in rows}
        assert found == pytest.approx(expected, abs=2e-6)
    assert norms["own"] != pytest.approx(norms["all"], rel=1e-2)
