"""What each process does of a lab that several of them are."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from megatron_job import MegatronJob
from shape import VOCABULARY, Shape
from torch import distributed

import megalens
from megalens.runs import open_run

__all__ = ["Letters", "failing", "greedy", "idle", "leaving", "perturbed", "written"]

FLAGS = {
    "QKV_mat_mul": {"compressor": {"name": "NoOp"}},
    "MLP2_mat_mul": {"compressor": {"name": "NoOp"}},
    "RawAttentionScore_mat_mul": {"compressor": {"name": "NoOp"}},
}


class Letters:
    """A tokenizer of capital letters and signs, one token each."""

    vocab_size = VOCABULARY

    def encode(self, text: str) -> list[int]:
        """Return their ids."""
        return [(ord(each) - 32) % VOCABULARY for each in text]

    def decode(self, ids: list[int]) -> str:
        """Return the text."""
        return "".join(chr(32 + each) for each in ids)


def greedy(rank: int, shape: Shape, prompts: list[str], tokens: int) -> list[str]:
    """What Megatron-Core's model in one process writes when it is called for every token, each prompt by itself."""
    model, letters = MegatronJob(shape).chunks[0].eval(), Letters()
    texts = []
    for prompt in prompts:
        ids = letters.encode(prompt)
        for _ in range(tokens):
            length = len(ids)
            mask = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
            with torch.no_grad():
                logits = model(torch.tensor([ids]), torch.arange(length)[None], mask)
            ids.append(int(logits[0, -1].argmax()))
        texts.append(letters.decode(ids[len(prompt) :]))
    return texts


def served(
    rank: int,
    shape: Shape,
    folder: Path,
    ask: Callable[[Any], Any],
    prepare: Callable[[Any], None] = lambda lab: None,
) -> tuple[Any, Path]:
    """Make a lab in every process, and have rank 0 ask it; what it was told, and where the run was recorded."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(folder / "runtime")
    job = MegatronJob(shape)
    with megalens.serve(
        job.chunks[0], Letters(), name="lab", linger=0.1, flags=FLAGS, record=folder / "runs"
    ) as lab:
        prepare(lab)
        # Rank 0 asks only once all are prepared.
        distributed.barrier()
        told = ask(lab) if rank == 0 else lab.wait()
    assert job.config.sequence_parallel == shape.sequence_parallel
    job.close()
    return told, lab.tracer.folder


def written(rank: int, shape: Shape, folder: Path, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each request the texts, what was said of it and, of each sequence, its traced tensors by flag and layer."""

    def ask(lab: Any) -> list[int]:
        return [lab.generate(**request).number for request in requests]

    numbers, recorded = served(rank, shape, folder, ask)
    if rank > 0:
        return []
    # Rows of the other processes come when they come.
    with open_run(recorded) as run:
        return [_of(run.generation(number), shape) for number in numbers]


def _of(generation: Any, shape: Shape) -> dict[str, Any]:
    rows = generation.tokens()
    return {
        "texts": generation.texts,
        "message": generation.message,
        "places": rows[["sequence", "position", "id", "tensor_step", "tensor_offset"]].to_numpy().tolist(),
        "probability": rows["probability"].to_numpy(),
        "arrays": {
            (flag, layer, sequence): generation.array(flag, layer, sequence)
            for flag in FLAGS
            for layer in range(shape.layers)
            for sequence in range(len(generation.texts))
        },
    }


def perturbed(rank: int, shape: Shape, folder: Path) -> dict[str, Any]:
    """What a perturbation between layers changes, and each point of a sweep."""

    def ask(lab: Any) -> tuple[int, list[str]]:
        greedy = {"prompts": ["HELLO", "TO"], "tokens": 6, "temperature": 0}
        made = lab.generate(
            **greedy, perturb={"system": megalens.Noise1(0.3)}, sweep={"coefficient": [0.1, 1.0]}
        )
        return made.number, lab.generate(**greedy).texts

    told, recorded = served(rank, shape, folder, ask)
    if rank > 0:
        return {}
    with open_run(recorded) as run:
        made = run.generation(told[0])
        columns = ["sequence", "position", "layer", "point", "kl", "changed", "distance", "divergence"]
        return {
            "texts": made.texts,
            "clean": made.control.texts,
            "again": told[1],
            "effects": made.effects()[columns].to_numpy(float),
        }


def idle(rank: int, shape: Shape, folder: Path) -> dict[str, Any]:
    """What a lab does that waits for several beats, is configured while it waits, and is asked for something that is cancelled."""

    def ask(lab: Any) -> dict[str, Any]:
        control, told = lab._control, []
        control.heartbeat_seconds = 0.05
        send = control.send
        control.send = lambda message: (told.append(message["do"]), send(message))
        lab.generate("A", 1)
        eventually(lambda: told.count("beat") > 5)
        lab.run.configure(HiddenStates={"compressor": {"name": "NoOp"}})
        traced = lab.generate("HELLO", 3)
        sweep = {"coefficient": [0.001 * n for n in range(200)]}
        long = lab.generate("HELLO", 6, perturb={"system": megalens.Noise1(0.3)}, sweep=sweep, wait=False)
        eventually(lambda: long.message.startswith("Point"))
        long.cancel()
        eventually(lambda: long.over)
        return {
            "traced": traced.number,
            "cancelled": (long.state, long.control.state),
            "after": lab.generate("A", 1).state,
        }

    told, recorded = served(rank, shape, folder, ask)
    if rank > 0:
        return {}
    with open_run(recorded) as run:
        made = run.generation(told["traced"])
        told["hidden"] = [made.array("HiddenStates", layer).shape for layer in range(shape.layers)]
    return told


def failing(rank: int, shape: Shape, folder: Path) -> list[str]:
    """How generations end of which one process, or each of them, fails in a forward pass; and how the next one does."""

    def ask(lab: Any) -> list[str]:
        said = []
        for ranks in ("1", "01", ""):
            (folder / "fails").write_text(ranks)
            made = lab.generate("HELLO", 3, wait=False)
            eventually(lambda made=made: made.over)
            said.append(f"{made.state}: {made.message}")
        return said

    def prepare(lab: Any) -> None:
        def fail(*_: Any) -> None:
            if str(rank) in (folder / "fails").read_text():
                raise ValueError(f"no step {rank}")

        lab.model.module.decoder.layers[-1].register_forward_hook(fail)

    return served(rank, shape, folder, ask, prepare)[0]


def leaving(rank: int, shape: Shape, folder: Path) -> None:
    """Leave in mid-generation, as a process that is killed; what the other one says of it is in a file."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(folder / "runtime")
    job = MegatronJob(shape)
    lab = megalens.serve(job.chunks[0], Letters(), name="lab", linger=0.1)
    if rank > 0:
        # In the second pass, before anything is computed together.
        passes = iter([False, True])
        job.chunks[0].register_forward_pre_hook(lambda *_: os._exit(0) if next(passes) else None)
        lab.wait()
        return
    made = lab.generate("HELLO", 6, wait=False)
    eventually(lambda: made.over)
    try:
        lab.wait()
    except megalens.GenerationError as error:
        said = {
            "state": made.state,
            "message": made.message,
            "error": str(error),
            "kind": type(error).__name__,
        }
        (folder / "said.json").write_text(json.dumps(said))
    lab.close()
    # There is nobody to meet any more.
    os._exit(0)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)
