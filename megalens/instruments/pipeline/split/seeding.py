"""Random numbers that a forward pass and its recomputation draw alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch

__all__ = ["seeded"]


@contextmanager
def seeded(
    seed: int, step: int, micro_batch: int, stage: int, device: torch.device | str = "cpu"
) -> Iterator[None]:
    """Have torch draw, inside, the random numbers of one pass; its generators are as before afterwards.

    A split training does so around every pass. Ordinary training that does the same drops out the same elements.

    Parameters
    ----------
    seed : int
        Of the training.
    step : int
        Calls of ``step`` before this one.
    micro_batch : int
        Counted over all replicas: those of replica 1 come after those of replica 0.
    stage : int
        Pipeline stage.
    device : torch.device or str
        Where the pass runs. Devices of different kinds draw different numbers from the same seed.
    """
    where = torch.device(device)
    several = [where] if where.type == "cuda" else []
    words = f"{seed} {step} {micro_batch} {stage}".encode()
    # 63 bits: what every generator takes.
    number = int.from_bytes(blake2b(words, digest_size=8).digest(), "big") >> 1
    with torch.random.fork_rng(several):
        torch.default_generator.manual_seed(number)
        for each in several:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(number)
        yield
