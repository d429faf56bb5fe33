"""The steps of both roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ..errors import SplitError
from ..stages.inbox import Key, StepBatch
from .layout import SplitLayout
from .mail import Mail

_WORDS = {"F": "forward pass", "R": "recomputation", "B": "backward pass"}

_Saved = tuple[Sequence[Any], Sequence[Any]]
"""Inputs and outputs of the stage for a recomputed micro-batch."""


@contextmanager
def seeded(
    seed: int, step: int, micro_batch: int, stage: int, device: torch.device | str = "cpu"
) -> Iterator[None]:
    """Have torch draw, inside, the random numbers of one pass; its generators are as before afterwards.

    A split training does so around every pass. Ordinary training that does the same drops out the same
    elements.

    Parameters
    ----------
    seed : int
        Of the training.
    step : int
        Calls of ``step`` before this one.
    micro_batch : int
        Counted over all replicas: those of replica 1 come after those of replica 0.
    stage : int
        Pipeline stage.
    device : torch.device or str
        Where the pass runs. Devices of different kinds draw different numbers from the same seed.
    """
    where = torch.device(device)
    several = [where] if where.type == "cuda" else []
    words = f"{seed} {step} {micro_batch} {stage}".encode()
    # 63 bits: what every generator takes.
    number = int.from_bytes(blake2b(words, digest_size=8).digest(), "big") >> 1
    with torch.random.fork_rng(several):
        torch.default_generator.manual_seed(number)
        for each in several:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(number)
        yield


class SplitWorker:
    """One process of a split training; ``micro_batches`` are of a step."""

    def __init__(
        self,
        layout: SplitLayout,
        module: nn.Module,
        mail: Mail,
        micro_batches: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.place = mail.place
        self._module, self._mail = module, mail
        self._count, self._seed, self._device = micro_batches, seed, device
        here = self.place
        at = here.tensor if here.role == "forward" else here.tensor // layout.share
        self._source = None if here.first else layout.rank_of("forward", here.stage - 1, here.replica, at)
        """Rank that sends activations."""

    def run(self, batch: StepBatch, call: int) -> list[Tensor]:
        """Run a step's passes and return the known losses; ``call`` counts steps from 0."""
        raise NotImplementedError

    def _expected_activations(self) -> dict[int, list[tuple[str, int, int]]]:
        if self._source is None:
            return {}
        return {self._source: [("F", self.place.stage, number) for number in range(self._count)]}

    def _inputs(self, batch: StepBatch, number: int) -> tuple[Any, ...]:
        if self._source is None:
            return batch.args[number]
        what = f"the activations of micro-batch {number}"
        return self._mail.take(("F", self.place.stage, number), self._source, what)

    def _operate(self, kind: str, number: int, work: Callable[[], Any]) -> Any:
        """Run a pass; an error in it names it."""
        watch = self._mail.watch
        if watch is not None:
            watch.operation_begins("backward" if kind == "B" else "forward", 0, number)
        try:
            return work()
        except SplitError:
            raise
        except Exception as error:
            operation = f"{self.place.stage}{kind}{number}"
            raise self.place.error(
                f"{self.place.name.capitalize()} could not do {operation}, the {_WORDS[kind]} of "
                f"micro-batch {number}: {type(error).__name__}: {str(error)[:400]}",
                code="failed",
                operation=operation,
                micro_batch=number,
            ) from error
        finally:
            if watch is not None:
                watch.operation_ends()

    def _seeded(self, call: int, number: int) -> AbstractContextManager[None]:
        here = self.place
        return seeded(self._seed, call, here.replica * self._count + number, here.stage, self._device)

    def _outputs(self, output: Any, number: int) -> Sequence[Tensor]:
        outputs = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        for each in outputs:
            if not isinstance(each, Tensor) or isinstance(each, DTensor):
                raise self.place.error(
                    f"Stage {self.place.stage} gave a {type(each).__name__} in micro-batch {number}: "
                    "between stages only plain tensors, or a tuple of them, can be sent. Of a DTensor have "
                    "the layer give the local one (use_local_output=True).",
                    code="shape",
                    micro_batch=number,
                )
        return outputs


