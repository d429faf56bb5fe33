"""What processes have of a step becomes rows of whole tensors, or is left out and named; and lines of JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from megalens.protocol import MOMENT_COLUMNS, MOMENT_POWERS, decode_frame
from megalens.tracer.moments import measure
from megalens.tracer.moments.collector import MomentFrames, pack, unpack
from megalens.tracer.moments.gathering import CompleteStep, Gathering, Merged, Tensors
from megalens.tracer.moments.jsonl import JsonlFiles
from megalens.tracer.moments.part import Figures, MeasuredRows, NameList


class Ranks:
    """Processes that send to a gathering, over bytes as the others do."""

    def __init__(self, size: int) -> None:
        self.warnings: list[str] = []
        self.gone: set[int] = set()
        self.names = [NameList(stage=rank) for rank in range(size)]
        self.told = [0] * size
        self.gathering = Gathering(
            size, lambda rank: f"rank {rank}", self.gone.__contains__, self.warnings.append
        )

    def send(self, rank: int, step: int, values: dict[str, list[float]], stat: str = "param", **more) -> None:
        part = MeasuredRows(stat, **more)
        for name, numbers in values.items():
            part.add([self.names[rank].index(name)], measure([torch.tensor(numbers, dtype=torch.float64)]))
        figures = [found for found in [part.figures()] if found is not None]
        told, self.told[rank] = self.told[rank], len(self.names[rank])
        meta, arrays = pack(step, 8 * step, figures, self.names[rank], told)
        payload = memoryview(b"".join(array.tobytes() for array in arrays))
        names, came = unpack(json.loads(json.dumps(meta, allow_nan=False)), payload)
        self.gathering.take(rank, step, meta["samples"], meta["stage"], meta["first"], names, came)

    def ready(self, **options) -> list[CompleteStep]:
        return list(self.gathering.ready(**options))


def sent(frames: MomentFrames, step: CompleteStep) -> pa.Table:
    (template,) = frames.of(step)
    frame = decode_frame(template.frame(step=step.step, seq=5))
    assert (frame.stream, frame.step, frame.seq, frame.rows) == ("moments", step.step, 5, template.rows)
    return frame.table()


def counts(step: CompleteStep) -> dict[str, float]:
    return {
        name: row[0] for stat in step.stats for name, row in zip(stat.tensors.names, stat.rows, strict=True)
    }


def test_parts_of_all_processes_become_one_row_in_natural_order() -> None:
    ranks = Ranks(3)
    ranks.send(2, 1, {"layers.10.w": [7.0, 9.0]})
    ranks.send(0, 1, {"layers.2.w": [1.0], "shared": [1.0, 2.0]})
    assert ranks.ready() == []
    ranks.send(1, 1, {"shared": [3.0, 4.0, math.nan]})
    (step,) = ranks.ready()
    assert (step.step, step.samples, step.left_out) == (1, 8, 0)
    (stat,) = step.stats
    assert list(stat.tensors.names) == ["layers.2.w", "layers.10.w", "shared"]
    # x = 1, 2, 3, 4: the worked example of the format.
    assert stat.rows[2].tolist() == [4, 2.5, 5, 0, 10.25, 1, 4, 1, 0, 0, 0]
    assert stat.tensors.stages.tolist() == [0, 2, 0]
    row = sent(MomentFrames(0), step).to_pylist()[2]
    assert (row["name"], row["stat"], row["samples"], row["m4"]) == ("shared", "param", 8, 10.25)


def test_rows_are_the_same_whatever_the_steps_before_were_of() -> None:
    ranks = Ranks(2)
    frames = MomentFrames(3)
    given: list[tuple[dict[str, list[float]], dict[str, list[float]], str]] = [
        ({"b": [1.0], "a": [2.0]}, {"c": [3.0]}, "pre_clip"),
        ({"b": [4.0], "a": [5.0]}, {"c": [6.0]}, "pre_clip"),
        ({"b": [4.0], "a": [5.0]}, {"c": [6.0]}, "pre_step"),
        ({"a": [7.0], "b": [8.0]}, {"c": [9.0]}, "pre_step"),
        ({"a": [10.0]}, {"c": [11.0], "0": [12.0]}, "pre_step"),
        ({"b": [13.0], "a": [14.0]}, {"c": [15.0]}, "pre_clip"),
    ]
    for number, (one, other, stage) in enumerate(given, 1):
        for rank, values in enumerate((one, other)):
            ranks.send(rank, number, values, "grad", gradient_stage=stage)
        (step,) = ranks.ready()
        rows = sent(frames, step)
        assert rows.equals(sent(MomentFrames(3), step))
        values = one | other
        assert rows["name"].to_pylist() == sorted(values)
        assert rows["mean"].to_pylist() == [values[name][0] for name in sorted(values)]
        assert rows["stage"].to_pylist() == [int(name in other) for name in sorted(values)]
        assert {*rows["gradient_stage"].to_pylist()} == {stage}
        assert ({*rows["step"].to_pylist()}, {*rows["rank"].to_pylist()}) == ({number}, {3})


def test_a_step_of_very_many_tensors_is_cut_into_frames(monkeypatch) -> None:
    monkeypatch.setattr("megalens.tracer.moments.collector._FRAME_ROWS", 4)
    ranks = Ranks(1)
    for stat, names in (("param", "abc"), ("grad", "abcdefg")):
        ranks.send(0, 1, {name: [float(ord(name))] for name in names}, stat)
    (step,) = ranks.ready()
    tables = [decode_frame(frame.frame(step=1, seq=1)).table() for frame in MomentFrames(0).of(step)]
    assert [table.num_rows for table in tables] == [4, 4, 2]
    rows = pa.concat_tables(tables).to_pylist()
    named = [("param", name) for name in "abc"] + [("grad", name) for name in "abcdefg"]
    assert [(row["stat"], row["name"]) for row in rows] == named
    assert all(row["mean"] == ord(row["name"]) for row in rows)


def test_a_tensor_of_which_a_part_does_not_come_is_left_out_and_named() -> None:
    ranks = Ranks(2)
    for step in (1, 2):
        ranks.send(0, step, {"own": [1.0], "both": [1.0]})
        if step == 1:
            ranks.send(1, step, {"both": [2.0]})
    (first,) = ranks.ready()
    assert counts(first) == {"both": 2, "own": 1}
    assert ranks.ready() == []
    # It may be gone with its part in the queue: only once that is empty it is missed.
    ranks.gone.add(1)
    assert ranks.ready(caught_up=lambda: False) == []
    (second,) = ranks.ready()
    assert counts(second) == {"own": 1}
    assert second.left_out == 1
    assert ranks.warnings == [
        "Statistics of 1 tensors of step 2 are left out: rank 1 had not sent a part of them."
    ]


def test_of_a_process_that_never_said_what_it_has_nothing_is_sent_in_part() -> None:
    ranks = Ranks(2)
    ranks.send(0, 1, {"w": [1.0]})
    ranks.gone.add(1)
    (step,) = ranks.ready()
    assert (counts(step), step.left_out) == ({}, 1)


def test_a_process_that_has_sent_a_later_step_is_not_waited_for() -> None:
    ranks = Ranks(2)
    ranks.send(0, 1, {"w": [1.0]})
    ranks.send(1, 1, {"w": [1.0]})
    ranks.send(0, 2, {"w": [1.0]})
    ranks.send(0, 3, {"w": [1.0]})
    assert [step.step for step in ranks.ready()] == [1]
    ranks.send(1, 3, {"w": [1.0]})
    second, third = ranks.ready()
    assert (counts(second), counts(third)) == ({}, {"w": 2})
    # What comes all the same is too late, and kept by nobody.
    ranks.send(1, 2, {"w": [1.0]})
    assert not ranks.gathering.waiting


def test_what_lies_there_of_many_processes_is_folded(monkeypatch) -> None:
    monkeypatch.setattr("megalens.tracer.moments.gathering._FOLD_BYTES", 200)
    ranks = Ranks(12)
    numbers = np.random.default_rng(0).normal(3, 1, (12, 40))
    for rank in range(12):
        ranks.send(rank, 1, {"w": numbers[rank].tolist()})
        (step,) = ranks.gathering._steps.values()
        assert step.nbytes <= 200 + 72
    (whole,) = ranks.ready()
    expected = measure([torch.from_numpy(numbers)]).numpy()
    np.testing.assert_allclose(whole.stats[0].rows, expected, rtol=1e-9)


def test_names_that_did_not_arrive_are_missed_and_told_anew() -> None:
    ranks = Ranks(1)
    ranks.names[0].index("lost")
    ranks.told[0] = 1
    with pytest.raises(ValueError, match="did not arrive"):
        ranks.send(0, 1, {"w": [1.0]})
    ranks.told[0] = 0
    ranks.send(0, 2, {"w": [1.0]})
    assert [counts(step) for step in ranks.ready()] == [{"w": 1}]


def test_gradients_of_which_one_part_may_be_clipped_may_be_clipped() -> None:
    ranks = Ranks(2)
    ranks.send(0, 1, {"w": [1.0]}, "grad", gradient_stage="pre_clip")
    ranks.send(1, 1, {"w": [1.0]}, "grad", gradient_stage="pre_step")
    (step,) = ranks.ready()
    assert step.stats[0].gradient_stage == "pre_step"


@given(
    st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=6), min_size=1, max_size=5),
    st.sampled_from([1.0, 8.0]),
)
def test_micro_batches_and_a_scale_make_the_row_of_all_values_without_it(parts, scale: float) -> None:
    part = MeasuredRows("dgrad", scale=scale, divide=True)
    for numbers in parts:
        part.add([0], measure([scale * torch.tensor(numbers, dtype=torch.float64)]))
    figures = part.figures()
    assert figures is not None
    whole = torch.tensor([number for numbers in parts for number in numbers], dtype=torch.float64)
    expected = measure([whole]).numpy()
    # Moments of values that hardly differ are rounding: held against the values' own size.
    size = float(whole.abs().max())
    slack = 1e-10 * len(whole) * size**MOMENT_POWERS
    near = MOMENT_COLUMNS.index("near_zero_count")
    if scale != 1:
        # They were counted with the scale in them, and how many are near zero without it is not known.
        assert np.isnan(figures.rows[:, near]).all()
        figures.rows[:, near] = expected[:, near]
    assert np.all(np.abs(figures.rows - expected) <= slack + 1e-300)


def whole(stat: str, values: dict[str, list[float]], scale: float = 1.0, stage: str = "") -> CompleteStep:
    rows = measure([torch.tensor(numbers, dtype=torch.float64) for numbers in values.values()]).numpy()
    merged = Merged(stat, stage, scale, Tensors(list(values), np.zeros(len(values), np.int32)), rows)
    return CompleteStep(7, 28, [merged], 0)


def test_lines_are_those_that_readers_know(tmp_path: Path) -> None:
    files = JsonlFiles(tmp_path)
    files(whole("grad", {"w": [1.0, 2.0, 3.0, 4.0], "bad": [1.0, math.nan]}, stage="pre_clip"))
    files(whole("dgrad", {"m/input0": [1.0, 2.0, 3.0, 4.0]}, scale=2.0, stage="backward"))
    files(whole("dgrad", {"m/input0": [2.0, 4.0]}, scale=math.nan, stage="backward_scaled"))
    files(whole("param", {}))
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.*")) == [
        "training_stats/dgrad_raw_moments_by_layer/rank0.jsonl",
        "training_stats/grad_raw_moments_by_param/rank0.jsonl",
    ]
    grad = (tmp_path / "training_stats/grad_raw_moments_by_param/rank0.jsonl").read_text()
    assert grad == (
        '{"iter": 7, "consumed_train_samples": 28, "stat": "grad_raw_moments_by_param", "gradient_stage": "pre_clip", "values": '
        '{"w": {"count": 4.0, "sum_1": 10.0, "sum_2": 30.0, "sum_3": 100.0, "sum_4": 354.0}, '
        '"bad": {"count": 2.0, "sum_1": NaN, "sum_2": NaN, "sum_3": NaN, "sum_4": NaN}}}\n'
    )
    dgrad = (tmp_path / "training_stats/dgrad_raw_moments_by_layer/rank0.jsonl").read_text().splitlines()
    first, second = (json.loads(line) for line in dgrad)
    # Twice the values: the scale is in them, and the line says so.
    assert (first["gradient_stage"], first["loss_scale"]) == ("backward_scaled", 2.0)
    assert list(first["values"]["m/input0"].values()) == [4, 20, 120, 800, 354 * 16]
    assert "loss_scale" not in second
    assert second["values"]["m/input0"]["sum_1"] == 6


def test_a_disk_that_fails_is_said_once_and_ends_the_files_only(tmp_path: Path) -> None:
    (tmp_path / "training_stats").write_text("not a folder")
    files = JsonlFiles(tmp_path)
    said: list[str] = []
    files.warn = said.append
    for _ in range(2):
        files(whole("param", {"w": [1.0]}))
    assert len(said) == 1
    assert "Statistics are not written to files any more, from step 7 on" in said[0]


def test_a_step_that_a_fused_optimizer_leaves_out_has_no_gradients() -> None:
    rows = measure([torch.ones(2)])
    assert MeasuredRows("grad", [0], [rows], refused=torch.tensor(1.0)).figures() is None
    kept = MeasuredRows("grad", [0], [rows], refused=torch.tensor(0.0)).figures()
    assert isinstance(kept, Figures)
    assert kept.rows.shape == (1, len(MOMENT_COLUMNS))
