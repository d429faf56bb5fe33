"""Small tensors of several passes, handled together: a pass that writes one token takes less time than to
look at each of its tensors by itself.

The step path makes a copy and nothing else. The producer thread makes rows of all that are alike at once: a
flag's tensors of every layer and pass are one call of its compressor, and the rows are made column by
column.

Why probes did not fire, in words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from ...protocol import MOMENT_COLUMNS, layers_words
from ...protocol.arrow_columns import arrow_column
from ..graph_operator import compiles
from .batch import KNOWN, NON_FINITE, Batch, FiredProbes
from .probes import TensorProbe, moments_of_each

_NAMED = 3
_MOST_SAID = 5000
_NO_GRADIENT = "none was seen to come back inside of the step"


def reason_of(probe: TensorProbe, scope: int, left_out: int) -> str:
    """Return why a probe did not fire in the step that ends, as far as that is known.

    Parameters
    ----------
    scope : int
        Number of the step.
    left_out : int
        Passes of the step that were no training.
    """
    graph = probe.graph
    if probe.why is not None and probe.failed >= scope:
        return probe.why
    if graph is not None and graph.lost:
        return graph.lost
    if probe.outside >= scope:
        return (
            "its module was called in passes that are no training, or outside of the model's own passes"
            if left_out
            else "its module was called outside of a forward pass of the model: model.forward(…), or a part "
            "of the model, was called in place of model(…)"
        )
    if not probe.flag.forward:
        return "no gradient came back to it in this step"
    if isinstance(probe.source.module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return "nn.MultiheadAttention reads the weight of its out_proj and does not call it"
    if probe.scope < 0 and graph is not None and not graph.ran:
        return (
            "its module was not called, or its code was compiled without probes: torch.compiler.reset() "
            "has it compiled anew"
        )
    if probe.scope < 0 and graph is None and compiles():
        return (
            "its module was not called, or it is compiled and tracing began without knowing: "
            "megalens.trace(…, compiled=True)"
        )
    return "its module was not called in this step, or only its forward method, which runs no hooks"


class SilentProbeWords:
    """Gives a sentence on probes that did not fire, once for each and each reason."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def of(self, batch: Batch) -> Iterator[str]:
        """Give what is new in a batch that ends a step."""
        if batch.probes is not None:
            yield from self._silent(batch.step, batch.probes, batch.told)
        for title in batch.without_gradients:
            if (title, _NO_GRADIENT) not in self._said:
                self._said.add((title, _NO_GRADIENT))
                yield f"Step {batch.step} has no gradients of {title}, which are asked for: {_NO_GRADIENT}."

    def _silent(self, step: int, probes: FiredProbes, told: frozenset[str]) -> Iterator[str]:
        new: dict[str, list[str]] = {}
        for name, reason in probes.missing.items():
            known = name in told or (name, reason) in self._said
            if not known and len(self._said) < _MOST_SAID:
                self._said.add((name, reason))
                new.setdefault(reason, []).append(name)
        for reason, names in new.items():
            # Not all of many are listed.
            more = probes.expected - probes.fired - len(probes.missing) if len(new) == 1 else 0
            others = f" and {more} more" if more > 0 else ""
            yield f"Step {step} has no rows of {'; '.join(_gathered(names))}{others}: {reason}."


def _gathered(names: Sequence[str]) -> Sequence[str]:
    """Return names of probes, those of one flag together where there are many."""
    if len(names) <= _NAMED:
        return names
    layers: dict[str, set[int]] = {}
    for name in names:
        title, _, layer = name.rpartition(", layer ")
        number = layer.partition(" ")[0]
        if title and number.isdecimal():
            layers.setdefault(title, set()).add(int(number))
        else:
            layers[name] = set()
    return [title + layers_words(numbers) for title, numbers in layers.items()]


RETAINED_BYTES = 64 << 10
"""Of larger ones the copy costs more than what is saved."""
_MOST_BYTES = 8 << 20


class RetainedTensor(NamedTuple):
    """A copy of what one probe saw, ``[B, S, *]``, on the CPU."""

    probe: TensorProbe
    data: Tensor
    step: int
    micro_batch: int
    phase: str
    call: int = 0


