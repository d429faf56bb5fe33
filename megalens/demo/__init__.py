"""A small GPT that trains on text which comes with CPython: something real to look at. Needs torch.

Names are loaded on first use, so that ``python -m megalens.demo`` can say how threads wait before torch is
there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import GPT, ByteTokenizer, GPTConfig, GPTPart
    from .train import Corpus, Progress, TrainConfig, Trainer, load_corpus

__all__ = [
    "GPT",
    "ByteTokenizer",
    "Corpus",
    "GPTConfig",
    "GPTPart",
    "Progress",
    "TrainConfig",
    "Trainer",
    "load_corpus",
]

_HOMES = {
    ".model": ("GPT", "ByteTokenizer", "GPTConfig", "GPTPart"),
    ".train": ("Corpus", "Progress", "TrainConfig", "Trainer", "load_corpus"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home, __name__), name)
    raise AttributeError(f"module 'megalens.demo' has no attribute {name!r}")
