"""A schedule for ``torch.distributed.pipelining`` whose order is a plan, or what has arrived."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.microbatch import merge_chunks

from .adaptive import Compare
from .board import Board, Together
from .chunk import StageChunk
from .connections import CopySum, check_given_shapes, expected_messages, mirrored, neighbours
from .errors import PipelineError
from .executor import Done, Executor
from .order_control import OrderControl, PipelineInstrument, Planner
from .orders import FixedOrder, GreedyOrder, GreedyRule, IOrder, OrderChoice, name_of
from .plan_type import Placement, Plan
from .planner import compare_plans, plan_of_name
from .stages.inbox import Inbox, Key, StepBatch, cut_batch
from .stages.link import connect


class DynamicSchedule:
    """Runs a pipeline's steps as torch's schedules do, in any order that is right, and changes the order
    between two steps.

    Parameters
    ----------
    stages : PipelineStage, nn.Module, or sequence of them
        This rank's, by chunk: of a ``PipelineStage`` its module and group are taken; modules are taken as the
        virtual stages that ``placement`` gives this rank.
    n_microbatches : int
        Micro-batches of a step.
    order : str, mapping, path, or plan
        ``"greedy"``: backward passes first, then forward passes, by what has arrived. ``"adaptive"``:
        whatever was fastest, by its own measurements. The name of a schedule that the planner makes
        (``"1f1b"``, ``"zb_h1"``, …), a plan, or the path of its JSON file. Where ranks disagree, the first
        one decides.
    loss_fn : callable, optional
        Takes an output and its part of ``target`` and returns a scalar. Without it there are forward passes
        only.
    placement : str
        Where virtual stages lie: ``loop``, ``v`` or ``two_way``.
    group : torch.distributed.ProcessGroup, optional
        The pipeline's ranks, by stage; that of the stages, or all ranks.
    peers : sequence of int, or torch.distributed.ProcessGroup, optional
        Ranks that hold the same stage and talk to each other in its passes (tensor, data or context
        parallel), this one among them. They do dynamic orders alike, and change orders at one step.
    args_chunk_spec, kwargs_chunk_spec
        How arguments are cut into micro-batches, as torch's schedules take it.
    scale_grads : bool
        Whether gradients are those of the mean of the micro-batches' losses, as of torch's schedules; of
        their sum otherwise.
    prefer, in_flight : str, int or None
        Of ``greedy``: ``breadth`` or ``depth`` first of what is ready; micro-batches that may be under way.
    static_shapes : bool
        Whether what crosses between two stages has the same shape in every micro-batch and step. Otherwise
        each message says its shape.
    ahead : int
        Receives that may be posted before what came is used, on each link.
    timeout : float
        Seconds to wait for another rank before the step ends in a ``PipelineError``.
    device : torch.device, optional
        Where modules run; that of the first parameter, or the CPU.
    tracer : megalens.Tracer, optional
        Times each operation and message (``timeline="phases"``), and lets viewers change the order:
        ``run.configure(pipeline="breadth_first")``.
    planner : callable, optional
        Makes a plan of a schedule's name and a layout, instead of the engine's planner.
    compare : callable, optional
        Simulates plans for ``adaptive``, instead of the engine's planner:
        :data:`megalens.instruments.pipeline.adaptive.Compare`.

    Raises
    ------
    PipelineError
        Before anything runs: what does not fit.
    """

    def __init__(
        self,
        stages: Any,
        n_microbatches: int,
        order: Any = "1f1b",
        loss_fn: Callable[[Any, Any], Tensor] | None = None,
        *,
        placement: str = "loop",
        group: Any = None,
        peers: Any = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        scale_grads: bool = True,
        prefer: str = "breadth",
        in_flight: int | None = None,
        static_shapes: bool = True,
        ahead: int = 4,
        timeout: float = 300.0,
        device: torch.device | None = None,
        tracer: Any = None,
        planner: Planner | None = None,
        compare: Compare | None = None,
    ) -> None:
        given = list(stages) if isinstance(stages, (list, tuple)) else [stages]
        if not given:
            raise PipelineError("stages must be at least one stage or module, got none.")
        group = (
            group
            if group is not None
            else next((each.group for each in given if not isinstance(each, nn.Module)), None)
        )
        ranks = distributed.get_process_group_ranks(group if group is not None else distributed.group.WORLD)
        self.rank = distributed.get_rank()
        if self.rank not in ranks:
            raise PipelineError(f"Rank {self.rank} is none of the pipeline's ranks {ranks}.")
        self.stage = ranks.index(self.rank)
        """This rank's stage, counted from 0."""
        self.layout = Placement(placement, len(ranks), len(given), n_microbatches)
        """Stages, chunks, micro-batches and placement."""
        self._chunks = _chunks(given, self.layout, self.stage, device, group)
        self._loss_fn, self._scale = loss_fn, scale_grads
        self._specs = args_chunk_spec, kwargs_chunk_spec
        for name, value, least in (("ahead", ahead, 1), ("timeout", timeout, 0)):
            if (
                not isinstance(value, (int, float))
                or not value >= least
                or (name == "timeout" and value == 0)
            ):
                raise PipelineError(
                    f"{name} must be a number {'above 0' if name == 'timeout' else 'from 1'}, got "
                    f"{value!r:.80}."
                )
        together = _ranks(peers)
        if together and self.rank not in together:
            raise PipelineError(f"peers must have this rank, {self.rank}, among them, got {together}.")
        reduces = any(each.reduces for each in self._chunks.values())
        self._control = OrderControl(
            self.layout,
            self.stage,
            GreedyRule(prefer, in_flight),
            not together and reduces,
            planner or plan_of_name,
            compare or compare_plans,
        )
        self._control.checked(order)
        decider = None
        if self.stage == 0:
            decider = min(together) if together else self.rank
        board = Board(ranks[0], decider, self.rank, timeout)
        check_given_shapes(board, self.layout, self._chunks)
        self._inbox = Inbox()
        where = next(iter(self._chunks.values())).stage.device
        self._links = connect(
            ranks,
            self.stage,
            neighbours(self.layout, self.stage),
            self._inbox,
            where,
            ahead=ahead,
            timeout=timeout,
            error=PipelineError,
            makes="DynamicSchedule",
        )
        self._executor = Executor(
            self.layout,
            self.stage,
            self.rank,
            self._chunks,
            self._links,
            self._inbox,
            timeout=timeout,
            headers=not static_shapes,
            together=Together(together, timeout) if len(together) > 1 else None,
        )
        self._copies = CopySum(
            self.layout, self.stage, self._chunks, self._executor, mirrored(self.layout, self.stage)
        )
        self._broken: str | None = None
        self._control.start(board, order)
        if tracer is not None:
            self._executor.watch = tracer
            tracer.attach(PipelineInstrument(self._control))
        # Of the running order, with and without backward passes: this rank's order, its messages, split
        # passes.
        self._made: dict[bool, tuple[IOrder, Mapping[int, Sequence[Key | None]], bool]] = {}

    # Steps.

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Run one step: all micro-batches forward and backward; gradients are added to those of the
        parameters.

        Parameters
        ----------
        *args
            The model's input, on ranks with its first virtual stage.
        target : tensor or pytree, optional
            What the loss compares with, on ranks with its last one.
        losses : list, optional
            Is filled with the loss of each micro-batch, there.
        return_outputs : bool
            Whether outputs are kept.
        **kwargs
            What this rank's modules are called with besides.

        Returns
        -------
        Any
            On a rank with the last virtual stage the outputs of its micro-batches, joined along the first
            dimension; None elsewhere.

        Raises
        ------
        PipelineError
            With operation, stage and micro-batch where one is at fault. After it the schedule runs no more.
        """
        if self._loss_fn is None:
            raise PipelineError(
                "step(…) needs the loss_fn that the schedule is made with; eval(…) does without."
            )
        batch = self._cut(True, args, kwargs, target, return_outputs)
        if self._control.begin_step():
            self._made.clear()
        began = time.perf_counter_ns()
        outputs = self._run(True, batch, losses)
        self._control.end_step((time.perf_counter_ns() - began) / 1e6, self.done)
        return outputs

    def eval(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Run the forward passes alone, without gradients; as :meth:`step` otherwise."""
        with torch.no_grad():
            return self._run(False, self._cut(False, args, kwargs, target, return_outputs), losses)

    @property
    def done(self) -> list[Done]:
        """What this rank did in the last step: operations, with their times."""
        return self._executor.done

    # The order.

    def use(self, order: Any, why: str = "asked for") -> None:
        """Change the order, at the beginning of the same step on all ranks: the next one but one.

        The pipeline's first rank decides, so that others may call it alike or not at all. The name of a
        schedule is planned in another thread, and in force once there is a plan.

        Parameters
        ----------
        order : str, mapping, path, or plan
            As of the schedule.
        why : str
            The reason in :attr:`decisions`.

        Raises
        ------
        PipelineError
            For a wrong plan, or one of another pipeline; then nothing changes.
        """
        self._control.use(order, why)

    @property
    def order(self) -> OrderChoice:
        """What runs: a :class:`Plan` or a :class:`GreedyRule`."""
        return self._control.order

    @property
    def running(self) -> str:
        """Short name of the running order."""
        return name_of(self.order)

    @property
    def decisions(self) -> list[str]:
        """Changes of the order and their reasons; the newest last."""
        return self._control.decisions

    def close(self) -> None:
        """End the threads of the links. Safe twice."""
        self._broken = self._broken or "it is closed"
        for link in self._links.values():
            link.close()

    # Inside.

    def _cut(self, training: bool, args: Any, kwargs: Any, target: Any, return_outputs: bool) -> StepBatch:
        """Return a step's data by micro-batch; what does not fit is refused before anything runs."""
        if self._broken is not None:
            raise PipelineError(
                f"This schedule runs no more: {self._broken}. Make another one, in processes that are all "
                "alive."
            )
        firsts = any(each.first for each in self._chunks.values())
        lasts = any(each.last for each in self._chunks.values())
        if firsts != bool(args) and not firsts:
            raise PipelineError(
                "Only ranks with the first virtual stage take the model's input; call step() without it here."
            )
        batch = cut_batch(
            args,
            kwargs,
            target,
            self.layout.micro_batches,
            args_spec=self._specs[0],
            kwargs_spec=self._specs[1],
            loss_fn=self._loss_fn,
            scale=self._scale,
            keep_outputs=return_outputs,
            error=PipelineError,
        )
        if lasts and training and batch.loss is None:
            raise PipelineError("target must be given on a rank with the last virtual stage, got None.")
        return batch

    def _run(self, training: bool, batch: StepBatch, losses: list[Tensor] | None) -> Any:
        lasts = [each for each in self._chunks.values() if each.last]
        order, expected, split = self._prepared(training)
        for each in self._chunks.values():
            each.begin(split)
        try:
            self._copies.begin(training)
            self._executor.run(order, batch, expected)
            self._copies.end(training)
        except BaseException as error:
            self._broken = f"a step ended in an error ({str(error)[:300]})"
            raise
        if losses is not None and lasts:
            losses[:] = [
                loss
                for each in lasts
                for number in self.layout.passing(each.virtual)
                if (loss := each.loss(number)) is not None
            ]
        outputs = [each.outputs[number] for each in lasts for number in sorted(each.outputs)]
        for each in self._chunks.values():
            each.clear()
        return merge_chunks(outputs, None) if outputs else None

    def _prepared(self, training: bool) -> tuple[IOrder, Mapping[int, Sequence[Key | None]], bool]:
        found = self._made.get(training)
        if found is None:
            order, split = self.order, False
            made: IOrder
            if isinstance(order, Plan):
                operations = order.operations(self.stage)
                split = any(each.kind == "I" for each in operations)
                made = FixedOrder(
                    operations if training else [each for each in operations if each.kind == "F"]
                )
            else:
                made = GreedyOrder(self.layout, tuple(self._chunks), order.prefer, order.in_flight, training)
            expected = expected_messages(self.layout, self.stage, order, training, tuple(self._links))
            found = self._made[training] = made, expected, split
        return found


