"""Train the demo's GPT as a pipeline, and watch, plan and change it with Megalens. See README.md beside this file."""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

import megalens
from megalens.adapters import mesh_place
from megalens.demo import GPT, GPTPart, load_corpus
from megalens.demo.model import GPTConfig

SEQUENCE = 64


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats per token."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedule", default="1f1b", help="order of a step (%(default)s)")
    parser.add_argument("--chunks", type=int, default=1, help="model chunks of a stage (%(default)s)")
    parser.add_argument("--placement", default="loop", choices=["loop", "v"])
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1000, help="steps a second at most (%(default)s)")
    parser.add_argument("--name", default="gpt-pipeline")
    parser.add_argument("--record", default="megalens-runs", help="folder of recordings (%(default)s)")
    options = parser.parse_args()

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    distributed.init_process_group("gloo")
    rank, stages = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    model = GPT(GPTConfig(layers=options.layers, sequence=SEQUENCE))
    count = stages * options.chunks
    turns = [chunk % 2 == 1 and options.placement == "v" for chunk in range(options.chunks)]
    held = [chunk * stages + (stages - 1 - rank if back else rank) for chunk, back in enumerate(turns)]
    parts = [GPTPart(model, number, count) for number in held]

    mesh = init_device_mesh("cpu", (stages,), mesh_dim_names=("pp",))
    with megalens.trace(
        parts, name=options.name, timeline="phases", place=mesh_place(mesh), record=options.record
    ) as tracer:
        schedule = megalens.pipeline.DynamicSchedule(
            parts,
            options.micro_batches,
            options.schedule,
            loss_of,
            placement=options.placement,
            tracer=tracer,
        )
        optimizer = torch.optim.AdamW([each for part in parts for each in part.parameters()], lr=1e-3)
        text = torch.frombuffer(bytearray(load_corpus().train), dtype=torch.uint8).long()
        dice = torch.Generator().manual_seed(1)
        for _ in range(options.steps):
            began = time.monotonic()
            starts = torch.randint(len(text) - SEQUENCE - 1, (2 * options.micro_batches,), generator=dice)
            batch = torch.stack([text[at : at + SEQUENCE + 1] for at in starts.tolist()])
            losses: list[Tensor] = []
            with tracer.step():
                inputs = (batch[:, :-1],) if 0 in held else ()
                target = batch[:, 1:] if count - 1 in held else None
                schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
                optimizer.step()
                optimizer.zero_grad()
                if losses:
                    tracer.log(loss=torch.stack(losses).mean().item())
            time.sleep(max(0.0, began + 1 / options.rate - time.monotonic()))
        schedule.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
