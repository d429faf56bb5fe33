"""The order of a step's computation, and what came first."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from judging import judged, readings, step

from megalens.instruments.monitor.levels import direction_of, module_order, trace_order
from megalens.instruments.monitor.rule import Alarm, first_serious, reached
from megalens.protocol import MOMENT_COLUMNS, Readings


def place(stat, index=0, rank=0, stage=0, micro_batch=-1, name="x"):
    whole = [np.array([value]) for value in (rank, stage, micro_batch, index)]
    return int(trace_order([stat], [name], *whole)[0])


def test_a_step_runs_forward_back_and_then_over_the_optimizer():
    order = [
        place("param_origin"),
        place("activation", 0, stage=0, micro_batch=0),
        place("activation", 5, stage=0, micro_batch=0),
        place("activation", 0, stage=1, micro_batch=0),
        place("scalar", name="loss"),
        place("dgrad", 5, stage=1, micro_batch=0),
        place("dgrad", 2, stage=1, micro_batch=0),
        place("dgrad", 5, stage=0, micro_batch=0),
        place("activation", 0, micro_batch=1),
        place("grad_unreduced", 9),
        place("grad_unreduced", 2),
        place("grad", 9),
        place("exp_avg", 0),
        place("param", 0),
    ]
    assert order == sorted(order)
    assert len({*order}) == len(order)


@given(
    st.sampled_from(["activation", "dgrad", "grad", "param", "scalar"]),
    *(st.integers(-1, 1 << 40) for _ in range(4)),
)
def test_a_place_is_a_number_that_every_reader_holds_exactly(stat, index, rank, stage, micro_batch):
    found = place(stat, index, rank, stage, micro_batch)
    assert 0 <= found < 1 << 53


def test_modules_are_ordered_as_they_ran_and_what_lies_between_by_its_layer():
    order = module_order(
        {
            "activation": ["embed/output0", "h.0.fc/input0", "h.0.fc/output0", "h.1.fc/input0", "h.1.fc/output0", "head/input0"],
            "residual": ["h.0/input0", "h.0/output0", "h.1/output0"],
            "grad": ["h.1.fc.weight", "embed.weight"],
        }
    )  # fmt: skip
    assert sorted(order, key=order.get) == [
        *("embed.weight", "embed/output0", "h.0/input0", "h.0.fc/input0", "h.0.fc/output0", "h.0/output0"),
        *("h.1.fc.weight", "h.1.fc/input0", "h.1.fc/output0", "h.1/output0", "head/input0"),
    ]
    # Where only gradients were measured, they came the other way round.
    back = module_order({"dgrad": ["h.1.fc/output0", "h.0.fc/output0"]})
    assert sorted(back, key=back.get) == ["h.0.fc/output0", "h.1.fc/output0"]


def test_the_first_anomaly_is_the_one_that_was_computed_first_and_names_what_it_reached():
    names = ("h.0.fc", "h.1.fc", "h.2.fc")
    bad = np.zeros((3, len(MOMENT_COLUMNS)))
    bad[:, 0] = 4

    def spoilt(stat, which, rank=0):
        rows = bad.copy()
        rows[which, 7] = 1
        listed = [f"{name}/output0" for name in names]
        return Readings(
            stat, rank, listed[::-1] if stat == "dgrad" else listed, rows[::-1] if stat == "dgrad" else rows
        )

    alarms = judged([step(1, spoilt("dgrad", [0, 1, 2]), spoilt("activation", [1, 2]))])
    first = first_serious(reversed(alarms))
    assert (first.name, first.direction) == ("h.1.fc/output0", "forward")
    assert reached(alarms) == [
        ("forward", "h.2.fc", 0),
        ("backward", "h.2.fc", 0),
        ("backward", "h.1.fc", 0),
        ("backward", "h.0.fc", 0),
    ]


def test_over_ranks_the_one_where_it_was_computed_first_comes_first():
    def spoilt(rank, which):
        values = {f"h.{at}.fc/output0": np.ones(4) for at in range(3)}
        values[f"h.{which}.fc/output0"][0] = np.inf
        return readings("activation", values, rank)

    alarms = judged([step(1, spoilt(0, 2), spoilt(1, 1))])
    assert first_serious(alarms).rank == 1
    alarms = judged([step(1, spoilt(0, 1), spoilt(1, 1))])
    assert first_serious(alarms).rank == 0


def test_a_note_is_no_anomaly():
    note = Alarm(1, "dead", "note", "", "grad", "w", "rms", 0.0)
    assert first_serious([note]) is None
    assert reached([note]) == []


def test_directions():
    assert [direction_of(stat) for stat in ("param_origin", "residual", "attention_entropy", "param")] == [
        *("parameters", "forward", "forward", "update"),
    ]
    assert direction_of("scalar", "train/loss") == "loss"
