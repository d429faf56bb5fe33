"""While nobody looks, the steps of up to a second are judged together."""

import time

import pytest
import torch
from live_run import eventually

import megalens
from megalens import Tile


@pytest.mark.parametrize("actions", [None, [{"call": lambda alarms: None}]])
def test_steps_are_judged_together_unless_alarms_set_something_off(gpt, traced, small_hub, actions) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(4)}, layers="0")
    small_hub.next("announce")
    small_hub.send({"type": "status", "state": "training", "step": 0, "viewers": 0})
    producer = tracer._coordinator.worker
    eventually(lambda: not producer.watched, "it was told that nobody looks")
    optimizer = torch.optim.AdamW(gpt.parameters())
    with megalens.monitor(gpt, optimizer, tracer=tracer, param=1, grad=1, activation=0, actions=actions):
        instrument = tracer.instrument("monitor")
        producer._patience = lambda: 300.0

        def step(number: int) -> None:
            with tracer.step():
                gpt(torch.full((2, 8), number)).logsumexp(-1).mean().backward()
                optimizer.step()
                optimizer.zero_grad()

        # With the first ones the thread still deals with what a monitor announces, and a watched pass shows.
        for number in (1, 2):
            step(number)
            producer.wake()
            eventually(lambda number=number: instrument.judged == number, "judged")
        for number in range(3, 6):
            step(number)
            if actions:
                # What it sets off comes before the next step.
                eventually(lambda number=number: instrument.judged == number, "judged")
        time.sleep(0.0 if actions else 0.3)
        assert instrument.judged == (5 if actions else 2)
        producer.wake()
        eventually(lambda: instrument.judged == 5, "judged")
