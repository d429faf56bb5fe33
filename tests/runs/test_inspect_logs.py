"""What Transformer Engine's debug features log of casts, from files, from TensorBoard and live, as statistics."""

from __future__ import annotations

import logging
import math
import sys
from abc import ABC, abstractmethod
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import megalens
from megalens.protocol import cast_of
from megalens.runs import ClientError
from megalens.tracer.moments.inspect_scalars import InspectScalars

QKV = "model.decoder.layers.1.self_attention.linear_qkv"
FC1 = "model.decoder.layers.2.mlp.linear_fc1"
NUMBERS = {
    f"{QKV}_activation_fp8_delayed_scaling_underflows%": 12.3456789,
    f"{QKV}_activation_fp8_delayed_scaling_overflows%": 0.0,
    f"{QKV}_gradient_mse": 1e-9,
    f"{FC1}_weight_mxfp8_scale_inv_min_columnwise": 0.5,
    f"{FC1}_weight_mxfp8_scale_inv_max_columnwise": 2.0,
    f"{FC1}_weight_mxfp8_mse": 0.25,
    f"{FC1}_activation_cur_amax": 7.5,
    f"{FC1}_activation_std": 0.75,
}
OF_QKV, OF_FC1 = "decoder.layers.0.self_attention.linear_qkv", "decoder.layers.1.mlp.linear_fc1"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))


