"""Training scripts as people write them, forgetting something or in another order: they train on, and what is wrong is said."""

import time

import pytest
import torch

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer import TracerError

WAIT = 60.0


class Script:
    """A model, its optimizer and a tracer, with a step of training to take."""

    def __init__(self, model, ids, tracer):
        self.model, self.ids, self.tracer = model, ids, tracer
        self.optimizer = torch.optim.SGD(model.parameters(), 0.1)
        self.losses = []

    def train(self, steps=1):
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = self.model(self.ids).square().mean()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())

    def said(self, words):
        """Wait until a warning begins with some words."""
        end = time.monotonic() + WAIT
        while not any(text.startswith(words) for text in self.tracer.status().get("warnings", [])):
            assert time.monotonic() < end, self.tracer.status().get("warnings")
            time.sleep(0.01)


@pytest.fixture
def script(gpt, ids, traced):
    return Script(gpt, ids, traced(gpt, flags="HiddenStates"))


def another():
    return GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))


def steps_after_closing(script):
    script.tracer.close()
    with script.tracer.step():
        script.train()


def steps_twice(script):
    script.tracer.wrap(script.optimizer)
    for _ in range(3):
        with script.tracer.step():
            script.train()


def another_model(script):
    model = another()
    for _ in range(3):
        with script.tracer.step():
            model(script.ids)


def another_optimizer(script):
    optimizer = torch.optim.SGD(another().parameters(), 0.1)
    with megalens.log_statistics(script.model, optimizer, grad=1, tracer=script.tracer), script.tracer.step():
        script.train()


def numbers_without_names(script):
    with script.tracer.step():
        script.tracer.log("loss", 3.0)
        script.train()


def text_for_a_number(script):
    with script.tracer.step():
        script.tracer.log(loss="high")
        script.train()


def a_checkpoint_of_the_future(script):
    with script.tracer.step():
        script.train()
    script.tracer.checkpoint("late", step=99)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (steps_after_closing, "The tracer is closed: steps from here on are not traced."),
        (steps_twice, "An optimizer ends the steps (tracer.wrap), so with tracer.step() does nothing."),
        (
            another_model,
            "Step 1 has no rows of Hidden states, layer 0; Hidden states, layer 1: its module was not called",
        ),
        (
            another_optimizer,
            "The optimizer that log_statistics was given updates no parameter of this model.",
        ),
        (numbers_without_names, "What was logged without a name is left out. Write tracer.log(loss=loss)."),
        (text_for_a_number, "loss was logged with something that is not one number; it is left out."),
        (a_checkpoint_of_the_future, "A checkpoint could not be marked: "),
    ],
)
def test_what_a_script_forgot_is_said_and_it_trains_on(script, write, says):
    write(script)
    script.said(says)
    before = len(script.losses)
    script.train(2)
    assert len(script.losses) == before + 2


def test_an_optimizer_that_ends_the_steps_counts_each_once_whatever_is_around_it(script, small_hub):
    handle = script.tracer.wrap(script.optimizer)
    with pytest.raises(TracerError, match=r"ends the steps already. Call remove\(\)"):
        script.tracer.wrap(script.optimizer)
    for _ in range(3):
        with script.tracer.step():
            script.train()
    assert sorted({row["step"] for row in small_hub.next_rows(6)}) == [1, 2, 3]
    handle.remove()
    with script.tracer.step():
        script.train()
    assert {row["step"] for row in small_hub.next_rows(2)} == {4}


def test_numbers_may_be_logged_by_names_that_are_no_words_of_python(script, small_hub):
    with script.tracer.step():
        script.tracer.log({"eval/loss": 1.5}, loss=2.5)
    rows = small_hub.next_scalars(2)
    assert {row["name"]: row["value"] for row in rows if "loss" in row["name"]} == {
        "eval/loss": 1.5,
        "loss": 2.5,
    }


def test_settings_of_a_closed_tracer_cannot_be_changed(script):
    script.tracer.close()
    with pytest.raises(TracerError, match="closed, so nothing of it can be changed"):
        script.tracer.configure(HiddenStates=False)
