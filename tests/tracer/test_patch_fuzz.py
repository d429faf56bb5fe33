"""Whatever a viewer sends is answered, and the training goes on, bit for bit, traced with the settings that the tracer names."""

import os
import queue
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from megalens.demo.model import GPT, GPTConfig
from megalens.protocol import check_message, compressor_from_setting, parse_layers
from megalens.tracer.points import FLAGS
from tests.fuzz.patches import sent_patch

pytestmark = pytest.mark.slow
PATCHES = int(os.environ.get("MEGALENS_FUZZ_PATCHES", "800"))
AT_ONCE = 8


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Files that the patches name: one is right."""
    np.save(tmp_path / "good.npy", np.ones((2, 16), np.float32))
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1099511627776, 16), }"
    (tmp_path / "lies.npy").write_bytes(b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header)
    (tmp_path / "lies.safetensors").write_bytes(b"\xff" * 7 + b"\x7f{}")
    torch.save(torch.ones(2, 1, 1).expand(2, 1 << 40, 16), tmp_path / "wide.pt")
    torch.save({"vectors": {"vectors": torch.ones(2, 16)}}, tmp_path / "nested.pt")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    return tmp_path


def expected_rows(tracer, step: int) -> set[tuple[str, int, str]]:
    """What the settings that are in force say of a step: flag, layer and compressor of each row."""
    expected = set()
    for name, setting in tracer.config["flags"].items():
        passes = setting.get("passes", ["forward"])
        if step % setting["every"] or "train" not in setting["phases"]:
            continue
        layers = parse_layers(setting["layers"], tracer.points.flags[name].layers)
        text = str(compressor_from_setting(setting["compressor"]))
        expected |= {(name, layer, text, side) for layer in layers for side in passes}
    return expected


def taken(rows: queue.Queue) -> list[dict]:
    return [rows.get() for _ in range(rows.qsize())]


@pytest.mark.timeout(120 + PATCHES // 20)
def test_no_change_ends_the_tracing_or_touches_the_training(traced, small_hub, vectors) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=20, layers=2, hidden=16, heads=2, sequence=4))
    ids = torch.randint(0, 20, (2, 4))
    plain = model.loss(ids)
    plain.backward()
    gradient = model.head.weight.grad.clone()
    tracer = traced(model, flags=["HiddenStates"], allow=["perturb"], vectors_folders=[vectors])
    small_hub.next("announce")
    worker = tracer._coordinator.worker
    chance = Random(20_261_122)
    answers: dict[str, int] = {}
    perturbed = compared = 0
    for step in range(1, PATCHES // AT_ONCE + 1):
        for _ in range(AT_ONCE):
            small_hub.connections[-1].send(sent_patch(chance, [*FLAGS, "NoSuchFlag"]))
        for _ in range(AT_ONCE):
            while (answer := small_hub.messages.get(timeout=20))["type"] not in ("configured", "error"):
                check_message(answer)
            check_message(answer)
            if answer["type"] == "configured" and answer["applied"]:
                raise AssertionError("no step has begun")
            kind = answer.get("code", answer["type"])
            answers[kind] = answers.get(kind, 0) + 1
            assert kind != "internal", answer
        taken(small_hub.rows)
        before = tracer.tensors.capture.errors
        model.zero_grad()
        with tracer.step():
            loss = model.loss(ids)
            loss.backward()
        if "perturb" in tracer.config:
            perturbed += 1
        else:
            assert torch.equal(loss, plain)
            assert torch.equal(model.head.weight.grad, gradient)
        # What is asked for after the step is answered after its rows have been sent.
        small_hub.send({"type": "configure", "id": f"last {step}", "patch": {"flags": {}}})
        while (answer := small_hub.next("configured"))["id"] != f"last {step}":
            assert answer["applied"]
        config = answer["config"]
        assert config == tracer.config
        rows = {(row["flag"], row["layer"], row["compressor"], row["pass"]) for row in taken(small_hub.rows)}
        if tracer.tensors.capture.errors == before and "budget" not in config:
            compared += 1
            assert rows == expected_rows(tracer, step), (step, config)
    assert worker.alive
    assert not worker.untraced
    assert worker.health.failures == 0
    check_message(tracer.status())
    assert answers["configured"] > PATCHES // 10, answers
    assert len(answers) > 8, answers
    assert compared > PATCHES // AT_ONCE // 2, compared
    assert perturbed > 0
