"""A small GPT that trains on text which comes with CPython: something real to look at. Needs torch."""

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
