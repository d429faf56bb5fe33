"""The report of a run that goes on: a page that follows nothing and, once drawn, asks its browser for nothing."""

import pytest
from page_probe import probe

from megalens.pictures.report import write_report
from megalens.protocol import VIEW_NAMES, ProtocolError, check_view_options

pytestmark = pytest.mark.slow


def options_of(view):
    try:
        return check_view_options({"view": view})
    except ProtocolError:
        return check_view_options({"view": view, "flag": "HiddenStates"})


def test_every_view_of_a_live_run_is_drawn_in_a_browser_and_then_leaves_it_alone(live, attach, tmp_path):
    training = live()
    training.step(5)
    run = attach(training.id)
    page = write_report(run, tmp_path / "report.html", [options_of(view) for view in VIEW_NAMES])
    found = probe(page, "--rest")
    assert (found["requests"], found["messages"]) == ([], [])
    assert found["live"] == len(VIEW_NAMES)
    # Frames, timers and the like that its script asked for while nobody did anything.
    assert found["asked"] == 0
