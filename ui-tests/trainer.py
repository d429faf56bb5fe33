"""A real training run for the browser tests: the demo's model on random bytes, paced, recorded, until its process is ended.

Lines on standard input steer it: ``nan`` makes one activation non-finite for a step.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time

import torch

import megalens
from megalens import Tile
from megalens.demo.model import GPT, GPTConfig


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--traced", action="store_true")
    parser.add_argument("--allowing", action="store_true", help="viewers may pause and perturb it")
    parser.add_argument("--rate", type=float, default=8.0, help="steps per second at most")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT(GPTConfig(sequence=32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tracer = megalens.trace(
        model,
        name=options.name,
        record=options.record,
        flags={"HiddenStates": Tile(48)} if options.traced else None,
        linger=2.0,
        allow=["pause", "watched", "perturb"] if options.allowing else [],
    )
    poison = threading.Event()
    # Standard input closes with the test's process, and with it this run ends.
    reader = threading.Thread(target=_read, args=(poison,), daemon=True)
    reader.start()
    print(tracer.run_id, flush=True)
    step = 0
    while True:
        began = time.perf_counter()
        step += 1
        hook = model.blocks[1].register_forward_hook(_spoil) if poison.is_set() else None
        with tracer.step():
            loss = model.loss(torch.randint(0, 96, (4, 33)))
            if hook is None:
                loss.backward()
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            tracer.log(loss=loss.detach(), unit="nats/byte")
        if hook is not None:
            hook.remove()
            poison.clear()
        if step % 20 == 0:
            tracer.log(held_out_loss=loss.detach() + 0.1, unit="nats/byte")
        if step % 5 == 0:
            tracer.log(tokens_per_second=132 / (time.perf_counter() - began), unit="1/s")
        time.sleep(max(0.0, 1 / options.rate - (time.perf_counter() - began)))


def _spoil(_module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
    output = output.clone()
    output[:, 3, 5] = float("nan")
    return output


def _read(poison: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "nan":
            poison.set()
    os._exit(0)


if __name__ == "__main__":
    main()