def write_log(folder, numbers=NUMBERS, steps=range(3), rank=0):
    """Write as Python's logging does for nvidia-dlfw-inspect."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"nvdlfw_inspect_globalrank-{rank}.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s - %(levelname)s - %(message)s"))
    logger = logging.Logger("statistics")
    logger.addHandler(handler)
    for step in steps:
        for name, value in numbers.items():
            logger.info("%s \t\t\t\t iteration=%06d \t\t\t\t value=%.4f", name, step, value)
    handler.close()
    return path


def statistics(folder):
    log = folder / "nvdlfw_inspect_statistics_logs"
    # Beside them lies a log of messages, of the same name.
    messages = folder / "nvdlfw_inspect_logs"
    messages.mkdir(parents=True)
    (messages / "nvdlfw_inspect_globalrank-0.log").write_text("2026-01-02 03:04:05,678 - INFO - Hello\n")
    return log


def rows_of(run):
    table = run.table("moments").to_pandas()
    return {
        (row.step, row.stat, row.name_): row for row in table.rename(columns={"name": "name_"}).itertuples()
    }


def test_a_log_opens_as_a_run_of_statistics_with_layers_counted_from_0(tmp_path):
    log = statistics(tmp_path / "log")
    write_log(log)
    for path in (tmp_path / "log", log, log / "nvdlfw_inspect_globalrank-0.log"):
        with megalens.open(path) as run:
            rows = rows_of(run)
            assert {step for step, _, _ in rows} == {0, 1, 2}
            share = rows[2, "underflow", f"{OF_QKV}/input0/activation:fp8_delayed_scaling"]
            assert (share.count, share.mean, share.m2) == (1, pytest.approx(0.123457), 0)
            scale = rows[0, "cast_scale", f"{OF_FC1}.weight/param:mxfp8_columnwise"]
            assert (scale.min, scale.max) == (0.5, 2)
            amax = rows[0, "cast_amax", f"{OF_FC1}/input0/activation:fp8"]
            assert (amax.mean, amax.max) == (7.5, 7.5)
            errors = run.moments("cast_error", "layer", steps=1)
            assert errors[["layer", "rms"]].values.tolist() == [[1, 0.5]]
            assert math.isnan(errors["mean"][0])
            # All else are numbers as they were named.
            assert set(run.table("scalars")["name"].to_pylist()) == {f"{FC1}_activation_std"}


def test_what_was_printed_as_nothing_is_not_zero_unless_it_is_a_share(tmp_path):
    log = statistics(tmp_path / "log")
    write_log(log)
    with megalens.open(tmp_path / "log") as run:
        rows = rows_of(run)
        assert not any("linear_qkv/output0" in name for _, _, name in rows)
        assert rows[0, "overflow", f"{OF_QKV}/input0/activation:fp8_delayed_scaling"].mean == 0
        (warning,) = run.warnings
        assert warning.startswith(
            "3 numbers are left out: printed as 0.0000, they may be anything below 0.00005"
        )


def test_ranks_of_a_group_say_the_same_once_and_others_for_themselves(tmp_path):
    name = f"{QKV}_activation_mxfp8_underflows%"
    for rank, share in ((0, 2.0), (1, 2.0), (2, 5.0)):
        write_log(statistics(tmp_path / "log" / f"rank_{rank}"), {name: share}, [4], rank)
    with megalens.open(tmp_path / "log") as run:
        table = run.table("moments")
        assert [*zip(table["rank"].to_pylist(), table["mean"].to_pylist(), strict=True)] == [
            (0, 0.02),
            (2, 0.05),
        ]


def test_lines_that_are_cut_off_are_named_and_a_restart_counts_anew(tmp_path):
    log = statistics(tmp_path / "log")
    path = write_log(log, {f"{QKV}_weight_mxfp8_underflows%": 1.0}, [1, 2])
    write_log(log, {f"{QKV}_weight_mxfp8_underflows%": 3.0}, [2])
    with path.open("ab") as file:
        file.write(b"2026-01-02 03:04:05,678 - INFO - model.x_weight_mse \t iterat\n\xff\n")
    with megalens.open(tmp_path / "log") as run:
        assert run.table("moments")["mean"].to_pylist() == [0.01, 0.03]
        assert run.warnings == ["2 lines that are cut off or no numbers are left out."]


def test_a_log_without_numbers_is_refused(tmp_path):
    log = write_log(statistics(tmp_path / "log"), {"x": 0.0}, [1])
    with pytest.raises(ClientError, match="hold no numbers over steps"):
        megalens.open(log)


@pytest.mark.parametrize(
    ("name", "stat", "tensor"),
    [
        ("a_weight_b_mse_gradient_mse", "cast_error", "a_weight_b_mse/output0/dgrad:fp8"),
        ("l_wgrad_nvfp4_underflows%", "underflow", "l.weight/grad:nvfp4"),
        (
            "l_dgrad_fp8_block_scaling_mse_columnwise",
            "cast_error",
            "l/input0/dgrad:fp8_block_scaling_columnwise",
        ),
        ("experts.gemm_3_output_overflows%", "overflow", "experts.gemm_3/output0/activation:fp8"),
    ],
)
def test_names_are_split_from_the_right(name, stat, tensor):
    assert cast_of(name)[:2] == (stat, tensor)


@pytest.mark.parametrize("name", ["loss", "l_weight_std", "weight_mse", "l_weights_mse", "l_weight_mse%"])
def test_other_names_are_of_no_cast(name):
    assert cast_of(name) is None


def test_layers_that_are_counted_from_0_stay(tmp_path):
    names = {f"model.encoder.layers.{at}.fc_activation_mxfp8_underflows%": 1.0 + at for at in (0, 1)}
    write_log(statistics(tmp_path / "log"), names, [1])
    with megalens.open(tmp_path / "log") as run:
        found = run.moments("underflow", "layer")
        assert found[["layer", "mean"]].values.tolist() == [[0, 0.01], [1, 0.02]]


def test_tensorboards_numbers_of_casts_are_the_same_statistics_whole(tmp_path):
    with SummaryWriter(str(tmp_path / "run")) as writer:
        norm = "tensor-metrics/layer-wgrad-l2/decoder.layers.1"
        for step in (5, 6):
            for name, value in {**NUMBERS, "loss": 2.0, norm: 4.0}.items():
                writer.add_scalar(name, value, step)
    with megalens.open(tmp_path / "run") as run:
        rows = rows_of(run)
        assert rows[5, "cast_error", f"{OF_QKV}/output0/dgrad:fp8"].m2 == pytest.approx(1e-9)
        assert rows[5, "underflow", f"{OF_QKV}/input0/activation:fp8_delayed_scaling"].mean == pytest.approx(
            0.123456789
        )
        assert set(run.table("scalars")["name"].to_pylist()) == {"loss", f"{FC1}_activation_std", norm}
        # Norms of Megatron-LM's tensor metrics beside them, all by step.
        assert rows[6, "grad", "decoder.layers.1"].m2 == 16
        steps = run.table("moments")["step"].to_pylist()
        assert steps == sorted(steps)


def test_a_live_run_takes_the_numbers_as_they_are(tmp_path, monkeypatch):
    class BaseLogger(ABC):
        @abstractmethod
        def log_scalar(self, name, value, iteration, **more): ...

    module = ModuleType("nvdlfw_inspect.logging")
    module.BaseLogger = BaseLogger
    monkeypatch.setitem(sys.modules, "nvdlfw_inspect", ModuleType("nvdlfw_inspect"))
    monkeypatch.setitem(sys.modules, "nvdlfw_inspect.logging", module)
    scalars = InspectScalars()
    assert isinstance(scalars, BaseLogger)
    model = nn.Linear(3, 3)
    with megalens.trace(model, instruments=[scalars], record=tmp_path / "runs", name="x") as tracer:
        for iteration in range(3):
            with tracer.step():
                model(torch.randn(2, 3)).sum().backward()
            # As the tool's own step does, after that of the training.
            for name, value in NUMBERS.items():
                scalars.log_scalar(name, value, iteration, level=20)
    with megalens.open(tmp_path / "runs") as run:
        rows = rows_of(run)
        assert {step for step, _, _ in rows} == {0, 1, 2}
        assert rows[2, "cast_error", f"{OF_QKV}/output0/dgrad:fp8"].m2 == 1e-9
        assert rows[1, "underflow", f"{OF_QKV}/input0/activation:fp8_delayed_scaling"].mean == 0.123456789
        assert run.sql("SELECT max(max) AS m FROM moments WHERE stat = 'cast_scale'")["m"].tolist() == [2]
