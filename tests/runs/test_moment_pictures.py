"""What is kept of groups for a picture: extremes, gaps, the greatest series, values against the first and trailing means."""

import dataclasses
import math

import numpy as np
import pytest
from grouped_moments import ask, row, source, spiky, values

from megalens.protocol import MOMENT_READINGS
from megalens.runs.moments import MomentQuery
from megalens.runs.moments.grouping.answer import trailing_mean
from megalens.runs.moments.grouping.series import Part, Thinner


def test_decimation_keeps_ends_extremes_and_every_step_that_is_not_finite():
    rows = spiky(1000)
    rows[300] |= {"nan_count": 2.0}
    rows[1301] |= {"mean": math.nan, "m2": math.nan, "nan_count": math.nan, "inf_count": math.nan}
    rows[1402] |= {"nan_count": 1.0, "count": 0.0, "mean": math.nan}
    groups = ask(rows, by=["layer"], points=40)
    kept = {}
    for layer, step, _ in values(groups, "layer"):
        kept.setdefault(layer, []).append(step)
    for layer, steps in kept.items():
        assert steps == sorted(steps)
        assert {1, 77 + layer, 501, 1000} <= set(steps)
        assert len(steps) <= 43
    assert 301 in kept[0]
    assert {302, 403} <= set(kept[1])
    assert (groups.groups_total, groups.steps_total) == (2, 1000)
    assert len(ask(rows, by=["layer"], points=1000).table) == 2000


@pytest.mark.slow
def test_steps_left_out_part_by_part_are_those_left_out_of_the_whole(monkeypatch):
    regular = spiky(300)
    regular[10] |= {"nan_count": 1.0}
    regular[77] |= {"mean": math.inf, "m2": math.nan}
    late = [entry for entry in spiky(300) if entry["name"] != regular[0]["name"] or 40 < entry["step"] < 250]
    few = [entry for entry in late if entry["name"] != regular[0]["name"] or entry["step"] % 20 == 0]
    assert len({entry["name"] for entry in few}) == len({entry["name"] for entry in regular}) > 1
    for rows in (regular, late, few):
        for members in (
            {"points": 20},
            {"points": 20, "series": 1},
            {"points": 20, "by": ["name"], "statistic": "rms"},
            {"points": 12, "steps": [33, 280]},
            {"points": 8, "statistic": "kurtosis"},
            {"points": 1},
            {"points": 40, "ratio": "grad_to_param"},
        ):
            members = {"by": ["layer"], **members}
            both = rows + [{**entry, "stat": "param", "mean": 1.0} for entry in regular]
            with monkeypatch.context() as patch:
                patch.setattr(
                    "megalens.runs.moments.grouping.series.Thinner.thin",
                    lambda thinner, part: _counted(thinner, part),
                )
                whole = ask(both, **members)
            for size in (50, 7):
                with monkeypatch.context() as patch:
                    patch.setattr("megalens.runs.moments.grouping.cells._PIECE_ROWS", size)
                    parts = ask(both, **members)
                for name in parts.table.column_names:
                    if name != "name":
                        np.testing.assert_array_equal(
                            parts.table[name].to_numpy(), whole.table[name].to_numpy(), err_msg=name
                        )
                assert (parts.keys, parts.groups_total, parts.steps_total) == (
                    whole.keys,
                    whole.groups_total,
                    whole.steps_total,
                )


def _counted(thinner, part):
    """Leave nothing out."""
    np.add.at(thinner.count, part.keys["code"], 1)
    return part


@pytest.mark.parametrize("odd", [(), (math.nan,), (math.inf, -math.inf, math.nan)])
def test_a_grid_is_thinned_as_its_cells_are_group_by_group(odd):
    rng = np.random.default_rng(5)
    steps, across = np.arange(90) * 3 + 1, 7
    cells = len(steps) * across
    grid = Part(
        keys={"code": np.tile(rng.permutation(across), len(steps))},
        step=np.repeat(steps, across),
        # Few different values, so that most extremes are there several times.
        value=rng.choice([*range(6), *odd], cells).astype(float),
        bad=rng.random(cells) < 0.01,
        more={"samples": np.arange(cells)},
        steps=steps,
        across=across,
    )
    for part in (grid, dataclasses.replace(grid, across=0)):
        kept = np.isin(np.arange(cells), Thinner(across, int(steps[-1]), 24).thin(part).more["samples"])
        for value, bad, stays in zip(
            *(x.reshape(90, across).T for x in (grid.value, grid.bad, kept)), strict=True
        ):
            assert stays[bad].all()
            for at in np.array_split(np.arange(90), 6):
                finite, left = (each[np.isfinite(each)] for each in (value[at], value[at][stays[at]]))
                assert stays[at[[0, -1]]].all()
                assert (left.min(), left.max()) == (finite.min(), finite.max())
                assert stays[at].sum() <= 4 + (bad[at] | ~np.isfinite(value[at])).sum()


