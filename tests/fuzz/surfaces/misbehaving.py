"""A surface that does what none may, for the test of the suite itself. It stands in no catalogue."""

import os
import signal
from random import Random
from typing import Any

from tests.fuzz.surface import Surface


def _run(way: str) -> None:
    if way == "loops":
        while True:
            pass
    if way == "stays in C":
        sum(range(10**12))
    if way == "takes memory":
        bytearray(1 << 30)
    if way == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if way == "raises":
        {}["x"]


def _mutate(chance: Random, seed: Any) -> Any:
    return seed


SURFACE = Surface(lambda: ["fine"], _mutate, _run, ())
