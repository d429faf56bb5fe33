"""Many runs compared by one scalar: planted outliers come first, quantiles are numpy's, nothing is hidden."""

import json
import os

import numpy as np
import pytest

import megalens
from bench.recordings import write_courses
from megalens.cli.main import main
from megalens.runs import ClientError, run_courses
from megalens.runs.compared_runs import ComparedRuns
from megalens.runs.run_courses import RunCourses, ScalarCourse

STEPS = 120


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))


def loss_of(run: int, steps: int = STEPS) -> np.ndarray:
    rng = np.random.default_rng(run)
    return 8 * np.exp(-np.arange(steps) / 40) + 2 + rng.normal(0, 0.05, steps)


@pytest.fixture
def few(tmp_path):
    home = tmp_path / "runs"
    for run in range(6):
        write_courses(home / f"run-{run}", {"lr": np.full(STEPS, 1e-4), "loss": loss_of(run)})
    return home


@pytest.fixture
def reads(monkeypatch):
    own, names = run_courses.RunFolder, []

    def read(path):
        names.append(path.name)
        return own(path)

    monkeypatch.setattr(run_courses, "RunFolder", read)
    return names


def test_of_a_thousand_runs_the_planted_outliers_come_first(tmp_path):
    home = tmp_path / "runs"
    far = {11: 3.0, 222: -1.5, 333: 1.0, 444: 0.8, 555: 0.6}
    for run in range(1000):
        loss = loss_of(run) + far.get(run, 0.0)
        if run == 666:
            loss[70] = np.nan
        write_courses(home / f"run-{run:03}", {"loss": loss[:50] if run == 777 else loss})
    table = megalens.compare(str(home / "*")).table
    assert len(table) == 1000
    assert table["run"][:7].tolist() == ["run-666", "run-777", *(f"run-{run:03}" for run in far)]
    assert table["why"][:8].tolist() == ["not-finite", "short", *["far"] * 5, "usual"]
    assert table["bad_at"][0] == 71
    assert (table["last_step"][1], table["min"][2]) == (50, loss_of(11).min() + 3)
    assert table["final"][3] == loss_of(222)[-1] - 1.5


def test_quantiles_and_distances_are_those_of_numpy(few):
    found = megalens.compare(few)
    values = np.array([loss_of(run) for run in range(6)])
    expected = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    np.testing.assert_allclose(found.quantiles, expected, rtol=1e-12)
    bands = found.bands
    assert list(bands.columns) == ["step", "5%", "25%", "50%", "75%", "95%", "runs"]
    assert bands["step"].tolist() == list(range(1, STEPS + 1))
    assert set(bands["runs"]) == {6}
    apart = np.median(np.abs(values - np.median(values, axis=0)), axis=1)
    np.testing.assert_allclose(found.distance, apart, rtol=1e-12)
    logs = np.median(np.abs(np.log10(values) - np.log10(np.median(values, axis=0))), axis=1)
    np.testing.assert_allclose(megalens.compare(few, scale="log").distance, logs, rtol=1e-12)


def test_a_step_counts_only_runs_that_have_a_value_there():
    steps = np.arange(1, 11)
    short, bad = np.ones(4), np.full(10, 3.0)
    bad[1] = np.inf
    found = ComparedRuns.of([ScalarCourse.of(steps[:4], short), ScalarCourse.of(steps, bad)])
    assert found.counts.tolist() == [2, 1, 2, 2, *[1] * 6]
    np.testing.assert_array_equal(found.quantiles[2], [2, 1, 2, 2, *[3] * 6])


def test_blocks_keep_every_extreme_and_joined_blocks_are_those_of_the_rows():
    rng = np.random.default_rng(0)
    steps = np.arange(10, 40_010)
    values = rng.normal(0, 1, len(steps))
    values[23_456], values[31_000] = 99.0, -99.0
    fine = ScalarCourse.of(steps, values)
    assert len(fine.block) <= 257
    coarse = fine.at(fine.level + 3)
    for course in (fine, coarse):
        of = steps >> course.level
        for number, block in enumerate(course.block.astype(int)):
            own = values[of == block]
            assert (course.low[number], course.high[number], course.last[number]) == (
                own.min(),
                own.max(),
                own[-1],
            )


def test_only_runs_that_changed_are_read_again(few, reads):
    folders = sorted(few.iterdir())
    first = RunCourses("loss", few).of(folders)
    assert sorted(reads) == [folder.name for folder in folders]
    reads.clear()
    again = RunCourses("loss", few).of(folders)
    assert reads == []
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.last, other.last)
        assert (one.level, one.end, one.bad_at) == (other.level, other.end, other.bad_at)
    file = next((few / "run-2" / "scalars").iterdir())
    os.utime(file, ns=(1, 1))
    RunCourses("loss", few).of(folders)
    assert reads == ["run-2"]


def test_a_damaged_cache_is_as_good_as_none(few, tmp_path, reads):
    folders = sorted(few.iterdir())
    RunCourses("loss", few).of(folders)
    file = next((tmp_path / "cache" / "courses").iterdir())
    file.write_bytes(file.read_bytes()[:500])
    reads.clear()
    assert None not in RunCourses("loss", few).of(folders)
    assert len(reads) == 6


def test_what_is_not_there_is_said(few):
    with pytest.raises(ClientError, match=r"No run has the scalar 'los'. Some of them have: loss, lr"):
        megalens.compare(few, "los")
    with pytest.raises(ClientError, match="No run folder is there"):
        megalens.compare(few / "nothing*")
    with pytest.raises(ClientError, match="scale"):
        megalens.compare(few, scale="cubic")
    with pytest.raises(ClientError, match="At most 5,000 runs"):
        RunCourses("loss", few).of([few] * 5001)


def test_the_terminal_prints_a_table_with_outliers_first(few, capsys):
    loss = loss_of(9)
    loss[60] = np.nan
    write_courses(few / "run-bad", {"loss": loss})
    assert main(["compare", str(few / "*"), "--limit", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "7 runs, outliers first"
    assert lines[1].split()[0] == "run-bad"
    assert "!" in lines[1]
    assert lines[1].endswith("not finite from step 61")
    assert lines[3] == "  and 5 more (--limit)"
    assert main(["compare", *map(str, sorted(few.iterdir())[:3]), "--json", "--scalar", "lr"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["final"], row["distance"]) for row in rows] == [(1e-4, 0.0)] * 3
    assert main(["compare", str(few / "none*")]) == 2
    assert "No run folder is there" in capsys.readouterr().err
