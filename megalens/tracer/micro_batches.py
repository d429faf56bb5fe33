"""Which micro-batch the model is at: in a forward pass, in its backward pass, or in what is computed again for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .passes import when_backpropagated

__all__ = ["OUTSIDE", "TRAINING", "MicroBatches", "Unproven"]

TRAINING = "train"
OUTSIDE = "outside"
"""Phase of what runs between steps, or inside of them without gradients: it is neither traced nor perturbed."""


class Unproven:
    """A forward pass in evaluation mode, of which only its backward pass says that it is a micro-batch.

    Attributes
    ----------
    number : int
        Of the micro-batch, as it would be were no other pass between; once it is proven, as it is.
    rows : Any
        What it gave, for whoever waits.
    """

    __slots__ = ("number", "rows")

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: Any = None


class MicroBatches:
    """Counts forward passes, each model chunk by itself, and knows to which of them a backward pass belongs.

    A pipeline interleaves forward and backward passes of several micro-batches. The gradient of a forward pass's own output is the first thing that its
    backward pass computes, so a hook on that output tells which micro-batch everything after it belongs to, what activation checkpointing
    computes again included.

    What is computed without gradients from the model's own call down is no training (a teacher's pass, old probabilities, a sample of text), unless a phase was said: it is no micro-batch, and while it runs the
    phase is :data:`OUTSIDE`. What is computed with gradients in evaluation mode is a micro-batch from its backward pass on.

    Attributes
    ----------
    step : int
        Step that began last.
    phase : str
        ``train``, ``eval`` or ``generate``; :data:`OUTSIDE` between steps.
    in_forward, in_backward : bool
        Where the model is.
    follows_backward : bool
        Whether anybody wants to know of backward passes; without that no hook is put on an output.
    left_out : int
        Passes of this step that were no training, so far.
    unproven : Unproven or None
        The pass that the model is in, where it is one of those.
    """

    def __init__(self) -> None:
        self.step = 0
        self.phase = TRAINING
        self.in_forward = False
        self.in_backward = False
        self.follows_backward = False
        self.left_out = 0
        self.unproven: Unproven | None = None
        self._leaving_out = False
        self._root = 0
        self._forward = -1
        self._backward = -1
        self._counts: dict[int, int] = {}

    @property
    def micro_batch(self) -> int:
        """Number of the micro-batch that is computed now, counted from 0; −1 before the first of a step."""
        return self._backward if self.in_backward and not self.in_forward else self._forward

    def begin(self, step: int, phase: str) -> None:
        """Start a step or a phase: counting begins anew."""
        if phase == TRAINING:
            self.left_out = 0
        self._leaving_out, self.unproven = False, None
        self.step, self.phase = step, phase
        self.in_forward = self.in_backward = False
        self._forward = self._backward = -1
        self._counts = {}

    def save(self) -> tuple[Any, ...]:
        """Return what :meth:`restore` takes after a phase inside of a step."""
        self._go_on()
        return (self.phase, self._forward, self._backward, self._counts)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to where :meth:`save` was."""
        self.phase, self._forward, self._backward, self._counts = saved
        self.in_forward = self.in_backward = False

    def forward_begins(self, root: int, training: bool) -> None:
        """Count a forward pass of one model chunk."""
        # What raised has not ended.
        self._go_on()
        if self.phase == TRAINING and not torch.is_grad_enabled():
            self.left_out += 1
            self._leaving_out, self.phase = True, OUTSIDE
            self.in_forward = False
            return
        self._forward = self._counts.get(root, -1) + 1
        self._root = root
        if self.phase == TRAINING and not training:
            self.left_out += 1
            self.unproven = Unproven(self._forward)
        else:
            self._counts[root] = self._forward
        self.in_forward = True

    def forward_ends(self, output: Any) -> None:
        """Note the end of a forward pass and wait for its backward pass."""
        self.in_forward = False
        unproven, self.unproven = self.unproven, None
        if self._leaving_out:
            self._go_on()
        elif self.follows_backward or unproven is not None:
            when_backpropagated(output, self._entering(self._root, self._forward, self._counts, unproven))

    def prove(self, unproven: Unproven, renumbered: bool) -> None:
        """Take a pass for a micro-batch whose backward pass has begun, with another number than it was thought to have or not."""

    def _go_on(self) -> None:
        """Go back from a pass that was left out, or that raised."""
        self.unproven = None
        if self._leaving_out:
            self._leaving_out, self.phase = False, TRAINING

    def _entering(
        self, root: int, number: int, counts: dict[int, int], unproven: Unproven | None
    ) -> Callable[[], None]:
        waiting = unproven

        def enter() -> None:
            nonlocal waiting, number
            # Of another step or phase than the one that counts now: nothing of it is traced.
            if counts is not self._counts:
                return
            first, waiting = waiting, None
            if first is not None and self.phase == TRAINING:
                first.number = counts[root] = counts.get(root, -1) + 1
                renumbered, number = first.number != number, first.number
                self.left_out -= 1
                self.prove(first, renumbered)
            self._backward = number
            self.in_backward = True

        return enter
