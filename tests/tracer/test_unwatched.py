"""While nobody looks, steps wait for one another: fewer wake-ups and messages, the same rows."""

import socket
import time

import numpy as np
import pytest
import torch
from test_producer import until

from megalens import Tile
from megalens.tracer.sending import worker as worker_module


@pytest.fixture
def unwatched(gpt, traced, small_hub):
    """A tracer that was told that nobody looks, and its producer."""
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(4)}, layers="0")
    small_hub.next("announce")
    small_hub.send({"type": "status", "state": "training", "step": 0, "viewers": 0})
    producer = tracer._coordinator.worker
    until(lambda: not producer.watched)
    return tracer, producer


def _train(tracer, gpt, steps: int) -> list[np.ndarray]:
    """Take steps and return what a hook of the test's own gives of each."""
    seen: list[torch.Tensor] = []
    hook = gpt.blocks[0].mlp.fc1.register_forward_hook(lambda module, args, output: seen.append(output[:1]))
    for number in range(steps):
        with tracer.step():
            gpt(torch.full((2, 8), number))
            tracer.log(loss=number)
    hook.remove()
    return [each.detach().unflatten(-1, (4, -1)).mean(-1).numpy().ravel() for each in seen]


def test_steps_are_sent_together_and_each_row_is_of_its_own_step(
    unwatched, gpt, small_hub, monkeypatch
) -> None:
    tracer, producer = unwatched
    before, looks, really = len(small_hub.seqs), [], producer.send_ready
    monkeypatch.setattr(producer, "send_ready", lambda: looks.append(really()))
    # However long the steps take, the thread looks when they are over.
    producer._patience = lambda: 300.0
    producer.wake()
    expected = _train(tracer, gpt, 12)
    producer.wake()
    rows = small_hub.next_rows(12)
    assert [row["step"] for row in rows] == list(range(1, 13))
    for row, values in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row["values"], values, rtol=1e-5, atol=1e-6)
    assert [row["value"] for row in small_hub.next_scalars(12)] == list(range(12))
    # Two messages for each time that the thread looked, which it did seldom, in place of 24.
    assert len(small_hub.seqs) - before <= 2 * len(looks) < 24


def test_rows_come_within_seconds_without_another_step(unwatched, gpt, small_hub) -> None:
    tracer, _ = unwatched
    _train(tracer, gpt, 1)
    assert small_hub.rows.get(timeout=20)["step"] == 1


def test_nothing_waits_for_the_thread_to_look_once_somebody_does(unwatched, gpt, small_hub) -> None:
    tracer, producer = unwatched
    small_hub.send({"type": "status", "state": "training", "step": 0, "viewers": 1})
    until(lambda: producer.watched)
    # A thread that is not woken would not look for minutes.
    producer._patience = lambda: 300.0
    producer.wake()
    for step in range(1, 4):
        _train(tracer, gpt, 1)
        assert small_hub.next_rows(1)[0]["step"] == step


def test_whoever_changes_something_is_somebody_who_looks(unwatched, small_hub) -> None:
    _, producer = unwatched
    small_hub.send({"type": "configure", "id": "a", "patch": {"flags": {"MLP1_mat_mul": None}}})
    small_hub.next("configured")
    assert producer.watched


def test_what_waits_is_sent_before_it_is_much(unwatched, gpt, small_hub, monkeypatch) -> None:
    monkeypatch.setattr(worker_module, "_MOST_PATIENT_BYTES", 1000)
    tracer, producer = unwatched
    producer._patience = lambda: 300.0
    producer.wake()
    _train(tracer, gpt, 40)
    assert small_hub.next_rows(20)[-1]["step"] == 20


def test_what_waits_at_the_end_of_the_training_is_sent(unwatched, gpt, small_hub) -> None:
    tracer, producer = unwatched
    producer._patience = lambda: 300.0
    producer.wake()
    _train(tracer, gpt, 3)
    began = time.monotonic()
    tracer.close()
    assert time.monotonic() - began < 60
    assert [row["step"] for row in small_hub.next_rows(3)] == [1, 2, 3]


def test_alarms_do_not_wait(unwatched, gpt, small_hub) -> None:
    tracer, producer = unwatched
    producer._patience = lambda: 300.0
    producer.wake()
    tracer._coordinator.worker.task(lambda: small_hub.messages.put({"type": "at once"}))
    assert small_hub.next("at once")


def test_of_steps_that_were_sent_together_the_first_is_named_where_the_connection_broke(
    unwatched, gpt, small_hub, caplog
) -> None:
    tracer, _ = unwatched
    _train(tracer, gpt, 6)
    small_hub.next_rows(6)
    small_hub.connections[0].socket.shutdown(socket.SHUT_RDWR)
    until(lambda: "The connection to the hub broke" in caplog.text)
    assert "Rows of steps 1 to 6 may be missing" in caplog.text
