"""A timeline in a report: drawn, live and said."""

from __future__ import annotations

import re

import pytest
from page_probe import probe
from recorded_run import RUN_ID
from span_rows import recorded

from megalens.pictures.report import build_report, write_report
from megalens.runs import open_run
from tests.kit.simulated_jobs import Fault, Job

pytestmark = pytest.mark.slow

JOB = Job(2, 2, 2, steps=12, seed=4, faults=(Fault("device", (5,), 1.4, 1, 12),))


@pytest.fixture
def run(tmp_path):
    recorded(tmp_path / RUN_ID, JOB)
    with open_run(tmp_path / RUN_ID) as opened:
        yield opened


def test_lanes_and_the_map_are_drawn_and_live(run, tmp_path):
    views = [{"view": "timeline", "path": True}, {"view": "timeline", "kind": "map"}]
    page = write_report(run, tmp_path / "report.html", views, "Who is slow")
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"rank 5 computes (3\d|4\d)\.\d % \(± [\d.]+ %\) slower than its like", text)) >= 2
    assert page.stat().st_size < 2_000_000
    found = probe(page)
    assert (found["requests"], found["messages"], found["live"]) == ([], [], 2)


def test_a_report_of_nobodys_choice_shows_the_timeline_of_a_run_that_has_spans(run):
    assert "rank 5 computes" in build_report(run).decode()
