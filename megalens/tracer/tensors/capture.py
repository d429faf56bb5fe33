"""The step path of a tensor, from its hook to the end of its step. Nothing here waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from ..coordinates import to_host
from ..passes import OUTSIDE, TRAINING, TRANSFORMED, MicroBatches, PassState, Unproven, in_transform
from ..points import FLAGS, ModelPoints, Shards, Source
from .batch import NO_ERROR, ROW_BYTES, Batch, FiredProbes, Row, RowMeta, TensorReading, reading_of
from .by_rows import TensorByRows, read_by_rows
from .compressors import StagePool, plan_of
from .pieces import Cut, cut_of
from .plan import FlagPlan, TracingPlan
from .probes import TensorProbe, Window, errors_of, in_rows, install_probes, local_piece, moments_of, shape_of
from .retained import RETAINED_BYTES, RetainedTensor, RetainedTensors, reason_of

_clock = time.perf_counter_ns
_MOST_METAS = 256


class Capture(MicroBatches):
    """Follows a plan in the training thread: hooks, rows of the step so far, and what all that cost.

    Parameters
    ----------
    points : ModelPoints
        The model and its trace points.
    warn : callable
        Takes a sentence for the user; never raises and never waits.
    hand_over : callable
        Takes away what has gathered, as :meth:`take` gives it, or the batch that it is given; never raises
        and never waits.
    """

    def __init__(
        self, points: ModelPoints, warn: Callable[[str], None], hand_over: Callable[[Batch | None], None]
    ) -> None:
        super().__init__()
        self._points = points
        self._coords = points.place
        self._warn = warn
        self._hand_over = hand_over
        self._remove: Callable[[], None] | None = None
        self.plan = TracingPlan()
        self.version = 0
        """Number of the plan, the same on every rank."""
        self.probes: list[TensorProbe] = []
        self.errors = 0
        self.spent_ns = 0
        self.scope = 0
        self.positions: int | None = None
        self.window: Window | None = None
        """Positions of the next passes that are reported; all when None."""
        self.holding = False
        """Whether small tensors wait for those of other passes, until :meth:`take_retained`."""
        self._retained = RetainedTensors()
        self._any_active = False
        self._renewed = False
        self._calls: dict[tuple[str, int], dict[Any, int]] = {}
        self._backwards: dict[Any, int] = {}
        self._order = 0
        self._samples_in_batch = 1
        self._rows: list[Row] = []
        self._nbytes = 0
        self._on_device = False
        self._stages = StagePool()
        self._stage = self._stages.take()

    # Set-up, between steps.

    def follow(self, plan: TracingPlan) -> None:
        """Trace what ``plan`` says from now on; an empty plan leaves no hook of ours on the model."""
        self.release()
        perturbs = plan.perturb is not None
        # What is computed again has to be perturbed as it was the first time.
        self.follows_backward = perturbs or any(flag.backward for flag in plan.flags.values())
        if perturbs or any(flag.layers for flag in plan.flags.values()):
            self.probes, self._remove = install_probes(self._points.roots, self._points.flags, plan, self)
        self.plan = plan
        if self.phase not in (TRAINING, OUTSIDE):
            # Changed inside of a phase, which goes on: what has fired so far is not known of these probes.
            self._activate(False)
            self._renewed = True

    def release(self) -> None:
        """Take every hook of ours off the model. Safe twice."""
        remove, self._remove = self._remove, None
        self.probes = []
        self.plan = TracingPlan()
        self._any_active = self.follows_backward = self._renewed = False
        self.in_forward = self.in_backward = False
        if remove is not None:
            remove()

    def reject(self, places: Collection[tuple[str, int]]) -> None:
        """Forget what was seen of flags in layers that turn out to be elsewhere; see no more there."""
        self._rows = [row for row in self._rows if (row.meta.flag, row.meta.layer) not in places]
        for probe in self.probes:
            probe.rejected = probe.rejected or (probe.flag.name, probe.layer) in places
        self._retained.drop(places)

    # Around steps and phases.

    def begin(self, step: int, phase: str, untraced: bool = False) -> None:
        """Start a step, or a phase; of an untraced step no tensor is taken."""
        if phase == TRAINING or step != self.step:
            self._order = 0
        if step != self.step:
            self._calls, self._backwards = {}, {}
        super().begin(step, phase)
        self._renewed = False
        self.scope += 1
        self._activate(untraced)

    def resume(self, saved: PassState, scope: int) -> None:
        """Go back to what a phase inside of a step had interrupted."""
        self.restore(saved)
        self.scope = scope
        self._activate(False)

    def _activate(self, untraced: bool) -> None:
        active = False
        for flag in self.plan.flags.values():
            if untraced:
                flag.active = False
            else:
                active |= flag.update(self.step, self.phase)
        self._any_active = active

    def pause(self) -> None:
        """Trace nothing until the next step."""
        if self._any_active:
            for flag in self.plan.flags.values():
                flag.active = False
        self._any_active = self._leaving_out = False
        self.unproven = None
        self.phase = OUTSIDE
        self.in_forward = self.in_backward = False

    def fired(self) -> FiredProbes | None:
        """Return how many probes fired in this step of those expected, and why the others did not."""
        if not self._any_active or self._renewed:
            return None
        expected = fired = 0
        left_out = self.left_out if self.phase == TRAINING else 0
        missing: dict[str, str] = {}
        scope = self.scope
        for probe in self.probes:
            if probe.rejected:
                continue
            if probe.flag.active and (probe.scope >= scope or not probe.source.sparse):
                expected += 1
                # A later scope is a phase inside of this step.
                if probe.scope >= scope:
                    fired += 1
                elif len(missing) < 50:
                    missing[probe.label] = reason_of(probe, scope, left_out)
        return FiredProbes(fired, expected, missing)

    def without_gradients(self) -> list[str]:
        """Return the flags whose gradients were asked for in this step, and of which none came."""
        if self.phase != TRAINING or self._renewed:
            return []
        asked: dict[str, bool] = {}
        for probe in self.probes:
            flag = probe.flag
            if flag.active and flag.forward and flag.backward and probe.scope >= self.scope:
                asked[flag.name] = asked.get(flag.name, False) or probe.returned >= self.scope
        return [FLAGS[name].title for name, came in asked.items() if not came]

    def told(self) -> frozenset[str]:
        """Return the names of probes of which a sentence was said in this step."""
        return frozenset(probe.label for probe in self.probes if probe.failed >= self.scope)

    def take(self) -> Batch:
        """Hand over what has gathered."""
        batch = Batch(
            self.step,
            self._rows,
            self._nbytes,
            version=self.version,
            order=self._order,
        )
        self._order += 1
        if self._stage.wanted:
            batch.stage, self._stage = self._stage, self._stages.take()
        if self._on_device:
            # The producer thread waits for it, not this one.
            batch.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            batch.ready.record()
            self._on_device = False
        self._rows, self._nbytes = [], 0
        return batch

    def take_retained(self) -> tuple[list[RetainedTensor], int]:
        """Hand over the tensors that wait for those of other passes, and their bytes."""
        nbytes = self._retained.nbytes
        return self._retained.take(), nbytes

    # Inside a forward pass.

    def forward_begins(self, root: int, training: bool) -> None:
        """Count a forward pass. What fires outside of one is recomputed for the backward pass, not new."""
        if self._any_active or self.follows_backward:
            super().forward_begins(root, training)
            if self.unproven is not None and self._any_active:
                # What it gives waits by itself.
                self._hand_over_now()

    def forward_ends(self, output: Any) -> None:
        """Hand over what a forward pass gave.

        The backward pass that follows needs no interpreter, so the producer thread has it for itself.
        """
        left_out, unproven = self._leaving_out, self.unproven
        if unproven is not None and self._any_active:
            # Kept by the graph of the pass: what is never backpropagated goes with it.
            unproven.rows = self.take()
        super().forward_ends(output)
        if not left_out and unproven is None and self._any_active:
            self._hand_over_now()

    def prove(self, unproven: Unproven, renumbered: bool) -> None:
        """Hand over what a pass gave that turned out to be training."""
        batch, unproven.rows = unproven.rows, None
        if batch is None:
            return
        if renumbered:
            batch.rows = [
                row._replace(meta=row.meta._replace(micro_batch=unproven.number)) for row in batch.rows
            ]
        # All ranks learn it at the same index among their batches.
        batch.order, self._order = self._order, self._order + 1
        if batch.rows:
            self._hand_over(batch)

    def _hand_over_now(self) -> None:
        if self._rows:
            started = _clock()
            self._hand_over(None)
            self.spent_ns += _clock() - started
        else:
            # Ranks that hold other pieces have rows where this one has none: they all count alike.
            self._order += 1

    def add(self, probe: TensorProbe, tensor: Any) -> None:
        """Record what one probe saw. Never raises: an error is counted and reported once."""
        if probe.rejected:
            return
        if in_transform(tensor):
            probe.why, probe.failed = "it was called inside of torch.func", self.scope
            self._warn(TRANSFORMED)
            return
        if self.holding and probe.plain and self._can_wait(probe.flag, tensor):
            started = _clock()
            probe.scope = self.scope
            self._retained.add(
                probe, tensor, self.step, self.micro_batch, self.phase, self._called(probe, self._calls_now())
            )
            self.spent_ns += _clock() - started
            return
        if not isinstance(tensor, Tensor | TensorByRows) and probe.source.computed is None:
            probe.why, probe.failed = f"it gave no tensor{_hint(probe)}", self.scope
            self._warn(f"{probe.label} gave no tensor{_hint(probe)}.")
            return
        calls = self._calls_now()
        call = self._called(probe, calls)
        if probe.flag.backward:
            self._await_gradient(probe, tensor, self.unproven or Unproven(self.micro_batch, calls), call)
        if probe.flag.forward:
            self._keep(probe, tensor, self.micro_batch, "forward", probe.rows, call)

    def _calls_now(self) -> dict[Any, int]:
        """Return how often each probe has seen its tensor in the forward pass that goes on."""
        if self.unproven is not None:
            return self.unproven.calls
        return self._calls.setdefault((self.phase, self.micro_batch), {})

    @staticmethod
    def _called(probe: TensorProbe, calls: dict[Any, int]) -> int:
        """Count a call, and return its number."""
        call = calls.get(probe, 0)
        calls[probe] = call + 1
        return call

    def _backward_call(self, probe: TensorProbe, of: Unproven, call: int | None) -> int:
        """Return the number of a gradient: that of its call, in later backward passes behind all calls.

        What does not know its call comes in the order of the backward pass.
        """
        calls = max(1, of.calls.get(probe, 1))
        which = probe, self.phase, of.number, call
        before = self._backwards.get(which, 0)
        self._backwards[which] = before + 1
        if call is None:
            return before // calls * calls + calls - 1 - before % calls
        return before * calls + call

    def gradient(self, probe: TensorProbe, gradient: Tensor) -> None:
        """Record what compiled code backpropagates to a probed tensor. Never raises."""
        if self.in_backward:
            of = Unproven(self.micro_batch, self._calls.get((self.phase, self.micro_batch)))
            call = self._backward_call(probe, of, None)
            self._keep(probe, gradient, self.micro_batch, "backward", probe.rows, call)

    def recomputed(self, probe: TensorProbe, tensor: Any) -> None:
        """Wait for the gradient of a tensor that activation checkpointing recomputes.

        Only the second one is part of the graph.
        """
        if isinstance(tensor, Tensor):
            calls = self._calls.get((self.phase, self.micro_batch))
            self._await_gradient(probe, tensor, Unproven(self.micro_batch, calls))

    def _await_gradient(
        self, probe: TensorProbe, tensor: Tensor, of: Unproven, call: int | None = None
    ) -> None:
        # Without a graph being built a tensor can say that it needs a gradient and be no part of one: what
        # checkpointing computes the first time.
        if not (tensor.requires_grad and torch.is_grad_enabled()):
            return
        scope, rows = self.scope, probe.rows

        def arrived(gradient: Tensor) -> None:
            # A gradient of an earlier step or of another phase is not what was asked for.
            if probe.flag.active and self.scope == scope:
                number = self._backward_call(probe, of, call)
                self._keep(probe, gradient, of.number, "backward", rows, number)

        tensor.register_hook(arrived)  # type: ignore[no-untyped-call]

    def _keep(
        self,
        probe: TensorProbe,
        seen: Any,
        micro_batch: int,
        side: str,
        rows: tuple[int, int] | None,
        call: int,
    ) -> None:
        if probe.rejected:
            return
        started = _clock()
        if side == "backward":
            probe.returned = self.scope
        try:
            compute = probe.source.computed
            if compute is not None:
                with torch.no_grad():
                    seen = compute(seen)
            key = (micro_batch, self.phase, side, rows, call)
            by_rows = isinstance(seen, TensorByRows)
            odd = probe.flag.measured or self.window is not None or by_rows
            reading = None if odd else probe.readings.get(key)
            if reading is not None and reading.fits(seen):
                probe.scope = self.scope
                self._rows += reading.rows(seen, self._stage)
                self._nbytes += reading.nbytes
            elif by_rows and self.window is None and len(self._coords.tp_ranks) == 1:
                self._add_by_rows(probe, seen, micro_batch, side, call)
            elif seen is not None:
                window = self.window
                if by_rows:
                    seen, window = seen.rows_of(window)
                made = self._add(probe, seen, rows, micro_batch, side, call, window)
                if made is not None and not odd:
                    if len(probe.readings) >= _MOST_METAS:
                        probe.readings.clear()
                    probe.readings[key] = made
        except Exception as error:  # A tracer's fault must not end a training step.
            self.errors += 1
            probe.why, probe.failed = str(error)[:300] or type(error).__name__, self.scope
            self._warn(f"{probe.label} could not be traced: {probe.why}")
        self.spent_ns += _clock() - started

    def _add(
        self,
        probe: TensorProbe,
        seen: Tensor,
        rows: tuple[int, int] | None,
        micro_batch: int,
        side: str,
        call: int,
        window: Window | None,
    ) -> TensorReading | None:
        """Record a tensor; return how later ones of the same layout are read, where that can be prepared."""
        source, flag = probe.source, probe.flag
        data, known = local_piece(in_rows(seen, rows, source.parts).detach())
        if source.sparse and data.ndim == 2:
            data = data.unsqueeze(0)
        if data.ndim < 2 and not source.like_ids:
            # Ids of one sample; else one number, for all samples or for each.
            data = data.reshape(1, -1) if flag.name == "InputTokens" else data.reshape(-1, 1, 1)
        if source.sequence_first:
            data = data.transpose(0, 1)
        data = self._batched(source, data)
        if window is not None:
            if source.sparse:
                # Which of its tokens are new is not known.
                return None
            data = window.of(data)
        samples = data.shape[0]
        if flag.name == "InputTokens":
            self._samples_in_batch = samples
        # Selected before anything is computed: what is left out costs nothing.
        chosen = data if flag.samples is None or flag.samples >= samples else data[: flag.samples]
        cuts = probe.cuts.get(data.shape)
        if cuts is None:
            if len(probe.cuts) >= _MOST_METAS:
                probe.cuts.clear()
            cuts = probe.cuts[data.shape] = self._cuts(probe, data, chosen, known)
        probe.scope = self.scope
        if not self._coords.leads and all(cut.join is None for cut in cuts):
            # The leader has all of it.
            return TensorReading(seen)
        if self.positions is None and side == "forward" and not source.sparse:
            self.positions = data.shape[2 if data.ndim == 4 else 1] * (
                cuts[0].ranks if cuts[0].axis == 1 and data.ndim == 3 else 1
            )
        key = (micro_batch, self.phase, side, data.shape, call)
        metas = probe.metas.get(key)
        views = source.views(chosen)
        plan = plan_of([cut.kernel for cut in cuts], views, chosen.ndim)
        parts = views if plan is not None and not flag.measured else source.cut(chosen)
        tiles = None if plan is None else plan.tiles(self._stage)
        outputs = (
            [cut.kernel(part, probe.layer) for cut, part in zip(cuts, parts, strict=True)]
            if plan is None or tiles is None
            else [
                torch.from_numpy(made.reshape(shape)) for made, shape in zip(tiles, plan.shapes, strict=True)
            ]
        )
        measured = parts if chosen is data else source.views(data)
        moments = moments_of(measured)
        if metas is None:
            shapes = [tuple(output.shape) for output in outputs]
            metas = self._describe(
                probe, key, cuts, [shape_of(view, data.ndim) for view in views], shapes, samples
            )
        errors: Sequence[Tensor | float] = [NO_ERROR] * len(parts)
        if flag.measured:
            errors = [
                to_host(error) if error.is_cuda else error for error in errors_of(probe, parts, outputs, cuts)
            ]
        if outputs[0].is_cuda:
            self._on_device = True
        values = tiles if tiles is not None else [to_host(each) if each.is_cuda else each for each in outputs]
        made = list(map(Row, metas, values, moments, errors))
        self._rows += made
        nbytes = sum([row.values.nbytes + ROW_BYTES for row in made])
        self._nbytes += nbytes
        return reading_of(seen, plan, measured, metas, nbytes)

    def _add_by_rows(
        self, probe: TensorProbe, seen: TensorByRows, micro_batch: int, side: str, call: int
    ) -> None:
        """Record a tensor of which nobody has the whole."""
        flag, like = probe.flag, seen.like()
        samples = len(like) if flag.samples is None else min(len(like), flag.samples)
        cuts = self._cuts(probe, like, like[:samples], None)
        values, moments, first = read_by_rows(seen, flag.compressor, flag.kernel, probe.layer, samples)
        probe.scope = self.scope
        if self.positions is None:
            self.positions = seen.shape[2]
        key = (micro_batch, self.phase, side, seen.shape, call)
        metas = probe.metas.get(key) or self._describe(
            probe, key, cuts, [seen.shape], [tuple(values.shape)], len(like)
        )
        error: Tensor | float = NO_ERROR
        if flag.measured:
            (error,) = errors_of(probe, [first[0]], [first[1]], cuts)
        if values.is_cuda:
            self._on_device = True
            values, error = to_host(values), to_host(error) if isinstance(error, Tensor) else error
        row = Row(metas[0], values, moments[0], error)
        self._rows.append(row)
        self._nbytes += row.values.nbytes + ROW_BYTES

    def _can_wait(self, flag: FlagPlan, tensor: Any) -> bool:
        """Return whether a tensor can wait for others: ``[B, S, *]`` as it is, complete, and small."""
        return (
            type(tensor) is Tensor
            and tensor.ndim > 2
            and tensor.is_cpu
            and tensor.nbytes <= RETAINED_BYTES
            and self.window is None
            and self.positions is not None
            and not (flag.measured or self._retained.full)
            and len(self._coords.tp_ranks) == 1
        )

    def _cuts(self, probe: TensorProbe, data: Tensor, chosen: Tensor, known: Shards | None) -> list[Cut]:
        """Decide what is done with each part of a tensor of this shape."""
        source, flag, coords = probe.source, probe.flag, self._coords
        shards = known or (source.shards(data) if callable(source.shards) else source.shards)
        return [
            cut_of(
                shards,
                shape_of(view, chosen.ndim),
                features,
                flag.compressor,
                flag.kernel,
                flag.vectors,
                coords.tp,
                len(coords.tp_ranks),
                flag.error,
            )
            for view, features in zip_longest(source.views(chosen), source.features)
        ]

    def _describe(
        self,
        probe: TensorProbe,
        key: Any,
        cuts: Sequence[Cut],
        of_parts: Sequence[tuple[int, ...]],
        shapes: Sequence[tuple[int, ...]],
        samples: int,
    ) -> list[RowMeta]:
        micro_batch, phase, side, _, call = key
        metas = [
            RowMeta(
                micro_batch,
                phase,
                probe.layer,
                probe.flag.name,
                name,
                probe.flag.text,
                cut.full_shape((samples, *of_part[1:])),
                shape,
                side,
                cut.join,
                call,
            )
            for name, cut, of_part, shape in zip(probe.source.parts, cuts, of_parts, shapes, strict=True)
        ]
        if len(probe.metas) >= _MOST_METAS:
            probe.metas.clear()
        probe.metas[key] = metas
        return metas

    def _batched(self, source: Source, data: Tensor) -> Tensor:
        if not source.like_ids:
            return data
        if data.ndim == 1:
            data = data.unsqueeze(0)
        elif data.ndim == 3:
            # In time, height and width, as models that see have them.
            data = data[0]
        return data.expand(self._samples_in_batch, -1) if data.shape[0] == 1 else data


def _hint(probe: TensorProbe) -> str:
    if probe.flag.name == "RawAttentionScore_mat_mul":
        return ": the attention returns no probabilities. Set attn_implementation='eager' or its like"
    return ""
