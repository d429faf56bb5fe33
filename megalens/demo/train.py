"""The demo's training loop: what a user's own loop looks like with Megalens in it.

English that comes with CPython itself: the language reference topics and the standard library's
docstrings.
"""

from __future__ import annotations

import ast
import functools
import math
import os
import sysconfig
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .model import GPT

_LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "turtledemo", "__pycache__"}
)
_SHORTEST_PARAGRAPH = 20
_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_HELD_OUT_SHARE = 1 / 12


@dataclass(frozen=True)
class Corpus:
    """Text as bytes, split by document so that no document is in both halves."""

    train: bytes
    held_out: bytes
    documents: int
    """Documents in both halves together."""


@functools.cache
def load_corpus(limit_bytes: int = 1_000_000) -> Corpus:
    """Collect the corpus. The same interpreter always gives the same bytes, which are read once in a process.

    Nothing of the standard library is imported for it: sources are parsed and their docstrings read. A
    paragraph that an earlier document had already is left out (the topics quote each other), so nothing of
    the training text comes back in the held-out text.

    Parameters
    ----------
    limit_bytes : int
        Stop after this many bytes of UTF-8.

    Raises
    ------
    ValueError
        When this interpreter brings less than 64 KiB of text.
    """
    halves: tuple[list[bytes], list[bytes]] = ([], [])
    seen: set[str] = set()
    total = held_out_bytes = documents = 0
    for document in _documents():
        text = _fresh_paragraphs(document, seen)
        if not text:
            continue
        data = text.encode("utf-8", "replace")[: limit_bytes - total]
        documents += 1
        total += len(data)
        held_out = held_out_bytes + len(data) <= total * _HELD_OUT_SHARE
        held_out_bytes += len(data) * held_out
        halves[held_out].append(data)
        if total >= limit_bytes:
            break
    if total < min(limit_bytes, 1 << 16):
        raise ValueError(
            f"Expected at least 64 KiB of English in this Python's standard library, found {total} bytes. "
            "Use a Python that ships its sources, such as one from python.org or a distribution's full "
            "package."
        )
    return Corpus(b"\n\n".join(halves[0]), b"\n\n".join(halves[1]), documents)


def _documents() -> Iterator[str]:
    yield from _topics()
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for folder, below, files in os.walk(root):
        # Packages that others installed are often below it, and many more files than its own.
        below[:] = [name for name in below if name not in _LEFT_OUT]
        found += [Path(folder, name).relative_to(root) for name in files if name.endswith(".py")]
    for path in sorted(found, key=Path.as_posix):
        if path.parts[0] != "pydoc_data":
            yield _docstrings(root / path)


def _topics() -> list[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        # Some distributions leave it out; the docstrings alone are enough.
        return []
    return [topics[name] for name in sorted(topics)]


def _docstrings(path: Path) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in _blocks(tree) if isinstance(node, kinds))
    return "\n\n".join(text for text in found if text)


