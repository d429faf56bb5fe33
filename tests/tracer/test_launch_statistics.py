"""Statistics from a launch script's command line and environment."""

import argparse
import json

import pytest
import torch

from megalens import add_arguments, trace_from
from megalens.api.launch import statistics_settings
from megalens.tracer import TracerError

INTERVALS = ("param", "wgrad", "activation", "dgrad", "residual", "residual-grad")


def parsed(*words: str, parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    parser = parser or argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_every_statistic_has_the_argument_of_megatron_lm() -> None:
    words = [
        word for at, name in enumerate(INTERVALS) for word in (f"--log-{name}-stats-interval", str(at + 1))
    ]
    found = statistics_settings(parsed(*words), {})
    assert found.intervals == {
        "param": 1,
        "grad": 2,
        "activation": 3,
        "dgrad": 4,
        "residual": 5,
        "residual_dgrad": 6,
    }
    assert statistics_settings(parsed(), {}).intervals == {}
    off = parsed("--log-param-stats-interval", "0", "--log-dgrad-stats-interval", "-1")
    assert statistics_settings(off, {}).intervals == {}


def test_an_argument_comes_before_a_variable() -> None:
    environment = {
        "MEGALENS_LOG_PARAM_STATS_INTERVAL": "7",
        "MEGALENS_LOG_WGRAD_STATS_INTERVAL": "8",
        "MEGALENS_STATISTICS_LOG_DIR": "there",
    }
    found = statistics_settings(parsed("--log-param-stats-interval", "0"), environment)
    assert (found.intervals, found.folder) == ({"grad": 8}, "there")
    assert statistics_settings(parsed("--statistics-log-dir", "here"), environment).folder == "here"
    with pytest.raises(TracerError, match="MEGALENS_LOG_PARAM_STATS_INTERVAL='often' cannot be read"):
        statistics_settings(None, {"MEGALENS_LOG_PARAM_STATS_INTERVAL": "often"})


def test_the_folder_falls_back_to_those_of_megatron_lm() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--tensorboard-dir", "--save"):
        parser.add_argument(name)
    both = parsed("--tensorboard-dir", "board", "--save", "checkpoints", parser=parser)
    assert statistics_settings(both, {}).folder == "board"
    both.tensorboard_dir = None
    assert statistics_settings(both, {}).folder == "checkpoints"
    both.save = None
    assert statistics_settings(both, {}).folder is None


def test_a_script_that_has_the_arguments_keeps_them_and_writes_its_own_files() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log-param-stats-interval", type=int, default=0)
    parser.add_argument("--statistics-log-dir", default="theirs")
    found = statistics_settings(
        parsed("--log-param-stats-interval", "5", "--log-dgrad-stats-interval", "2", parser=parser), {}
    )
    assert (found.intervals, found.writes) == ({"param": 5, "dgrad": 2}, False)
    parser = argparse.ArgumentParser()
    parser.add_argument("--log-param-stats-interval", type=int, default=0)
    # Its 0 is what it says where nothing was given.
    found = statistics_settings(
        parsed(parser=parser),
        {"MEGALENS_LOG_PARAM_STATS_INTERVAL": "3", "MEGALENS_STATISTICS_LOG_DIR": "ours"},
    )
    assert (found.intervals, found.folder, found.writes) == ({"param": 3}, "ours", True)


@pytest.mark.slow
def test_one_argument_logs_statistics_of_any_model_and_says_where_they_are_not_written(
    tmp_path, own_hub
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    words = ["--log-param-stats-interval", "2", "--log-wgrad-stats-interval", "1", "--megalens-linger", "0.1"]
    arguments = parsed(*words)
    arguments.global_batch_size = 6
    with trace_from(arguments, model, {}, optimizer=optimizer) as tracer:
        own_hub.add(tracer.hub_pid)
        assert [text for text in tracer.status()["warnings"] if "--statistics-log-dir" in text]
    arguments = parsed(*words, "--statistics-log-dir", str(tmp_path))
    arguments.global_batch_size = 6
    with trace_from(arguments, model, {}, optimizer=optimizer) as tracer:
        own_hub.add(tracer.hub_pid)
        assert tracer._coordinator.worker.connected.wait(30)
        for _ in range(2):
            with tracer.step():
                optimizer.zero_grad()
                model(torch.ones(3, 4)).sum().backward()
                optimizer.step()
        assert tracer.status()["warnings"] == []
    lines = {
        stat: [json.loads(line) for line in (tmp_path / "training_stats" / stat / "rank0.jsonl").open()]
        for stat in ("param_raw_moments_by_param", "grad_raw_moments_by_param")
    }
    assert [line["iter"] for line in lines["param_raw_moments_by_param"]] == [2]
    assert [
        (line["iter"], line["consumed_train_samples"]) for line in lines["grad_raw_moments_by_param"]
    ] == [(1, 6), (2, 12)]
    assert lines["grad_raw_moments_by_param"][0]["values"]["1.bias"]["sum_1"] == 6.0


def test_what_a_model_cannot_have_is_said_once_its_first_pass_has_shown_it(own_hub) -> None:
    model = torch.nn.Linear(2, 2)
    given = parsed("--log-residual-stats-interval", "1", "--megalens-linger", "0.1")
    with trace_from(given, model, {}) as tracer, tracer.step():
        own_hub.add(tracer.hub_pid)
        model(torch.ones(1, 2)).sum().backward()
    (said,) = [text for text in tracer.status()["warnings"] if "residual" in text]
    assert "residual stream of this model is not known" in said
