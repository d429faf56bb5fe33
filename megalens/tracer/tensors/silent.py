"""Why probes did not fire, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from ...protocol import layers_words
from ..graph_operator import compiles
from .batch import Batch, FiredProbes
from .probes import TensorProbe

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
