"""A small GPT that trains on text which comes with CPython: something real to look at. Needs torch.

Names are loaded on first use, so that ``python -m megalens.demo`` can say how threads wait before torch is there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import GPT, GPTConfig
    from .text import Corpus, load_corpus
    from .tokenizer import ByteTokenizer
    from .train import Progress, TrainConfig, Trainer

__all__ = [
    "GPT",
    "ByteTokenizer",
    "Corpus",
    "GPTConfig",
    "Progress",
    "TrainConfig",
    "Trainer",
    "load_corpus",
]

_HOMES = {
    "GPT": ".model",
    "GPTConfig": ".model",
    "Corpus": ".text",
    "load_corpus": ".text",
    "ByteTokenizer": ".tokenizer",
    "Progress": ".train",
    "TrainConfig": ".train",
    "Trainer": ".train",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'megalens.demo' has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)