def _blocks(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield statements and what holds them, breadth first: as ``ast.walk`` does, without expressions."""
    todo = deque[ast.AST]([tree])
    while todo:
        node = todo.popleft()
        yield node
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], _STATEMENTS):
                todo.extend(value)


def _fresh_paragraphs(document: str, seen: set[str]) -> str:
    fresh = []
    for paragraph in document.split("\n\n"):
        key = " ".join(paragraph.split())
        if len(key) >= _SHORTEST_PARAGRAPH and key not in seen:
            seen.add(key)
            fresh.append(paragraph.strip("\n"))
    return "\n\n".join(fresh)


LOSS_UNIT = "nats/byte"


class Windows:
    """Windows of ``sequence + 1`` bytes out of one text, random for training and evenly spaced for measuring.

    Parameters
    ----------
    text : bytes
        The text.
    sequence : int
        Tokens a model reads; a window has one more, the last target.
    seed : int
        Seed of the random windows.
    """

    def __init__(self, text: bytes, sequence: int, seed: int = 0) -> None:
        if len(text) <= sequence:
            raise ValueError(f"Expected a text of more than {sequence} bytes, got {len(text)}.")
        self._ids = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._window = torch.arange(sequence + 1)
        self._generator = torch.Generator().manual_seed(seed)

    def random(self, batch: int) -> Tensor:
        """Return ``[batch, sequence + 1]`` int64 ids of random windows."""
        starts = torch.randint(len(self._ids) - len(self._window) + 1, (batch, 1), generator=self._generator)
        return self._at(starts)

    def spaced(self, count: int) -> Tensor:
        """Return ``[n, sequence + 1]`` int64 ids of at most ``count`` windows, evenly spaced and not
        overlapping.
        """
        stride = len(self._window) - 1
        available = (len(self._ids) - 1) // stride
        chosen = torch.linspace(0, available - 1, min(count, available)).long()
        return self._at(chosen[:, None] * stride)

    def _at(self, starts: Tensor) -> Tensor:
        return self._ids[starts + self._window].long()


@dataclass(frozen=True)
class TrainConfig:
    """How the demo trains."""

    steps: int = 4000
    """Optimizer steps. The learning rate falls along a cosine over them."""
    batch: int = 16
    """Windows a step."""
    learning_rate: float = 2e-3
    """Highest learning rate, reached after ``warmup`` steps."""
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0
    """Largest norm of the gradient."""
    held_out_every: int = 50
    """Steps between two measurements of the held-out loss."""
    held_out_windows: int = 64
    """Windows of held-out text in each measurement; the last one takes all of them."""
    seed: int = 0
    broken_batch: int = 0
    """Step whose batch is of random bytes, as from a broken data loader; 0 is none. The training recovers."""
    compile: bool = False
    """Train through ``torch.compile``."""


@dataclass
class Progress:
    """Where the training is."""

    step: int = 0
    first_loss: float = math.nan
    """Training loss of the first step, nats a byte."""
    loss: float = math.nan
    """Training loss, mean of the last ten steps."""
    held_out_loss: float = math.nan
    tokens_per_second: float = math.nan
    started: float = field(default_factory=time.monotonic)


class ITracer(Protocol):
    """The part of ``megalens.Tracer`` that a loop needs."""

    def step(self) -> AbstractContextManager[Any]: ...

    def phase(self, name: str) -> AbstractContextManager[Any]: ...

    def log(self, **values: Any) -> None: ...


class Untraced:
    """Stands in for the tracer where none is wanted."""

    def step(self) -> AbstractContextManager[Any]:
        """Do nothing around a step."""
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Do nothing around a phase."""
        return nullcontext()

    def log(self, **values: Any) -> None:
        """Drop the values."""


class Trainer:
    """One training of the demo model.

    Parameters
    ----------
    model : GPT
        Trained in place.
    corpus : Corpus
        What to train and to measure on.
    tracer : Tracer, optional
        Wraps every step; none when absent.
    config : TrainConfig, optional
        The demo's own when absent.
    """

    def __init__(
        self, model: GPT, corpus: Corpus, tracer: ITracer | None = None, config: TrainConfig | None = None
    ) -> None:
        self.model = model
        self.config = config or TrainConfig()
        self.tracer = tracer or Untraced()
        self.progress = Progress()
        sequence = model.config.sequence
        self._windows = Windows(corpus.train, sequence, self.config.seed)
        self._held_out = Windows(corpus.held_out, sequence)
        self.optimizer = torch.optim.AdamW(_groups(model, self.config.weight_decay), betas=(0.9, 0.98))
        self._loss: Callable[[Tensor], Tensor] = (
            torch.compile(model.loss) if self.config.compile else model.loss
        )
        self._recent: list[Tensor] = []
        self._clock = time.perf_counter()

    def run(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Progress]:
        """Train until the last step or until ``stop()``, yielding after each step."""
        while self.progress.step < self.config.steps and not stop():
            self.step()
            if self.progress.step % self.config.held_out_every == 0:
                self.measure_held_out(self.config.held_out_windows)
            yield self.progress

    def step(self) -> None:
        """Take one optimizer step on random windows."""
        rate = self._learning_rate(self.progress.step + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        waits = time.perf_counter()
        with self.tracer.step():
            # What viewers have it do between two steps is no part of the training speed.
            self._clock += time.perf_counter() - waits
            tokens = self._windows.random(self.config.batch)
            if self.progress.step + 1 == self.config.broken_batch:
                tokens = torch.randint_like(tokens, 256)
            loss = self._loss(tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.tracer.log(loss=loss.detach(), unit=LOSS_UNIT)
            self.tracer.log(lr=rate, grad_norm=norm.detach())
            self._advance(loss.detach())

    @torch.no_grad()
    def measure_held_out(self, windows: int) -> float:
        """Return the held-out loss in nats a byte over evenly spaced windows, and log it."""
        self.model.eval()
        with self.tracer.phase("eval"):
            tokens = self._held_out.spaced(windows)
            sums = [self.model.loss(chunk) * len(chunk) for chunk in torch.split(tokens, 64)]
        self.model.train()
        self.progress.held_out_loss = float(torch.stack(sums).sum()) / len(tokens)
        self.tracer.log(held_out_loss=self.progress.held_out_loss, unit=LOSS_UNIT)
        # Measuring is no part of the training speed.
        self._clock = time.perf_counter()
        self._recent.clear()
        return self.progress.held_out_loss

    def _advance(self, loss: Tensor) -> None:
        progress = self.progress
        progress.step += 1
        self._recent.append(loss)
        if progress.step == 1:
            progress.first_loss = float(loss)
        if progress.step % 10 == 0:
            now = time.perf_counter()
            tokens = len(self._recent) * self.config.batch * self.model.config.sequence
            progress.tokens_per_second = tokens / (now - self._clock)
            progress.loss = float(torch.stack(self._recent).mean())
            self.tracer.log(tokens_per_second=progress.tokens_per_second, unit="1/s")
            self._clock = now
            self._recent.clear()

    def _learning_rate(self, step: int) -> float:
        config = self.config
        if step < config.warmup:
            return config.learning_rate * step / config.warmup
        done = (step - config.warmup) / max(1, config.steps - config.warmup)
        return config.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))


def _groups(model: GPT, weight_decay: float) -> list[dict[str, Any]]:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