class RetainedTensors:
    """Tensors of forward passes, until they are taken. Their compression error is not measured."""

    def __init__(self) -> None:
        self._retained: list[RetainedTensor] = []
        self.nbytes = 0

    @property
    def full(self) -> bool:
        return self.nbytes >= _MOST_BYTES

    def add(self, probe: TensorProbe, data: Tensor, *of: Any) -> None:
        """Keep a copy of what is of a step, micro-batch, phase and call."""
        self._retained.append(RetainedTensor(probe, data.clone(), *of))
        self.nbytes += data.nbytes

    def drop(self, places: Collection[tuple[str, int]]) -> None:
        """Forget the tensors of flags in layers."""
        self._retained = [
            each for each in self._retained if (each.probe.flag.name, each.probe.layer) not in places
        ]
        self.nbytes = sum(each.data.nbytes for each in self._retained)

    def take(self) -> list[RetainedTensor]:
        retained, self._retained, self.nbytes = self._retained, [], 0
        return retained


@dataclass(frozen=True, eq=False)
class _Block:
    """Rows of one part of tensors that are alike."""

    alike: Sequence[RetainedTensor]
    part: str
    source_shape: tuple[int, ...]
    shape: tuple[int, ...]
    values: np.ndarray
    moments: np.ndarray


def retained_columns(retained: Sequence[RetainedTensor], rank: int) -> dict[str, Any]:
    """Return the ``tensors`` rows of retained tensors, by rising steps within flag, layer and part."""
    alike: dict[object, list[RetainedTensor]] = {}
    for each in retained:
        flag, source = each.probe.flag, each.probe.source
        # A layer's own way to its parts, or its own vectors, is for that layer only.
        own = each.probe if source.split is not None or flag.vectors is not None else None
        # Several modules of a layer may give parts of one flag, such as queries, keys and values.
        key = (flag, own, source.parts, each.phase, each.data.shape, each.data.dtype)
        alike.setdefault(key, []).append(each)
    with torch.no_grad():
        blocks = [block for several in alike.values() for block in _blocks(several)]
    rows = np.repeat(np.arange(len(blocks)), [len(block.alike) for block in blocks])
    row_of = arrow_column(rows)
    every = [each for block in blocks for each in block.alike]
    n = len(every)

    def texts(of_block: list[str]) -> pa.Array:
        return arrow_column(of_block, pa.utf8()).take(row_of)

    def shapes(of_block: list[tuple[int, ...]]) -> pa.Array:
        return arrow_column(of_block, pa.list_(pa.int32())).take(row_of)

    sizes = np.array([block.values.size // len(block.alike) for block in blocks])
    offsets = np.zeros(n + 1, np.int32)
    np.cumsum(sizes[rows], out=offsets[1:])
    moments = np.concatenate([block.moments for block in blocks])
    nan, inf = moments[:, NON_FINITE].astype(np.int64).T
    first = [block.alike[0] for block in blocks]
    return {
        "step": np.fromiter((each.step for each in every), np.int64, n),
        "micro_batch": np.fromiter((each.micro_batch for each in every), np.int32, n),
        "phase": texts([each.phase for each in first]),
        "pass": texts(["forward"] * len(blocks)),
        "rank": np.full(n, rank, np.int32),
        "layer": np.fromiter((each.probe.layer for each in every), np.int32, n),
        "flag": texts([each.probe.flag.name for each in first]),
        "part": texts([block.part for block in blocks]),
        "compressor": texts([each.probe.flag.text for each in first]),
        "source_shape": shapes([block.source_shape for block in blocks]),
        "shape": shapes([block.shape for block in blocks]),
        "values": pa.ListArray.from_arrays(
            arrow_column(offsets),
            arrow_column(np.concatenate([block.values.reshape(-1) for block in blocks])),
        ),
        "labels": arrow_column([[]] * n, pa.list_(pa.utf8())),
        "nan_count": nan,
        "inf_count": inf,
        "compression_error": np.full(n, np.nan),
        **dict(zip(MOMENT_COLUMNS[:KNOWN], moments.T, strict=False)),
        "call": np.fromiter((each.call for each in every), np.int32, n),
    }


def _blocks(alike: Sequence[RetainedTensor]) -> Iterator[_Block]:
    """Give the parts of tensors of one shape and one compressor."""
    probe = alike[0].probe
    source, flag = probe.source, probe.flag
    data = torch.stack([retained.data for retained in alike])
    lead = data.shape[:2]
    for name, part in zip(source.parts, source.cut(data.flatten(0, 1)), strict=True):
        full = part.reshape(*lead, *part.shape[1:])
        # Selected before anything is computed. All passes side by side are but a larger batch.
        chosen = (
            part if flag.samples is None or flag.samples >= lead[1] else full[:, : flag.samples].flatten(0, 1)
        )
        values = flag.kernel(chosen, probe.layer)
        shape = (len(chosen) // lead[0], *values.shape[1:])
        yield _Block(alike, name, tuple(full.shape[1:]), shape, values.numpy(), moments_of_each(full))