def _chunks(
    given: Sequence[Any], layout: Placement, stage: int, device: Any, group: Any
) -> dict[int, StageChunk]:
    chunks = {}
    for virtual, each in zip(layout.held_by(stage), given, strict=True):
        if isinstance(each, nn.Module):
            if device is None:
                device = next((parameter.device for parameter in each.parameters()), torch.device("cpu"))
            each = PipelineStage(each, virtual, layout.virtual_stages, device, group=group)
        elif each.stage_index != virtual or each.num_stages != layout.virtual_stages:
            raise PipelineError(
                f"Stage {stage} holds virtual stages {layout.held_by(stage)} of {layout.virtual_stages} "
                f"(placement {layout.kind}), in this order; got a PipelineStage {each.stage_index} of "
                f"{each.num_stages}.",
                code="shape",
                stage=stage,
            )
        each.has_backward = True
        chunks[virtual] = StageChunk(
            each, virtual, layout.is_first(virtual), layout.is_last(virtual), len(layout.passing(virtual))
        )
    return chunks


def _ranks(peers: Any) -> tuple[int, ...]:
    if peers is None:
        return ()
    if isinstance(peers, distributed.ProcessGroup):
        peers = distributed.get_process_group_ranks(peers)
    return tuple(sorted(int(each) for each in peers))
