"""Train the demo's GPT with forward and backward passes in different processes, and watch it with Megalens. See README.md beside this file."""

from __future__ import annotations

import argparse
import os

import torch
from megalens.split import SplitLayout, SplitTraining
from torch import Tensor, distributed
from torch.nn import functional

import megalens
from megalens.demo import GPT, GPTPart, load_corpus
from megalens.demo.model import GPTConfig

SEQUENCE = 64


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats per token."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--last-forward", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--name", default="gpt-split")
    parser.add_argument("--record", default="megalens-runs", help="folder of recordings (%(default)s)")
    options = parser.parse_args()

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    layout = SplitLayout.of(pipeline=options.stages, last_forward=options.last_forward)
    rank = int(os.environ["RANK"])
    place = layout.place(rank)
    # Before the run is traced, so that all processes are one run.
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = GPT(GPTConfig(layers=options.layers, sequence=SEQUENCE))
    part = GPTPart(model, place.stage, options.stages)
    text = torch.frombuffer(bytearray(load_corpus().train), dtype=torch.uint8).long()
    dice = torch.Generator().manual_seed(1)
    with (
        megalens.trace(
            part,
            name=options.name,
            timeline="phases",
            place=layout.tracer_place(rank),
            record=options.record,
        ) as tracer,
        SplitTraining(
            part,
            layout=layout,
            loss_fn=loss_of,
            optimizer=lambda weights: torch.optim.AdamW(weights, lr=1e-3),
            micro_batches=options.micro_batches,
            tracer=tracer,
        ) as training,
    ):
        for _ in range(options.steps):
            starts = torch.randint(len(text) - SEQUENCE - 1, (2 * options.micro_batches,), generator=dice)
            batch = torch.stack([text[at : at + SEQUENCE + 1] for at in starts.tolist()])
            with tracer.step():
                inputs = (batch[:, :-1],) if place.stage == 0 else ()
                target = batch[:, 1:] if place.stage == options.stages - 1 else None
                loss = training.step(*inputs, target=target)
                if loss is not None and place.role == "backward":
                    tracer.log(loss=loss.item())
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