@pytest.mark.parametrize("statistic", MOMENT_READINGS)
def test_a_lean_answer_has_the_same_values_errors_and_counts(statistic):
    rows = spiky(60)
    rows[10] |= {"nan_count": 1.0}
    rows[20] |= {"count": 0.0, "mean": math.nan}
    rows[30] |= {"mean": math.inf, "m2": math.nan, "nan_count": math.nan, "inf_count": math.nan}
    rows[40] |= {"rounding": 2.0**-24, "m2": 3.0, "loss_scale": math.nan, "min": math.nan}
    for members in (
        {"by": []},
        {"by": ["layer"], "points": 20, "series": 1},
        {"by": ["rank"], "ratio": "grad_to_param"},
    ):
        body = {"stat": "grad", "statistic": statistic, **members}
        both = rows + [{**entry, "stat": "param"} for entry in spiky(60)]
        whole = ask(both, **{key: value for key, value in body.items() if key != "stat"}).table
        lean = source(both).groups(MomentQuery.of_request(**body, lean=True)).table
        for name in ("step", "samples", "value", "count", "nan_count", "inf_count", "scaled"):
            np.testing.assert_allclose(
                lean[name].to_numpy(), whole[name].to_numpy(), rtol=1e-12, equal_nan=True, err_msg=name
            )
        # An error is a difference of two roots: it is known to the last digits of these.
        np.testing.assert_allclose(
            lean["error"].to_numpy(), whole["error"].to_numpy(), rtol=1e-12, atol=1e-14
        )


def test_of_many_groups_the_greatest_stay_and_those_that_are_not_finite_before_them():
    rows = [row(f"layers.{at}.w", mean=float(at), m2=0.0) for at in range(20)]
    rows[3] |= {"nan_count": 1.0}
    groups = ask(rows, by=["layer"], series=3)
    assert groups.keys == [(3,), (18,), (19,)]
    assert groups.groups_total == 20


def test_what_is_shown_starts_at_the_first_finite_value_and_gaps_stay():
    sizes = (math.nan, 4.0, math.nan, 8.0, 2.0)
    rows = [
        row("a", step, mean=size, m2=0.0, nan_count=float(math.isnan(size)), rounding=2.0**-24)
        for step, size in enumerate(sizes, 1)
    ]
    rows += [row("b", step, mean=0.0, m2=0.0) for step in (1, 2)]
    shown = ask(rows, statistic="mean", by=["name"], show="relative", smoothing=3)
    raw = ask(rows, statistic="mean", by=["name"])
    assert [value for *_, value in values(shown, "name")] == [
        pytest.approx(value, nan_ok=True)
        for value in (math.nan, 1.0, math.nan, 1.5, 1.25, math.nan, math.nan)
    ]
    np.testing.assert_allclose(shown.table["error"].to_numpy()[:5], raw.table["error"].to_numpy()[:5] / 4)
    delta = ask(rows, statistic="mean", by=["name"], show="delta")
    np.testing.assert_array_equal(delta.table["error"].to_numpy(), raw.table["error"].to_numpy())
    assert [value for *_, value in values(delta, "name")][5:] == [0.0, 0.0]


def test_a_spike_does_not_stay_in_the_trailing_means_behind_it():
    means = np.ones(100)
    means[10], means[20], means[30] = 1e20, math.inf, math.nan
    expected = [
        np.mean(part[np.isfinite(part)]) for part in (means[max(0, at - 6) : at + 1] for at in range(100))
    ]
    np.testing.assert_allclose(trailing_mean(means, 7), expected, rtol=1e-15)
    assert len(trailing_mean(means[:0], 7)) == 0
