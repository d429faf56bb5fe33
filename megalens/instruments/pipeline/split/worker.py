"""What both roles do in a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ..stages.cut_batch import StepBatch
from .errors import SplitError
from .layout import SplitLayout
from .mail import Mail

__all__ = ["SplitWorker", "device_of", "mean_of", "takes_gradient", "seeded"]

_WORDS = {"F": "forward pass", "R": "recomputation", "B": "backward pass"}


@contextmanager
def seeded(
    seed: int, step: int, micro_batch: int, stage: int, device: torch.device | str = "cpu"
) -> Iterator[None]:
    """Have torch draw, inside, the random numbers of one pass; its generators are as before afterwards.

    A split training does so around every pass. Ordinary training that does the same drops out the same elements.

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
    """One process at work.

    Parameters
    ----------
    layout : SplitLayout
        Who does what.
    module : torch.nn.Module
        The stage.
    mail : Mail
        Messages of this process.
    micro_batches : int
        Of a step.
    seed : int
        Of random numbers.
    device : torch.device
        Where the module runs.
    """

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
        """Who sends activations."""

    def run(self, batch: StepBatch, call: int) -> list[Tensor]:
        """Do a step's passes and return the losses that are known here; ``call`` counts steps from 0."""
        raise NotImplementedError

    def _expected_activations(self) -> dict[int, list[tuple[str, int, int]]]:
        if self._source is None:
            return {}
        return {self._source: [("F", self.place.stage, number) for number in range(self._count)]}

    def _inputs(self, batch: StepBatch, number: int) -> tuple[Any, ...]:
        """Return what the stage is called with."""
        if self._source is None:
            return batch.args[number]
        what = f"the activations of micro-batch {number}"
        return self._mail.take(("F", self.place.stage, number), self._source, what)

    def _operate(self, kind: str, number: int, work: Callable[[], Any]) -> Any:
        """Do a pass; what goes wrong in it names it."""
        watch = self._mail.watch
        if watch is not None:
            watch.operation_begins("backward" if kind == "B" else "forward", 0, number)
        try:
            return work()
        except SplitError:
            raise
        except Exception as error:
            operation = f"{self.place.stage}{kind}{number}"
            raise SplitError(
                f"{self.place.name.capitalize()} could not do {operation}, the {_WORDS[kind]} of micro-batch {number}: {type(error).__name__}: {str(error)[:400]}",
                code="failed",
                operation=operation,
                role=self.place.role,
                stage=self.place.stage,
                micro_batch=number,
                rank=self.place.rank,
            ) from error
        finally:
            if watch is not None:
                watch.operation_ends()

    def _seeded(self, call: int, number: int) -> AbstractContextManager[None]:
        here = self.place
        return seeded(self._seed, call, here.replica * self._count + number, here.stage, self._device)

    def _outputs(self, output: Any, number: int) -> Sequence[Tensor]:
        """Return what is sent to the next stage."""
        outputs = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        for each in outputs:
            if not isinstance(each, Tensor) or isinstance(each, DTensor):
                raise SplitError(
                    f"Stage {self.place.stage} gave a {type(each).__name__} in micro-batch {number}: between stages only plain tensors, or a tuple of them, can be sent. Of a DTensor have the layer give the local one (use_local_output=True).",
                    code="shape",
                    role=self.place.role,
                    stage=self.place.stage,
                    micro_batch=number,
                    rank=self.place.rank,
                )
        return outputs


def takes_gradient(tensor: Any) -> bool:
    """Whether a gradient comes back for what a stage gave: both ends know it without being told."""
    return isinstance(tensor, Tensor) and (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def device_of(module: nn.Module) -> torch.device:
    """Return where a module is."""
    return next((each.device for each in module.parameters()), torch.device("cpu"))


def mean_of(losses: Sequence[Tensor]) -> Tensor | None:
    """Return the mean of some losses, in float32 at least; None of none."""
    if not losses:
        return None
    every = torch.stack(list(losses))
    return every.to(torch.promote_types(every.dtype, torch.float32)).mean()
