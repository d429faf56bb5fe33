"""What a script of the corpus has of the outside: its steps, its losses, and the tensors that it shows.

Each script is run three times from one seed: with this :class:`Job`, which does nothing; with the
witness's, which keeps what the script shows; and with the one that traces by Megalens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Shaped = Callable[[Tensor], Tensor]
Seer = Callable[[str, int, dict[str, Tensor], "Shaped | None", bool], None]
_seers: list[Seer] = []


def see(
    flag: str,
    layer: int,
    whole: Tensor | None = None,
    *,
    shaped: Shaped | None = None,
    may: bool = False,
    **parts: Tensor,
) -> None:
    """Show the very tensor that a flag promises, from inside of the model: what Megalens records has to be
    this.

    Axes are ``[B, S, …]``; queries, keys, values and context with four axes are ``[B, H, S, d]``.
    ``shaped`` brings others into order, of the tensor as of its gradient. What only ``may`` be recorded is
    right where it is, and not missed. Nothing happens but in the witness's run.
    """
    if not torch.compiler.is_compiling() and _seers:
        _seers[-1](flag, layer, {"": whole, **parts} if whole is not None else parts, shaped, may)


class Job:
    """The training as it is, without anybody who looks."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []

    def watch(self, model: nn.Module, *optimizers: torch.optim.Optimizer, **tracing: Any) -> None:
        """Trace this model from here on; several may be. ``tracing`` is for ``megalens.trace``."""

    def show(self, hooks: Callable[[], Callable[[], Any]]) -> None:
        """Put plain hooks into modules that are not the script's own, so that they show what :func:`see`
        would; only for the witness. ``hooks`` returns what takes them off.
        """

    def restart(self, model: nn.Module, *optimizers: torch.optim.Optimizer, first_step: int) -> None:
        """Go on with the recording after a checkpoint, with a model and optimizers that were made anew."""

    @contextmanager
    def step(self) -> Iterator[None]:
        """One optimizer step."""
        yield

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Evaluation or generation."""
        yield

    def loss(self, value: Tensor) -> None:
        """Log the loss."""
        self.losses.append(value.detach().clone())

    def reduced(self, *parameters: nn.Parameter) -> None:
        """Say that gradients are what the documentation calls reduced and unclipped now: of all parameters,
        or of these.

        Where a script never says so, they are when the optimizer takes them.
        """

    def compile(self, model: Any) -> Any:
        """Compile, but where hooks have to see inside."""
        return torch.compile(model, backend="aot_eager")


@dataclass(frozen=True)
class Script:
    name: str
    about: str
    run: Callable[[Job], None]
    stacks: bool
    """Whether there are several lists of layers, which may be numbered in any order."""
    quick: bool
    """Whether it is among those that pytest runs."""


SCRIPTS: dict[str, Script] = {}


def script(
    *, stacks: bool = False, quick: bool = False
) -> Callable[[Callable[[Job], None]], Callable[[Job], None]]:
    """Add a function to the corpus."""

    def add(run: Callable[[Job], None]) -> Callable[[Job], None]:
        add_script(run, run.__name__, run.__doc__ or "", stacks=stacks, quick=quick)
        return run

    return add


def add_script(
    run: Callable[[Job], None], name: str, about: str, *, stacks: bool = False, quick: bool = False
) -> None:
    assert name not in SCRIPTS, name
    SCRIPTS[name] = Script(name, about.strip(), run, stacks, quick)


def seeing(seer: Seer) -> Callable[[], None]:
    """Have what is seen told to ``seer``; returns what ends it."""
    _seers.append(seer)
    return lambda: _seers.remove(seer)
