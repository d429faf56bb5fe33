"""A kernel holds a real training: it waits, steps, is perturbed and goes on."""

import threading

import pytest
import torch
from live_run import WAIT, eventually

import megalens
from megalens import Noise1, Tile
from megalens.demo import GPT, GPTConfig
from megalens.runs import connect

pytestmark = pytest.mark.slow


class Training:
    """Steps of a small model in a thread, until told to stop. ``taken`` counts those that ended."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = GPT(GPTConfig(layers=2, hidden=32, heads=2, sequence=16))
        self.tracer = megalens.trace(
            self.model,
            flags={"HiddenStates": Tile(8)},
            allow=["pause", "watched", "perturb"],
            name="held",
            linger=0.1,
        )
        self.taken = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        assert self.tracer.connected(WAIT)

    def _run(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        rng = torch.Generator().manual_seed(0)
        while not self.stop.is_set():
            with self.tracer.step():
                loss = self.model.loss(torch.randint(0, 256, (2, 17), generator=rng))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            self.taken += 1


@pytest.fixture
def training(runtime):
    training = Training()
    yield training
    with connect(training.tracer.run_id) as run:
        run.resume(timeout=WAIT)
        training.stop.set()
        training.thread.join(WAIT)
    training.tracer.close()
    assert not training.thread.is_alive()


def test_a_training_waits_steps_and_goes_on_as_it_is_told(training, attach):
    run = attach(training.tracer.run_id)
    training.thread.start()
    run.wait(3, timeout=WAIT)
    first = run.pause(timeout=WAIT)
    eventually(lambda: run.state == "paused", "the pause")
    assert training.taken == run.step == first - 1
    # Changes are taken while it waits, and it goes on waiting.
    assert run.configure(HiddenStates=Tile(4), passes=["forward", "backward"], timeout=WAIT) == first
    assert training.taken == run.step == first - 1
    assert run.advance(3, timeout=WAIT) == first
    run.wait(first + 2, timeout=WAIT)
    eventually(lambda: training.taken == first + 2, "three steps")
    assert run.pause(timeout=WAIT) == first + 3
    assert training.taken == first + 2
    eventually(
        lambda: run.tensors(pass_="backward", steps=first + 2).num_rows == 2, "the gradients of both layers"
    )
    assert run.perturb({"system": Noise1(0.1)}, seed=1, steps=2, timeout=WAIT) == first + 3
    assert run.perturbation["until"] == first + 4
    assert run.resume(timeout=WAIT) == first + 3
    run.wait(first + 6, timeout=WAIT)
    eventually(lambda: run.perturbation is None, "its end by itself")
    eventually(lambda: run.status.get("perturbed_steps") == 2, "two perturbed steps")
    run.budget("50%", timeout=WAIT)
    eventually(
        lambda: run.status.get("budget", {}).get("steps"), "a comparison of traced with untraced steps"
    )
    assert run.status["budget"]["limit"] == 50


def test_a_watched_training_waits_for_the_next_viewer(training, attach):
    run = attach(training.tracer.run_id)
    training.thread.start()
    run.watched_only(timeout=WAIT)
    run.wait(timeout=WAIT)
    run.close()
    eventually(lambda: training.tracer.status()["state"] == "paused", "the wait for a viewer")
    taken = training.taken
    again = attach(training.tracer.run_id)
    again.wait(taken + 2, timeout=WAIT)
    eventually(lambda: again.mode == {"while_watched": True}, "training under a viewer's eyes")
