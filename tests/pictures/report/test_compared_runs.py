"""Runs beside one another in a report."""

from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from explored_run import BAD_STEP, write_explored_run
from recorded_run import RUN_ID

from megalens.hub.resumed import read_resumed, set_aside
from megalens.pictures.report import build_report
from megalens.pictures.widgets.picture import draw_picture
from megalens.runs import open_run
from megalens.runs.opening import compared_answers, neighbouring_runs

OTHER = "20261121-090000-gpt-wide"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of 40 steps, and beside it one of 30, in a folder with another name, and one that cannot be read."""
    home = tmp_path_factory.mktemp("runs")
    own = write_explored_run(home / RUN_ID)
    write_explored_run(
        home / "moved", steps=30, run={"id": OTHER, "name": "gpt-wide", "started": 1_795_000_000.0}
    )
    (home / "torn").mkdir()
    (home / "torn" / "run.json").write_text("{")
    with open_run(own) as run:
        yield run


@pytest.fixture
def pictures(draw, runs):
    def drawn(*ids, **options):
        with compared_answers(runs) as answers:
            return draw(
                runs, answers, **{"view": "statistics", "kind": "lines", "runs": list(ids), **options}
            )

    return drawn


def by_run(picture):
    """Step and value of each line, by its name."""
    lines = {}
    for row in picture.datasets["rows"]:
        lines.setdefault((row["name"], tuple(row["dash"])), []).append((row["x"], row["value"]))
    return lines


def test_another_run_is_drawn_over_this_one_with_dashes_of_its_own(pictures):
    (shown,) = pictures(OTHER, by=[], statistic="std")
    lines = by_run(shown)
    assert list(lines) == [("gpt-demo · all tensors", (1, 0)), ("gpt-wide · all tensors", (6, 3))]
    # Both hold the same tensors: up to the end of the shorter one they are the same line.
    own, other = lines.values()
    assert (own[:30], len(own), len(other)) == (other, 40, 30)
    assert "gpt-demo (this run): solid. gpt-wide: dashed." in " ".join(shown.caption)
    assert shown.params["keyText"] == ["gpt-demo", "gpt-wide"]
    assert len({row["color"] for row in shown.datasets["rows"]}) == 2
    (layers,) = pictures(OTHER, by=["layer"])
    colors = {(row["name"].split(" · ")[1], row["color"]) for row in layers.datasets["rows"]}
    assert len(colors) == len(layers.params["keyText"]) == 5
    for each in ("Values that are not finite at 1 step", "Values of gpt-wide that are not finite at 1 step"):
        assert any(line.startswith(each) for line in layers.caption)
    assert [(mark["x"], mark["x2"]) for mark in layers.datasets["nonfinite"]] == [(BAD_STEP, BAD_STEP)] * 2


def test_an_earlier_attempt_is_drawn_over_its_run(draw, tmp_path):
    home = tmp_path / RUN_ID
    write_explored_run(home, steps=30)
    set_aside(home, read_resumed(home), 21)
    again = write_explored_run(tmp_path / "again", steps=40)
    for packed in again.glob("*.parquet"):
        rows = pq.read_table(packed)
        pq.write_table(rows.filter(pc.field("step") >= 21), home / packed.name)
    (again / "run.json").rename(home / "run.json")
    with open_run(home) as run, compared_answers(run) as answers:
        options = {"view": "statistics", "kind": "lines", "by": [], "runs": [f"{RUN_ID}.attempt-1"]}
        (shown,) = draw(run, answers, **options)
    lines = by_run(shown)
    assert list(lines) == [("gpt-demo · all tensors", (1, 0)), ("gpt-demo, attempt 1 · all tensors", (6, 3))]
    own, other = lines.values()
    assert ([x for x, _ in own], [x for x, _ in other]) == (list(range(1, 41)), list(range(1, 31)))


@pytest.mark.slow
def test_no_step_of_long_runs_is_compared_with_one_beside_it(draw, tmp_path):
    # More than the points that are asked for where nothing is compared; from runs of unlike lengths unlike steps would be left out.
    own = write_explored_run(tmp_path / RUN_ID, steps=2600, stats=("grad",))
    write_explored_run(
        tmp_path / OTHER, steps=2500, stats=("grad",), run={"id": OTHER, "name": "gpt-wide", "started": 1.0}
    )
    view = {"view": "statistics", "kind": "lines", "by": [], "runs": [OTHER], "compare": "ratio"}
    with open_run(own) as run, compared_answers(run) as answers:
        (shown,) = draw(run, answers, **view)
    assert not any("between its neighbours" in line for line in shown.caption)
    ((points,),) = [by_run(shown).values()]
    assert {value for _, value in points} == {1.0}
    assert (points[0][0], points[-1][0]) == (1, 2500)


def test_runs_that_are_not_there_are_named(pictures):
    (shown,) = pictures("gone", OTHER, by=[])
    assert "The run gone could not be opened here, so it is not drawn." in shown.caption
    assert len(by_run(shown)) == 2
    for strange in ("../secret", "", "a/b"):
        (alone,) = pictures(strange, by=[], compare="ratio")
        assert alone.empty
        assert "could not be opened here" in alone.caption[0]


@pytest.mark.slow
def test_a_page_and_a_cell_hold_the_other_run_and_let_go_of_it(runs):
    closed = []

    def others(run_id):
        found = neighbouring_runs(runs)(run_id)
        if found is not None:
            before = found.close
            found.close = lambda: (closed.append(found.id), before())
        return found

    view = {"view": "statistics", "kind": "lines", "by": [], "runs": [OTHER]}
    page = build_report(runs, [view, {**view, "compare": "ratio"}], others=others).decode()
    assert "gpt-wide: dashed." in page
    assert "Ratio, gpt-wide over this run" in page
    assert closed == [OTHER]
    assert "gpt-wide: dashed." in draw_picture(runs, view)[1]
