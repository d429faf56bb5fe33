"""What the demo has its model write by itself."""

import pytest
import torch
from live_run import eventually

import megalens
from megalens.demo.__main__ import ask_for_text
from megalens.demo.model import GPT, ByteTokenizer, GPTConfig

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("runtime_folder")]


@pytest.fixture
def training(runtime_folder):
    """A tracer of a small model, its run, and what takes a step."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(layers=2, hidden=32, heads=2, sequence=64))
    allow = ["generate", "perturb"]
    with (
        megalens.trace(model, allow=allow, tokenizer=ByteTokenizer(), linger=0.2) as tracer,
        megalens.connect(tracer.run_id) as run,
    ):

        def step():
            with tracer.step():
                model.loss(torch.randint(256, (2, 24))).backward()

        yield tracer, run, step


def test_each_text_is_the_same_request_and_one_is_also_written_under_a_perturbation(training):
    tracer, run, step = training
    for number in (0, 100, 200):
        ask_for_text(tracer, number)
        step()
    eventually(lambda: [each.over for each in run.generations] == [True] * 5, "all are written")
    first, control, disturbed, second, third = run.generations
    assert first.request == second.request == third.request == control.request
    assert disturbed.control.number == control.number
    assert [each.state for each in run.generations] == ["finished"] * 5
    assert {each.effects().empty for each in (first, second, third)} == {True}
    assert set(disturbed.effects()["layer"]) == {-1, 0, 1}
    # Nothing was learnt in these steps, and the control is clean.
    assert first.text == control.text == second.text == third.text


def test_a_full_queue_is_no_error_of_the_training(training):
    tracer, run, step = training
    for _ in range(70):
        ask_for_text(tracer, 0)
    for number in range(1, 65):
        tracer.instrument("generation").cancel(number)
    step()
    ask_for_text(tracer, 0)
    step()
    eventually(lambda: len(run.generations) == 65 and run.generations[-1].over, "the next one is written")
    assert [each.state for each in run.generations] == ["cancelled"] * 64 + ["finished"]


def test_a_training_that_does_not_allow_it_writes_nothing():
    with megalens.trace(GPT(GPTConfig(layers=1, hidden=8, heads=1)), linger=0.2) as tracer:
        ask_for_text(tracer, 0)
        assert tracer.instrument("generation") is None
