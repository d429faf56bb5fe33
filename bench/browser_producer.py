"""The training that benchmarks of the page watch: the demo model, paced, some flags traced. Ends when its standard input closes."""

from __future__ import annotations

import argparse
import sys
import threading
import time

import torch

import megalens
from megalens import Tile
from megalens.demo import GPT

__all__ = ["main"]


def main() -> None:
    """Step until standard input closes; each step logs when its tensors were made."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, required=True, help="steps a second")
    parser.add_argument("--flags", required=True, help="flags, separated by commas")
    parser.add_argument("--ahead", type=int, default=0, help="first steps, which are not paced")
    parser.add_argument(
        "--hurry", type=int, default=0, help="steps before the pace, made eight times as fast after those"
    )
    parser.add_argument(
        "--statistics", action="store_true", help="train, and log statistics of parameters and gradients"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT()
    ended = threading.Event()
    threading.Thread(target=_until_closed, args=(ended,), daemon=True).start()
    flags = {flag: Tile(96) for flag in options.flags.split(",")}
    with megalens.trace(model, name="bench", flags=flags, linger=0) as tracer:
        if not tracer.connected(30):
            raise TimeoutError("The tracer did not reach its hub within 30 s.")
        if options.statistics:
            megalens.log_statistics(model, tracer=tracer, param=1, grad=1)
        steps = 0
        due = time.monotonic()
        while not ended.is_set():
            if steps == options.ahead:
                print(tracer.run_id, flush=True)
            with tracer.step():
                # Other text each time: with the same one neither a colour nor a scale would ever change.
                out = model(torch.randint(256, (1, model.config.sequence)))
                if options.statistics:
                    model.zero_grad()
                    loss = out.square().mean()
                    loss.backward()
                    tracer.log(loss=loss)
                tracer.log(produced=time.time(), unit="s")
            steps += 1
            if steps <= options.ahead:
                continue
            rate = options.rate * (8 if steps <= options.hurry else 1)
            due = max(due + 1 / rate, time.monotonic() - 1)
            ended.wait(max(0.0, due - time.monotonic()))


def _until_closed(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()
