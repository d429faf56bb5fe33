"""TrainerMon's configuration: what raises there raises here, what warns there warns here."""

from __future__ import annotations

import json

import pytest

from megalens.instruments.monitor.trainermon.config import checked_ops, read_config

RAISES = [
    *[("targets", value, TypeError) for value in ([], "a", {"a": 1}, {1: {}})],
    *[
        (switch, value, TypeError)
        for switch in (
            "dynamic_on",
            "print_struct",
            "ur_distribution",
            "xy_distribution",
            "wg_distribution",
            "mg_distribution",
            "param_distribution",
            "squash_name",
            "recording_l2_features",
        )
        for value in (1, "true", None)
    ],
    *[("module_ranks", value, TypeError) for value in (0, "0", ["0"], [True], [1.0])],
    *[
        ("cc_distribution", value, TypeError)
        for value in (
            [],
            {"enable": 1},
            {"cc_codeline": "a"},
            {"cc_pre_hook": 0},
            {"cc_log_only": "x"},
            {"a": True},
        )
    ],
    *[
        ("alert", value, TypeError)
        for value in (
            [],
            {"rules": {}},
            {"rules": [{"rule_name": "Other"}]},
            {"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": -1}}]},
            {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": "1"}}]},
            {"rules": [{"rule_name": "AnomalyNan", "args": {"other": 1}}]},
            {"rules": [], "dump": 1},
        )
    ],
    ("alert", {}, KeyError),
    ("alert", {"dump": True}, KeyError),
    *[("ops", value, TypeError) for value in ("norm", {}, None)],
    *[("eps", value, TypeError) for value in (1, "1e-8", None)],
    *[("ndigits", value, ValueError) for value in (-1, 21, "6", 6.0)],
    *[("step_count_per_record", value, TypeError) for value in (True, 1.0, "1")],
    *[("step_count_per_record", value, ValueError) for value in (0, -1, 1_000_001)],
    ("append_output", "Nov21_12-20-04", TypeError),
    *[("append_output", value, ValueError) for value in (["Nov21_12-20-04"], ["Nov21_12-20-04"] * 3)],
    ("append_output", ["Nov21_12-20-05", "Nov21_12-20-04"], ValueError),
    *[("append_output", ["Nov21_12-20-04", bad], RuntimeError) for bad in ("21.11.", 5)],
    *[
        ("l2_targets", value, TypeError)
        for value in ([], {"other_hook": []}, {"linear_hook": "a"}, {"attention_hook": [1]})
    ],
    *[("sa_order", value, TypeError) for value in (1, "s,b", "h,b,s,d")],
]

REPLACED = [
    *[("start_step", value, 0) for value in (-1, 1.5, "1")],
    *[("collect_times", value, 100_000_000) for value in (-1, 1.5, "1")],
    *[("step_interval", value, 1) for value in (0, -1, 1.5)],
    *[("monitor_mbs_grad", value, False) for value in (1, "true")],
    *[("format", value, "csv") for value in ("parquet", 1)],
]

TAKEN = [
    ("targets", {"layers.0": {"input": "tuple[2]:0"}}),
    ("start_step", 3),
    ("collect_times", 0),
    ("module_ranks", [0, 3]),
    ("cc_distribution", {"enable": True, "cc_codeline": ["a.py"], "cc_pre_hook": True, "cc_log_only": False}),
    ("alert", {"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}], "dump": True}),
    ("ndigits", 20),
    ("step_count_per_record", 1_000_000),
    ("append_output", ["Feb29_00-00-00", "Nov21_12-20-04"]),
    ("l2_targets", {"linear_hook": [], "moe_router_logit_hook": ["0:router"]}),
    *[(loose, 1) for loose in ("all_xy", "forward_only", "mv_distribution", "mg_direction", "stack_info")],
]


@pytest.mark.parametrize(("name", "value", "error"), RAISES)
def test_what_raises_there_raises_here(name, value, error):
    with pytest.raises(error, match=name if name != "alert" else "must be"):
        read_config({name: value})


@pytest.mark.parametrize(("name", "value", "default"), REPLACED)
def test_what_warns_there_takes_the_default(name, value, default):
    said: list[str] = []
    assert getattr(read_config({name: value}, said.append), name) == default
    assert len(said) == 1
    assert said[0].startswith(f"{name} must be ")


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_what_fits_is_taken_as_it_is(name, value):
    said: list[str] = []
    assert getattr(read_config({name: value, "unknown": 1}, said.append), name) == value
    assert not said


@pytest.mark.parametrize(
    ("given", "ops"),
    [
        ([], ["norm", "shape", "dtype"]),
        (["min", "norm"], ["min", "norm", "shape", "dtype"]),
        (["other"], ["norm", "shape", "dtype"]),
        (["id", "zeros"], ["id", "zeros", "shape", "dtype"]),
    ],
)
def test_operations_keep_their_order_and_end_with_shape_and_dtype(given, ops):
    assert checked_ops(given) == read_config({"ops": given}).ops == ops


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"ops": ["norm", "median"]}, "median"),
        ({"forward_only": True, "backward_only": True}, "exclude"),
        ({"ur_distribution": True}, "tensorboard"),
        ({"alert": {"rules": [{"rule_name": "AnomalyTurbulence"}]}}, "AnomalyTurbulence"),
    ],
)
def test_what_is_left_out_is_said(given, word):
    said: list[str] = []
    read_config(given, said.append)
    assert len(said) == 1
    assert word in said[0]


def test_no_targets_mean_all_activations_only_where_activations_are_asked_for():
    assert read_config({"xy_distribution": True}).everything
    assert not read_config({}).everything
    assert not read_config({"xy_distribution": True, "targets": {"a": {}}}).everything


def test_a_file_is_read_and_a_broken_or_missing_one_is_named(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"step_interval": 7, "sa_order": "b, s, h, d"}))
    config = read_config(path)
    assert (config.step_interval, config.sa_order) == (7, "b,s,h,d")
    path.write_text("{bad")
    for broken in (path, tmp_path / "missing.json"):
        with pytest.raises(RuntimeError, match=r"Load json file .* failed"):
            read_config(broken)