def takes_gradient(tensor: Any) -> bool:
    """Whether a gradient comes back for an output: both ends derive it from the tensor."""
    return isinstance(tensor, Tensor) and (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def device_of(module: nn.Module) -> torch.device:
    return next((each.device for each in module.parameters()), torch.device("cpu"))


def mean_of(losses: Sequence[Tensor]) -> Tensor | None:
    """Return the mean of some losses, in float32 at least; None of none."""
    if not losses:
        return None
    every = torch.stack(list(losses))
    return every.to(torch.promote_types(every.dtype, torch.float32)).mean()


class BackwardProcess(SplitWorker):
    """Runs ``R0 … R(k-1) B0 Rk B1 …`` with k = ``ahead``: micro-batches recomputed before their gradients
    come.

    ``accumulated`` is called after every backward pass.
    """

    def __init__(self, layout: SplitLayout, *given: Any, ahead: int, accumulated: Callable[[], None]) -> None:
        super().__init__(layout, *given)
        here = self.place
        self._up = layout.rank_of("backward", here.stage - 1, here.replica, here.tensor)
        self._down = layout.rank_of("backward", here.stage + 1, here.replica, here.tensor)
        self._ahead, self._accumulated = min(ahead, self._count), accumulated
        self._saved: dict[int, _Saved] = {}

    def run(self, batch: StepBatch, call: int) -> list[Tensor]:
        losses: list[Tensor] = []
        self._saved.clear()
        expected: dict[int, list[Key]] = self._expected_activations()
        if self._down is not None:
            expected[self._down] = [("B", self.place.stage, number) for number in range(self._count)]
        self._mail.begin(expected)
        for number in range(self._ahead):
            self._recompute(batch, call, number, losses)
        for number in range(self._count):
            self._go_back(batch, number)
            if number + self._ahead < self._count:
                self._recompute(batch, call, number + self._ahead, losses)
        return losses

    def _recompute(self, batch: StepBatch, call: int, number: int, losses: list[Tensor]) -> None:
        inputs = self._inputs(batch, number)

        def work() -> None:
            with torch.enable_grad(), self._seeded(call, number):
                given = inputs
                if self._source is not None:
                    given = tuple(each.requires_grad_() if takes_gradient(each) else each for each in inputs)
                output = self._module(*given, **batch.kwargs[number])
                if self.place.last:
                    assert batch.loss is not None
                    loss = batch.loss(output, number)
                    losses.append(loss.detach())
                    outputs: Sequence[Any] = (loss,)
                else:
                    outputs = self._outputs(output, number)
                    taking = [each for each in outputs if takes_gradient(each)]
                    self._mail.knows(("B", self.place.stage), taking)
            self._saved[number] = given, outputs

        self._operate("R", number, work)
        self._mail.post_ahead()

    def _go_back(self, batch: StepBatch, number: int) -> None:
        gradients: Sequence[Tensor] = ()
        if self._down is not None:
            what = f"the gradient of micro-batch {number}"
            gradients = self._mail.take(("B", self.place.stage, number), self._down, what)

        def work() -> list[Tensor]:
            inputs, outputs = self._saved.pop(number)
            if self.place.last:
                pairs = [(outputs[0], torch.full_like(outputs[0], batch.scale))]
            else:
                taking = [each for each in outputs if takes_gradient(each)]
                pairs = list(zip(taking, gradients, strict=True))
            # A stage may have nothing that takes a gradient, or give what none depends on.
            pairs = [pair for pair in pairs if pair[0].requires_grad]
            if pairs:
                torch.autograd.backward([each for each, _ in pairs], [each for _, each in pairs])
            self._accumulated()
            if self._up is None:
                return []
            taken = [each for each in inputs if takes_gradient(each)]
            return [torch.zeros_like(each) if each.grad is None else each.grad for each in taken]

        found = self._operate("B", number, work)
        if self._up is not None:
            self._mail.give(("B", self.place.stage - 1, number), self._up, found)
        self._mail.post_ahead()


# A forward process: passes without autograd, whose outputs go to the next stage's processes.
class ForwardProcess(SplitWorker):
    """Runs ``F0 F1 …``. A micro-batch's data are freed once they are sent."""

    def __init__(self, layout: SplitLayout, *given: Any) -> None:
        super().__init__(layout, *given)
        here = self.place
        onward = layout.rank_of("forward", here.stage + 1, here.replica, here.tensor)
        self._sinks = [] if onward is None else [onward]
        self._sinks += layout.backward_of(here, here.stage + 1)

    def run(self, batch: StepBatch, call: int) -> list[Tensor]:
        losses: list[Tensor] = []
        self._mail.begin(self._expected_activations())
        with torch.no_grad():
            for number in range(self._count):
                inputs = self._inputs(batch, number)

                def work(number: int = number, inputs: tuple[Any, ...] = inputs) -> Any:
                    with self._seeded(call, number):
                        output = self._module(*inputs, **batch.kwargs[number])
                        if self.place.last and batch.loss is not None:
                            losses.append(batch.loss(output, number).detach())
                    return output

                output = self._operate("F", number, work)
                if self._sinks:
                    outputs = self._outputs(output, number)
                    for rank in self._sinks:
                        self._mail.give(("F", self.place.stage + 1, number), rank, outputs)
                self._mail.post_ahead()
        return losses
