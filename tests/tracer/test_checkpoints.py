"""Checkpoints that a training says it has saved, as rows of ``audit``."""

import json
from pathlib import Path

import pytest

from megalens import Tile, trace
from megalens.runs import open_run


class _Unnameable:
    def __str__(self) -> str:
        raise RuntimeError("no name")


def said(hub, count: int) -> list[tuple[int, str, dict]]:
    """The next rows of the audit that a producer sent."""
    found = []
    while len(found) < count:
        row = hub.scalars.get(timeout=20)
        if "action" in row:
            found.append((row["step"], row["action"], json.loads(row["detail"])))
    return found


@pytest.mark.parametrize(
    ("saved", "detail"),
    [
        (None, {}),
        ("/data/runs/step-500.pt", {"name": "step-500.pt"}),
        (Path("/data/runs/checkpoint-2/"), {"name": "checkpoint-2"}),
        ("C:\\runs\\last.ckpt", {"name": "last.ckpt"}),
        ("s3://bucket/run/last.pt?X-Amz-Signature=0123", {"name": "last.pt"}),
        ("a\x1b[2J\u202eb", {"name": "a\ufffd[2J\ufffdb"}),
        ("\udcff.pt", {"name": "\ufffd.pt"}),
        ("x" * 300, {"name": "x" * 79 + "…"}),
        (7, {"name": "7"}),
    ],
)
def test_a_checkpoint_is_sent_by_its_name_alone(gpt, ids, small_hub, saved, detail) -> None:
    with trace(gpt, hub=small_hub.address) as tracer:
        with tracer.step():
            gpt(ids)
        tracer.checkpoint(saved)
        assert said(small_hub, 1) == [(1, "checkpoint", detail)]


def test_it_has_the_step_that_began_last_or_the_one_that_is_said(gpt, ids, small_hub) -> None:
    with trace(gpt, hub=small_hub.address, first_step=101) as tracer:
        for _ in range(3):
            with tracer.step():
                gpt(ids)
        tracer.checkpoint("last")
        tracer.checkpoint("before", step=101)
        assert [(step, detail["name"]) for step, _, detail in said(small_hub, 2)] == [
            (103, "last"),
            (101, "before"),
        ]


@pytest.mark.parametrize(
    ("saved", "step"),
    [("a", -1), ("a", 2), ("a", 10**30), ("a", float("nan")), ("a", "soon"), (_Unnameable(), None)],
)
def test_what_cannot_be_marked_is_said_and_raises_nothing(gpt, ids, small_hub, saved, step) -> None:
    with trace(gpt, hub=small_hub.address) as tracer:
        with tracer.step():
            gpt(ids)
        tracer.checkpoint(saved, step)
        tracer.checkpoint("good")
        assert said(small_hub, 1) == [(1, "checkpoint", {"name": "good"})]
        assert any("A checkpoint could not be marked" in text for text in tracer.status()["warnings"])


def test_without_a_hub_and_after_the_end_it_does_nothing(gpt, small_hub) -> None:
    tracer = trace(gpt, hub=small_hub.address)
    tracer.close()
    tracer.checkpoint("late")
    tracer = trace(gpt, hub=None)
    tracer.checkpoint("nowhere")
    tracer.close()


@pytest.mark.slow
def test_it_is_recorded(gpt, ids, tmp_path, own_hub) -> None:
    with trace(gpt, flags={"MLP1_mat_mul": Tile(2)}, record=tmp_path / "runs", linger=0.1) as tracer:
        own_hub.add(tracer.hub_pid)
        for step in range(1, 5):
            with tracer.step():
                gpt(ids)
            if step % 2 == 0:
                tracer.checkpoint(tmp_path / f"step-{step}.pt")
        process = tracer._coordinator.worker.hub._process
    process._process.wait(30)
    rows = open_run(tmp_path / "runs" / tracer.run_id).audit().to_pylist()
    saved = [(row["step"], json.loads(row["detail"])) for row in rows if row["action"] == "checkpoint"]
    assert saved == [(2, {"name": "step-2.pt"}), (4, {"name": "step-4.pt"})]
