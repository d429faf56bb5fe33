"""Training with forward passes and backward passes in different processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from ..errors import SplitError
from ..stages.inbox import StepBatch
from .checkpoint import SplitCheckpoint, WeightUpdate
from .layout import SplitLayout
from .mail import SplitGroups, SplitNotes
from .start import batch_for, began, checked_stage, checked_start, device_for, module_of
from .weights import StageWeights
from .worker import BackwardProcess, ForwardProcess, SplitWorker, mean_of

if TYPE_CHECKING:
    from ....tracer import Tracer


class SplitTraining:
    """Trains one stage, in the role that this process has. Every process of the job makes one, alike.

    Forward processes run passes without autograd and send what a stage gives to the next stage's forward and
    backward process. Backward processes recompute their stage from what came, run the backward passes, sum
    gradients over the replicas, take the optimizer's step, and send what changed of the weights to the
    forward process of their stage. There is no coordinator.

    Parameters
    ----------
    stage : nn.Module, PipelineStage, or callable
        This process' stage; or what makes its module of a :class:`megalens.split.SplitPlace`, whose ``group``
        are then the processes that share the stage.
    layout : SplitLayout, optional
        Who does what; or the degrees that follow.
    tensor, pipeline, data : int
        Tensor-parallel degree of the backward processes, pipeline stages, replicas.
    forward_tensor : int, optional
        Tensor-parallel degree of the forward processes, which divides ``tensor``.
    last_forward : bool
        Whether the last stage has forward processes, whose output is of use to nobody but those who look at
        it.
    context, expert : int
        Must be 1.
    loss_fn : callable
        Takes an output and its part of ``target`` and returns a scalar.
    optimizer : callable
        Makes an optimizer of a list of parameters: ``lambda p: torch.optim.AdamW(p, lr=1e-3)``. Called in
        backward processes.
    micro_batches : int
        Of a step of one replica.
    seed : int
        Of random numbers in passes; see :func:`megalens.split.seeded`.
    clip : float, optional
        Largest norm of all gradients, over stages and tensor-parallel processes.
    masters : bool
        Whether 16-bit parameters have float32 copies that the optimizer steps on, and float32 sums of
        gradients.
    ahead : int
        Micro-batches that a backward process recomputes before their gradients come.
    check_every : int
        Updates after which forward and backward processes compare their weights by hash; 0 for never.
    static_shapes : bool
        Whether what crosses between two stages always has the same shape. Otherwise each message says its
        shape.
    timeout : float
        Seconds to wait for another process before the step ends in a ``SplitError``.
    device : torch.device or str, optional
        Where the module runs and is moved to; where it is, or for a callable the GPU of ``LOCAL_RANK`` if
        there is one.
    backend : str, optional
        Of the process group that is made where there is none: gloo on the CPU, and NCCL as well on a GPU.
    tracer : megalens.Tracer, optional
        Times each operation and message (``timeline="phases"``), with ``place=layout.tracer_place(rank)``.

    Raises
    ------
    SplitError
        For what does not fit: with ``field``, before anything is connected.
    """

    def __init__(
        self,
        stage: Any,
        *,
        layout: SplitLayout | None = None,
        tensor: int = 1,
        pipeline: int = 1,
        data: int = 1,
        forward_tensor: int | None = None,
        last_forward: bool = True,
        context: int = 1,
        expert: int = 1,
        loss_fn: Callable[[Any, Any], Tensor],
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        micro_batches: int,
        seed: int = 0,
        clip: float | None = None,
        masters: bool = False,
        ahead: int = 1,
        check_every: int = 100,
        static_shapes: bool = True,
        timeout: float = 300.0,
        device: torch.device | str | None = None,
        backend: str | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        checked_start(loss_fn, optimizer, micro_batches, clip, ahead, check_every, timeout, seed)
        self.layout = layout or SplitLayout.of(
            tensor,
            pipeline,
            data,
            forward_tensor=forward_tensor,
            last_forward=last_forward,
            context=context,
            expert=expert,
        )
        """The roles of all processes."""
        rank = checked_stage(stage, self.layout)
        where = device_for(stage, device)
        self._owns_group = began(backend, where, timeout)
        self._loss_fn, self._count, self._check_every = loss_fn, micro_batches, check_every
        self._tracer = tracer
        self._calls = self._updates = self._pending = 0
        self._broken: str | None = None
        try:
            self._notes = SplitNotes(self.layout.place(rank), timeout)
            groups = SplitGroups(self.layout, rank, where, self._notes, timeout)
            self.place = groups.place
            """The role of this process."""
            self.module = module_of(stage, self.place).to(where).train()
            """The stage's module."""
            self._mail = groups.mail(ahead=ahead + 1, headers=not static_shapes)
            self._weights = StageWeights(self.layout, self.module, self._mail)
            self._weights.agree(self._notes)
            self._update: WeightUpdate | None = None
            self._worker: SplitWorker
            given = (self.layout, self.module, self._mail, micro_batches, seed, where)
            if self.place.role == "forward":
                self._worker = ForwardProcess(*given)
            else:
                self._weights.begin_alike(groups)
                cut = self._weights.cut
                leads = self.place.tensor == 0
                self._update = WeightUpdate(
                    self.module, cut, optimizer, groups, leads=leads, clip=clip, masters=masters
                )
                self._worker = BackwardProcess(*given, ahead=ahead, accumulated=self._update.accumulate)
            self._checkpoint = SplitCheckpoint(
                self.layout, self.place, self.module, self._update, self._notes
            )
            self._weights.move(None)
        except BaseException:
            if self._owns_group:
                distributed.destroy_process_group()
            raise

    # Training.

    def step(self, *args: Any, target: Any = None, update: bool = True, **kwargs: Any) -> Tensor | None:
        """Train on a batch.

        Parameters
        ----------
        *args
            The model's input: in the processes of stage 0, forward and backward ones alike.
        target : tensor or pytree, optional
            What the loss compares with: in the last stage's backward processes, and in its forward processes
            where their loss is wanted.
        update : bool
            Whether the optimizer steps. Otherwise gradients are kept: the next step with ``update`` takes the
            mean over all micro-batches of these calls, and of all replicas.
        **kwargs
            What this stage's module is called with besides, forward and backward alike.

        Returns
        -------
        Tensor or None
            The mean loss of this replica's micro-batches where the last stage is; None elsewhere.

        Raises
        ------
        SplitError
            Naming process and micro-batch. After it the training goes on no more.
        """
        self._alive()
        batch = batch_for(self.place, args, kwargs, target, self._count, self._loss_fn)
        loss: Tensor | None = self._guarded(lambda: self._step(batch, update))
        return loss

    def check(self) -> None:
        """Compare the weights of forward and backward processes by hash now; every process of the stage calls
        it.

        Raises ``SplitError`` with code ``diverged`` in both.
        """
        self._guarded(self._weights.compare)

    @property
    def steps(self) -> int:
        """Calls of :meth:`step` so far."""
        return self._calls

    @property
    def updates(self) -> int:
        """Optimizer steps so far."""
        return self._updates

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The optimizer, in a backward process: for schedules of the learning rate."""
        return None if self._update is None else self._update.optimizer

    @property
    def gradient_norm(self) -> Tensor | None:
        """Norm of all gradients at the last update, unclipped; None if forward or without ``clip``."""
        return None if self._update is None else self._update.norm

    @property
    def moved_bytes(self) -> int:
        """Bytes of weights sent or received at the last update."""
        return self._weights.moved_bytes

    # Checkpoints.

    def save(self, folder: str | Path) -> None:
        """Write a checkpoint to a folder that all processes see; every process calls it, between two updates.

        Raises
        ------
        SplitError
            Where it cannot be written, in all processes.
        """
        if self._pending:
            raise SplitError(
                "save(…) must come after a step with update=True: gradients that wait for an update are not "
                "saved.",
                field="folder",
            )
        self._alive()
        self._checkpoint.save(folder, {"calls": self._calls, "updates": self._updates})

    def load(self, folder: str | Path) -> None:
        """Go on from a checkpoint; every process calls it.

        Raises
        ------
        SplitError
            Where it is none, or of another layout: then nothing has changed, and the training can go on.
        """
        self._alive()
        counts = self._checkpoint.load(folder)
        self._calls, self._updates, self._pending = counts["calls"], counts["updates"], 0
        if self._update is not None:
            self._update.clear()
        self._guarded(lambda: self._weights.move(None))

    def close(self) -> None:
        """End threads, and the process group that this training made. Safe twice."""
        was_closed, self._broken = self._broken == "it is closed", self._broken or "it is closed"
        self._mail.close()
        if was_closed or not self._owns_group or not distributed.is_initialized():
            return
        if self._broken == "it is closed":
            self._notes.leave(self.layout.world)
        distributed.destroy_process_group()

    def __enter__(self) -> SplitTraining:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[1] is not None:
            self._broken = self._broken or f"its script ended in an error ({str(error[1])[:300]})"
        self.close()

    def _step(self, batch: StepBatch, update: bool) -> Tensor | None:
        watch = self._tracer
        self._mail.watch = watch if watch is not None and watch.follows_passes else None
        losses = self._worker.run(batch, self._calls)
        self._calls += 1
        self._pending += 1
        if update:
            touched = () if self._update is None else self._update.apply(self._pending)
            self._pending = 0
            self._updates += 1
            self._weights.move(self._weights.changed(touched))
            if self._check_every and self._updates % self._check_every == 0:
                self._weights.compare()
        else:
            self._mail.drain()
        return mean_of(losses)

    def _alive(self) -> None:
        if self._broken is not None:
            raise SplitError(
                f"This training goes on no more: {self._broken}. Make another one, in processes that are all "
                "alive."
            )

    def _guarded(self, work: Callable[[], Any]) -> Any:
        self._alive()
        try:
            return work()
        except BaseException as error:
            self._broken = f"a step ended in an error ({str(error)[:300]})"
            raise
