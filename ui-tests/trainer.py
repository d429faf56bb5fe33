"""A real training run for the browser tests: the demo's model on random bytes, paced, recorded, until its process is ended.

Lines on standard input steer it: ``nan`` makes one activation non-finite for a step, ``sick`` one gradient from there on, and ``end`` ends the training as a script that is through.
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

SICK = "blocks.1.mlp.fc1.weight"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--traced", action="store_true")
    parser.add_argument("--allowing", action="store_true", help="viewers may pause and perturb it")
    parser.add_argument(
        "--statistics", action="store_true", help="log statistics of gradients and the residual stream"
    )
    parser.add_argument("--monitor", action="store_true", help="judge its steps")
    parser.add_argument("--timeline", help="how finely its steps are timed")
    parser.add_argument("--rate", type=float, default=5.0, help="steps per second at most")
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
        timeline=options.timeline,
        allow=["pause", "watched", "perturb"] if options.allowing else [],
    )
    if options.monitor:
        megalens.monitor(model, optimizer, samples=4, tracer=tracer)
    if options.statistics:
        megalens.log_statistics(model, optimizer, grad=1, residual=1, samples=4, tracer=tracer)
    poison, sick, end = (threading.Event() for _ in range(3))
    words = {"nan": poison, "sick": sick, "end": end}
    # Standard input closes with the test's process, and with it this run ends.
    reader = threading.Thread(target=_read, args=(words,), daemon=True)
    reader.start()
    print(tracer.run_id, flush=True)
    step = 0
    weight = dict(model.named_parameters())[SICK]
    weight.register_hook(lambda grad: _first_is_nan(grad) if sick.is_set() else None)
    while not end.is_set():
        began = time.perf_counter()
        step += 1
        hook = model.blocks[1].register_forward_hook(_spoil) if poison.is_set() else None
        with tracer.step():
            loss = model.loss(torch.randint(0, 96, (4, 33)))
            if hook is None:
                loss.backward()
                optimizer.step()
                # One gradient is ill, and not in the next step all that is computed with its weight.
                weight.data.nan_to_num_()
            optimizer.zero_grad(set_to_none=True)
            tracer.log(loss=loss.detach(), unit="nats/byte")
        if step == 1:
            print("first step taken", flush=True)
        if hook is not None:
            hook.remove()
            poison.clear()
        if step % 20 == 0:
            tracer.log(held_out_loss=loss.detach() + 0.1, unit="nats/byte")
        if step % 5 == 0:
            tracer.log(tokens_per_second=132 / (time.perf_counter() - began), unit="1/s")
        time.sleep(max(0.0, 1 / options.rate - (time.perf_counter() - began)))
    tracer.close()
    # The thread that waits for a line would hold the interpreter back.
    os._exit(0)


def _spoil(_module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
    output = output.clone()
    output[:, 3, 5] = float("nan")
    return output


def _first_is_nan(grad: torch.Tensor) -> torch.Tensor:
    grad = grad.clone()
    grad.view(-1)[0] = float("nan")
    return grad


def _read(words: dict[str, threading.Event]) -> None:
    for line in sys.stdin:
        words[line.strip()].set()
    os._exit(0)


if __name__ == "__main__":
    main()
