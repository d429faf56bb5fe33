"""Event files of TensorBoard, written by torch's own writer and read beside TensorBoard's own reader."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch.utils.tensorboard import SummaryWriter

import megalens
from megalens.runs import ClientError, tensorboard_files


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))


def write(folder, tag="loss", steps=range(1, 6), scale=1.0, **more):
    with SummaryWriter(str(folder), **more) as writer:
        for step in steps:
            writer.add_scalar(tag, scale / max(step, 1), step)


def rows_of(path):
    with megalens.open(path) as run:
        return run.table("scalars").to_pandas(), run.warnings


def test_numbers_are_those_that_tensorboard_shows(tmp_path):
    with SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(300):
            writer.add_scalar("loss/train", np.sin(step), step)
            writer.add_scalar("lr", 1e-4 * step, step)
        writer.add_scalar("loss/train", float("nan"), 300)
        writer.add_histogram("weights", np.arange(10.0), 3)
        writer.add_text("note", "hello", 3)
    rows, warnings = rows_of(tmp_path / "run")
    theirs = EventAccumulator(str(tmp_path / "run"), size_guidance={"scalars": 0}).Reload()
    for tag in ("loss/train", "lr"):
        mine = rows[rows.name == tag]
        expected = theirs.Scalars(tag)
        assert [*mine.step] == [each.step for each in expected]
        np.testing.assert_array_equal(mine.value, [each.value for each in expected])
        np.testing.assert_allclose(mine.time, [each.wall_time for each in expected])
    assert "2 histograms, pictures and texts are left out." in warnings


def test_numbers_that_newer_writers_keep_as_tensors_are_read(tmp_path):
    writer = EventFileWriter(str(tmp_path / "run"))
    values = {
        "packed": tensor_pb2.TensorProto(dtype=1, tensor_content=struct.pack("<f", 0.5)),
        "double": tensor_pb2.TensorProto(dtype=2, double_val=[0.1]),
        "vector": tensor_pb2.TensorProto(
            dtype=1, float_val=[1, 2], tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=2)])
        ),
    }
    summary = summary_pb2.Summary(
        value=[summary_pb2.Summary.Value(tag=tag, tensor=tensor) for tag, tensor in values.items()]
    )
    writer.add_event(event_pb2.Event(step=7, wall_time=1.7e9, summary=summary))
    writer.close()
    rows, _ = rows_of(tmp_path / "run")
    assert dict(zip(rows.name, rows.value, strict=True)) == {"packed": 0.5, "double": 0.1}


def test_what_was_written_again_after_a_restart_counts_once(tmp_path):
    write(tmp_path / "run", steps=range(1, 7))
    write(tmp_path / "run", steps=range(4, 9), scale=10.0, filename_suffix=".second")
    rows, _ = rows_of(tmp_path / "run")
    assert [*rows.step] == [*range(1, 9)]
    np.testing.assert_allclose(
        rows.value, [1, 1 / 2, 1 / 3, 10 / 4, 10 / 5, 10 / 6, 10 / 7, 10 / 8], rtol=1e-6
    )


def test_folders_of_ranks_are_ranks_and_further_folders_of_a_run_go_before_its_names(tmp_path):
    for rank in range(3):
        write(tmp_path / "tb" / "20261101-1200" / f"rank_{rank}", steps=[1], scale=rank + 1.0)
    rows, _ = rows_of(tmp_path / "tb")
    assert [*zip(rows["rank"], rows.value, strict=True)] == [(0, 1.0), (1, 2.0), (2, 3.0)]
    with SummaryWriter(str(tmp_path / "several")) as writer:
        writer.add_scalar("lr", 1.0, 1)
        writer.add_scalars("loss", {"train": 2.0, "held_out": 3.0}, 1)
    rows, _ = rows_of(tmp_path / "several")
    assert set(rows.name) == {"lr", "loss_train/loss", "loss_held_out/loss"}


def test_several_runs_are_named_and_files_without_numbers_refused(tmp_path):
    for name in ("first", "second"):
        write(tmp_path / "logs" / name)
    with pytest.raises(ClientError, match="of 2 runs: open one of first, second"):
        megalens.open(tmp_path / "logs")
    with SummaryWriter(str(tmp_path / "empty")) as writer:
        writer.add_text("note", "hello", 1)
    with pytest.raises(ClientError, match="no numbers over steps"):
        megalens.open(tmp_path / "empty")


def test_a_file_that_is_cut_or_damaged_gives_what_comes_before(tmp_path):
    write(tmp_path / "run", steps=range(1, 50))
    (file,) = (tmp_path / "run").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    rows, warnings = rows_of(tmp_path / "run")
    assert [*rows.step] == [*range(1, 49)]
    assert any("is cut off or damaged after" in each for each in warnings)


@pytest.mark.parametrize("change", [1, 128])
def test_no_changed_byte_makes_another_number(tmp_path, change):
    write(tmp_path / "run", steps=range(1, 5))
    (file,) = (tmp_path / "run").iterdir()
    whole = file.read_bytes()
    right = {(step, np.float32(1 / step)) for step in range(1, 5)}
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
        try:
            read = tensorboard_files.read_numbers({"": [file]})
        except ClientError:
            continue
        rows = pa.concat_tables(read.streams["scalars"])
        found = set(zip(rows["step"].to_pylist(), np.float32(rows["value"]), strict=True))
        assert found <= right
        assert len(found) == 4 or read.problems


def test_norms_of_layers_that_megatron_writes_are_norms_of_layers_here(tmp_path):
    tags = {
        "layer-wgrad-l2/decoder.layers.{}": ("grad", "decoder.layers.{}"),
        "layer-param-l2/decoder.layers.{}": ("param_origin", "decoder.layers.{}"),
        "layer-residual-accumulator-l2/decoder.layers.{}": ("residual", "decoder.layers.{}/input0"),
        "layer-residual-contribution-l2/model_chunk1.decoder.layers.{}": (
            "residual",
            "model_chunk1.decoder.layers.{}/residual_contribution",
        ),
        "layer-router-logits-l2/decoder.layers.{}": (
            "activation",
            "decoder.layers.{}.mlp.router/router_logits",
        ),
    }
    others = ("layer-wgrad-l2/global", "global-param-l2/global", "layer-router-logits-max/decoder.layers.3")
    norms = {}
    with SummaryWriter(str(tmp_path / "tb")) as writer:
        for step in (10, 20):
            for at, tag in enumerate(tags):
                for layer in range(12):
                    norms[step, at, layer] = float(np.float32((at + 1) * step + layer / 3))
                    writer.add_scalar(f"tensor-metrics/{tag.format(layer)}", norms[step, at, layer], step)
            for tag in others:
                writer.add_scalar(f"tensor-metrics/{tag}", 1.5, step)
        writer.add_scalar("tensor-metrics/layer-wgrad-l2/decoder.layers.0", float("inf"), 30)
    with megalens.open(tmp_path / "tb") as run:
        rows = run.table("moments").to_pandas()
        layers = run.moments("grad", by="layer").query("step == 20")
        total = run.moments("grad", by="stack").query("step == 20")
        scalars = set(run.table("scalars").to_pandas().name)
        worst = run.moments("grad", by="layer").query("step == 30")
    assert len(rows) == 2 * len(tags) * 12 + 1
    for at, (stat, name) in enumerate(tags.values()):
        for layer in range(12):
            row = rows[(rows.step == 10) & (rows.stat == stat) & (rows.name == name.format(layer))]
            assert [*np.sqrt(row.m2)] == pytest.approx([norms[10, at, layer]], rel=1e-15)
    assert [*layers.layer] == [*range(12)]
    assert [*layers.l2] == pytest.approx([norms[20, 0, layer] for layer in range(12)], rel=1e-15)
    expected = np.sqrt(sum(norms[20, 0, layer] ** 2 for layer in range(12)))
    assert [*total.l2] == pytest.approx([expected], rel=1e-15)
    # An infinite norm is said to be one.
    assert [*worst.inf_count] == [1]
    assert {f"tensor-metrics/{tag}" for tag in others} <= scalars
    assert len(scalars) == 12 * len(tags) + len(others)
