"""Where attention and routers of a model of plain PyTorch can be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..tracer import ModelPoints, Source
from ..tracer.moments.features import (
    attention_entropy,
    attention_largest,
    attention_probabilities,
    router_entropy,
    router_similarity,
)
from ..tracer.moments.hooks.values import local_values
from ..tracer.moments.points import FeaturePoint

__all__ = ["feature_points"]

_ATTENTION: Mapping[str, Callable[[Tensor], Tensor]] = {
    "attention_entropy": attention_entropy,
    "attention_max": attention_largest,
}


def feature_points(
    points: ModelPoints, names: Mapping[nn.Module, str], *, shown: bool
) -> Iterator[FeaturePoint]:
    """Give what there is.

    Parameters
    ----------
    points : ModelPoints
        Where the flags are.
    names : mapping
        Canonical name of each module.
    shown : bool
        Whether the model gives its attention probabilities where they are; else they are computed of queries and keys.
    """
    yield from _routers(points, names)
    outputs = points.flags["AttentionOutput_mat_mul"].layers
    probabilities = points.flags["RawAttentionScore_mat_mul"].layers if shown else {}
    for number, sources in (probabilities or points.flags["QKV_mat_mul"].layers).items():
        name = names[outputs[number][0].module if number in outputs else sources[0].module]
        counted = points.place.tp == 0 or sources[0].shards in ("heads", "features")
        for stat, of in _ATTENTION.items():
            if probabilities:
                seen = partial(_of_seen, sources[0], of)
                yield FeaturePoint(stat, name, sources[0].module, seen, counted)
                continue
            products = _products(points, number, sources, of)
            for source in sources:
                if products is not None and source.parts != ("v",):
                    seen = partial(_of_seen, source, partial(products, source))
                    yield FeaturePoint(stat, name, source.module, seen, counted)


def _routers(points: ModelPoints, names: Mapping[nn.Module, str]) -> Iterator[FeaturePoint]:
    first = points.place.tp == 0
    routers = points.flags.get("RouterProbabilities")
    for source in () if routers is None else (each for given in routers.layers.values() for each in given):
        name, module = names[source.module], source.module
        yield FeaturePoint("router_entropy", name, module, partial(_of_seen, source, router_entropy), first)
        weight = next((each for each in module.parameters() if each.ndim == 2), None)
        whole = weight is not None and not hasattr(weight, "placements")
        if whole and source.features[0] in weight.shape:  # type: ignore[union-attr]
            counted = first and points.place.dp == 0
            yield FeaturePoint("router_similarity", name, lambda w=weight: w, router_similarity, counted)  # type: ignore[misc]


def _of_seen(source: Source, of: Callable[[Tensor], Tensor | None], output: Any) -> Tensor | None:
    """Return what is made of the tensor that a source says."""
    tensor: Any = output
    if source.computed is not None:
        tensor = source.computed(output)
    elif isinstance(output, (tuple, list)):
        tensor = output[source.item] if len(output) > source.item else None
    elif source.item:
        tensor = None
    values = local_values(tensor) if isinstance(tensor, Tensor) else None
    return None if values is None else of(values)


class _Products:
    """Computes probabilities of queries and keys, when both have come."""

    def __init__(self, of: Callable[[Tensor], Tensor], size: int, causal: bool) -> None:
        self._of, self._size, self._causal = of, size, causal
        self._parts: dict[str, Tensor] = {}

    def __call__(self, source: Source, tensor: Tensor) -> Tensor | None:
        """Take what a module gives."""
        if tensor.ndim != 3:
            return None
        tensor = tensor.transpose(0, 1) if source.sequence_first else tensor
        self._parts.update(zip(source.parts, source.cut(tensor), strict=True))
        if not {"q", "k"} <= self._parts.keys():
            return None
        parts, self._parts = self._parts, {}
        return self._of(attention_probabilities(parts["q"], parts["k"], self._size, causal=self._causal))


def _products(
    points: ModelPoints, number: int, sources: Sequence[Source], of: Callable[[Tensor], Tensor]
) -> _Products | None:
    """Return what computes the probabilities of a layer; None where it has no queries and keys of one shape."""
    widths = {part: width for each in sources for part, width in zip(each.parts, each.features, strict=True)}
    heads = points.model.get("heads")
    if widths.keys() != {"q", "k", "v"} or ("k", "v") in (each.parts for each in sources):
        return None
    if not heads or not widths["q"]:
        return None
    layer = points.flags["HiddenStates"].layers.get(number, sources)[0].module
    causal = next((each.is_causal for each in layer.modules() if hasattr(each, "is_causal")), True)
    return _Products(of, widths["q"] // heads, bool(causal))
