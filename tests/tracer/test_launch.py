"""Settings from a launch script's command line and environment."""

import argparse

import pytest

from megalens import add_arguments, trace_from
from megalens.tracer import TracerError


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_without_a_word_nothing_is_traced(gpt) -> None:
    with trace_from(parsed(), gpt, {}, flags=["HiddenStates"]) as tracer:
        assert tracer.run_id is None
    assert not any(module._forward_hooks for module in gpt.modules())


@pytest.mark.parametrize("option", ["--tensor-tracer-port", "--megalens-port"])
def test_a_port_traces_with_the_hub_on_it(gpt, option, own_hub) -> None:
    arguments = parsed(option, "0", "--megalens-linger", "0.1", "--megalens-samples", "all")
    with trace_from(arguments, gpt, {"MEGALENS_FLAGS": "HiddenStates,MLP1_mat_mul"}) as tracer:
        own_hub.add(tracer.hub_pid)
        assert tracer.run_id is not None
        assert list(tracer.config["flags"]) == ["HiddenStates", "MLP1_mat_mul"]
        assert tracer.config["flags"]["HiddenStates"]["samples"] is None


def test_an_argument_comes_before_a_variable_and_that_before_the_script(gpt, own_hub) -> None:
    environment = {"MEGALENS": "1", "MEGALENS_EVERY": "3", "MEGALENS_LAYERS": "1", "MEGALENS_BUDGET": "2%"}
    arguments = parsed("--megalens-every", "5", "--megalens-linger", "0.1")
    with trace_from(arguments, gpt, environment, flags=["HiddenStates"], layers="0", every=7) as tracer:
        own_hub.add(tracer.hub_pid)
        setting = tracer.config["flags"]["HiddenStates"]
        assert (setting["every"], setting["layers"], tracer.config["budget"]) == (5, "1", 2.0)


def test_what_cannot_be_read_is_named(gpt, capsys) -> None:
    with pytest.raises(TracerError, match=r"MEGALENS_FLAGS='\{no JSON' cannot be read"):
        trace_from(None, gpt, {"MEGALENS": "1", "MEGALENS_FLAGS": "{no JSON"})
    with pytest.raises(SystemExit):
        parsed("--tensor-tracer-port", "70000")
    assert "0 to 65535" in capsys.readouterr().err
