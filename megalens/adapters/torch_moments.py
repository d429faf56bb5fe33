"""What there is to measure in a model of plain PyTorch, also cut by torch's tools, and what counts here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..protocol import parse_name
from ..tracer import FlagPoints, ModelPoints, RankCoordinates, Source, TracerError
from ..tracer.moments.casts import held
from ..tracer.moments.features import (
    attention_entropy,
    attention_largest,
    attention_probabilities,
    router_entropy,
    router_similarity,
)
from ..tracer.moments.hooks.values import local_values
from ..tracer.moments.points import FeaturePoint, MomentPoints, ParamPoint, ResidualPoint, SitePoint
from .before_reduction import before_reduction
from .layer_roles import stacked_experts
from .sizes import canonical, input_features, output_features, stored, unwrapped
from .torch_coordinates import cuts_input, cuts_output

_HEADS = frozenset(("lm_head", "output_layer", "head", "embed_out"))
_FLAT = (
    "FullyShardedDataParallel flattens parameters, so that they have no values of their own to measure. "
    "Shard the model with fully_shard, or log activations only."
)
_NO_NUMBERS = (
    "Which layers of the whole model this stage of a pipeline has is not known, so that statistics by layer "
    "or by name are those of all stages together."
)

_ATTENTION: Mapping[str, Callable[[Tensor], Tensor]] = {
    "attention_entropy": attention_entropy,
    "attention_max": attention_largest,
}


def feature_points(points: ModelPoints, names: Mapping[nn.Module, str]) -> Iterator[FeaturePoint]:
    """Give where attention and routers can be seen.

    ``names`` are canonical names of modules. Where the model gives no attention probabilities, they are
    computed of queries and keys.
    """
    yield from _routers(points, names)
    outputs = points.flags["AttentionOutput_mat_mul"].layers
    probabilities = points.flags["RawAttentionScore_mat_mul"].layers
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
    routers = points.flags.get("RouterProbabilities", FlagPoints()).layers.values()
    for source in (each for given in routers for each in given):
        name, module = names[source.module], source.module
        yield FeaturePoint("router_entropy", name, module, partial(_of_seen, source, router_entropy), first)
        weight = next((each for each in module.parameters() if each.ndim == 2), None)
        if weight is None or hasattr(weight, "placements") or source.features[0] not in weight.shape:
            continue
        counted = first and points.place.dp == 0
        yield FeaturePoint("router_similarity", name, partial(_itself, weight), router_similarity, counted)


def _of_seen(source: Source, of: Callable[[Tensor], Tensor | None], output: Any) -> Tensor | None:
    """Return what ``of`` makes of a source's tensor."""
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
    """Return what computes the probabilities of a layer; None without queries and keys of one shape."""
    widths = {part: width for each in sources for part, width in zip(each.parts, each.features, strict=True)}
    heads, q = points.model.get("heads"), widths.get("q")
    latent = ("k", "v") in (each.parts for each in sources)
    if widths.keys() != {"q", "k", "v"} or latent or not heads or not q:
        return None
    layer = points.flags["HiddenStates"].layers.get(number, sources)[0].module
    causal = next((c for each in layer.modules() if (c := stored(each, "is_causal")) is not None), True)
    return _Products(of, q // heads, bool(causal))


class TorchMoments:
    """Statistics points of any ``torch.nn.Module``: alone, or under DDP, ``fully_shard`` (also over several
    mesh axes) and ``parallelize_module``.

    Each value of the whole model is counted by one process: of a shard every holder counts its own, of
    replicas the first. Data-parallel processes each count the activations of their own samples;
    tensor-parallel ones each what is cut over them, and the first what all of them have.

    With ``every_module``, what goes in and out is measured of all modules, not of projections and embeddings
    only; that raises ``TracerError`` where tensor parallelism cuts them: what lies between cut layers does
    not say whether it is a piece.
    """

    def __init__(self, points: ModelPoints, *, every_module: bool = False) -> None:
        if every_module and points.place.tp_size > 1:
            raise TracerError("sites='all' is for models that tensor parallelism does not cut.")
        self._points, self._every_module = points, every_module
        self._coords = points.place
        self._stacks: dict[str, str] = {}
        self._flat = False
        """Whether parameters are parts of flat ones, so that a module's own say nothing of it."""

    def of(self, model: nn.Module) -> MomentPoints:
        """Return what is on this process."""
        body = unwrapped(model)
        self._stacks = self._renamed(body)
        others = [each for each in body.named_parameters() if not _measurable(each[1])]
        self._flat = any(type(each).__name__ == "FullyShardedDataParallel" for each in model.modules())
        names = {module: self._name(name) for name, module in body.named_modules()}
        return MomentPoints(
            params=[] if self._flat else list(self._params(body)),
            sites=list(self._sites(body)),
            residuals=list(self._residuals(names)),
            features=list(feature_points(self._points, names)),
            stage=self._coords.pp if self._coords.pp_size > 1 else -1,
            unavailable=self._unavailable(),
            left_out=_unmeasured(others) or (_NO_NUMBERS if self._without_numbers() else None),
            before_reduction=before_reduction([model]),
            held=list(self._held(body)),
        )

    def _without_numbers(self) -> bool:
        """Return whether layers of a stage count from 0, as those of the others do."""
        return self._coords.pp_size > 1 and not self._points.flags["HiddenStates"].layers

    def _renamed(self, body: nn.Module) -> dict[str, str]:
        """Return canonical names of layers whose own names, which are all readers have, lack a number."""
        names = {module: canonical(name) for name, module in body.named_modules()}
        outputs = self._points.flags["HiddenStates"].outputs
        layers = {number: names.get(source.module, "") for number, source in outputs.items()}
        several = len({own.rpartition(".")[0] for own in layers.values()}) > 1
        renamed: dict[str, str] = {}
        for number, own in layers.items():
            stack, _, last = own.rpartition(".")
            if (several and last.isdecimal()) or _shows_number(own, number):
                # Of several stacks each counts its own layers.
                continue
            holders = (f"{each}.layers" for each in (stack, stack.replace(".", "_")))
            # In a stage of a pipeline the name has another number.
            wordings = (f"{each}.{number}".lstrip(".") for each in (*[stack] * last.isdecimal(), *holders))
            name = next((text for text in wordings if _shows_number(text, number)), None)
            if name is not None:
                renamed[own] = name
        return renamed

    def _name(self, own: str) -> str:
        """Return the canonical name of a module or parameter."""
        name = canonical(own)
        for end in (at for at, letter in enumerate(f"{name}.") if letter == "." and self._stacks):
            if name[:end] in self._stacks:
                return self._stacks[name[:end]] + name[end:]
        return name

    def _unavailable(self) -> dict[str, str]:
        refused = dict.fromkeys(("param", "grad"), _FLAT) if self._flat else {}
        if not self._layers():
            flag = self._points.flags["HiddenStates"]
            outside = "What each layer adds is summed up outside of it, and measured where a layer gives it."
            reason = outside if flag.layers else flag.reason or "No adapter knows where its layers are."
            refused |= dict.fromkeys(
                ("residual", "residual_dgrad"), f"The residual stream of this model is not known. {reason}"
            )
        return refused

    def _params(self, body: nn.Module) -> Iterator[ParamPoint]:
        for own, parameter in body.named_parameters():
            if not _measurable(parameter):
                continue
            name, counted = self._name(own), _counts(parameter, self._coords)
            cut = counted and hasattr(parameter, "placements")
            experts = _experts(body, own, parameter)
            holder, _, last = name.rpartition(".")
            for expert in range(experts) if experts else (None,):
                yield ParamPoint(
                    name if expert is None else f"{holder}.{expert}.{last}",
                    parameter,
                    counted,
                    partial(_itself, parameter, expert),
                    partial(_counted_gradient, parameter) if cut else partial(_gradient, parameter, expert),
                )

    def _held(self, body: nn.Module) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Give the tensors of modules that are of torch's float8 types, with their scales."""
        for own, module in body.named_modules():
            own_tensors = chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))
            for key, tensor in own_tensors:
                if held(tensor) is None or not _counts(tensor, self._coords):
                    continue
                if not (isinstance(tensor, nn.Parameter) and _measurable(tensor)):
                    yield self._name(f"{own}.{key}".lstrip(".")), partial(_held_now, module, key)

    def _sites(self, body: nn.Module) -> Iterator[SitePoint]:
        first = self._coords.tp == 0
        seen: set[str] = set()
        for name, module in body.named_modules():
            own = self._name(name)
            # What wraps a module has its name, and comes first.
            if not ((self._every_module and own) or _projects(module, self._flat)) or own in seen:
                continue
            seen.add(own)
            yield SitePoint(
                own,
                module,
                counts_input=first or bool(cuts_input(module)),
                counts_output=first or cuts_output(module),
                logs_output=own.rpartition(".")[2] not in _HEADS,
            )

    def _residuals(self, names: Mapping[nn.Module, str]) -> Iterator[ResidualPoint]:
        first = self._coords.tp == 0
        for number, (module, cut) in enumerate(self._layers()):
            name = names[module]
            if number == 0 and self._coords.pp == 0:
                # Where its style declares nothing, the stream comes in as it goes out.
                came = cut if (declared := cuts_input(module)) is None else declared
                yield ResidualPoint(
                    f"{name.rpartition('.')[0] or 'layers'}/input0", module, "input", first or came
                )
            yield ResidualPoint(f"{name}/output0", module, "output", first or cut)

    def _layers(self) -> list[tuple[nn.Module, bool]]:
        """Return the layers, each with whether tensor-parallel processes have pieces of its output."""
        found = self._points.flags["HiddenStates"].outputs
        return [(source.module, source.shards != "none") for _, source in sorted(found.items())]


def _projects(module: nn.Module, flat: bool = False) -> bool:
    """Return whether a module is an embedding or maps features by a matrix, as ``nn.Linear``."""
    if isinstance(module, torch.jit.ScriptModule):
        # It takes no hooks.
        return False
    if flat:
        maps = input_features(module) is not None and output_features(module) is not None
        return maps or isinstance(stored(module, "num_embeddings"), int)
    weight = module._parameters.get("weight")
    return weight is not None and weight.ndim == 2


def _counts(parameter: Tensor, coords: RankCoordinates) -> bool:
    """Return whether this process counts its part: every holder of a shard, the first of replicas."""
    mesh: Any = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return coords.tp == 0 and coords.dp == 0
    at = mesh.get_coordinate()
    if at is None:
        return False
    placements = parameter.placements  # type: ignore[attr-defined]
    if any(here and kind.is_replicate() for here, kind in zip(at, placements, strict=True)):
        return False
    # What the mesh does not span has replicas of it.
    ranks, group = set(mesh.mesh.flatten().tolist()), set(coords.tp_ranks)
    return (group <= ranks or coords.tp == 0) and (bool(ranks - group) or coords.dp == 0)


def _shows_number(layer: str, number: int) -> bool:
    name = parse_name(f"{layer}.weight")
    return name.layer == number and name.item_type == "weight"


def _measurable(parameter: Tensor) -> bool:
    return parameter.is_floating_point() and parameter.element_size() > 1


def _unmeasured(others: Sequence[tuple[str, Tensor]]) -> str | None:
    if not others:
        return None
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    named = ", ".join(f"{name} ({str(each.dtype).removeprefix('torch.')})" for name, each in others[:3])
    return (
        "Parameters that are no real floating-point numbers of 16 bits or more are not measured: "
        f"{named}{more}. "
        "What goes into their modules and comes out of them is measured."
    )


def _experts(body: nn.Module, own: str, parameter: Tensor) -> int:
    """Return how many experts one parameter has; 0 where others have some, or it is of one module."""
    holder = own.rpartition(".")[0]
    if "experts" not in holder.rpartition(".")[2].split("_") or hasattr(parameter, "device_mesh"):
        return 0
    count = stacked_experts(body.get_submodule(holder))
    return count if count and parameter.ndim > 1 and parameter.shape[0] == count else 0


def _held_now(module: nn.Module, key: str) -> tuple[Tensor, Tensor | None] | None:
    tensor = getattr(module, key, None)
    return held(tensor, module, key) if isinstance(tensor, Tensor) else None


def _itself(parameter: Tensor, expert: int | None = None) -> Tensor:
    return parameter if expert is None else parameter.detach()[expert]


def _gradient(parameter: Tensor, expert: int | None = None) -> Tensor | None:
    gradient = parameter.grad
    return gradient if expert is None or gradient is None else gradient[expert]


def _counted_gradient(parameter: Tensor) -> Tensor | None:
    """Return the gradient of a ``DTensor``, of whose values this process counts its own.

    It may be cut otherwise: of an embedding that is cut by rows every process has the whole gradient.
    """
    gradient = parameter.grad
    if gradient is None:
        return None
    of, cut = getattr(gradient, "placements", None), parameter.placements  # type: ignore[attr-defined]
    at = parameter.device_mesh.get_coordinate()  # type: ignore[attr-defined]
    if of is None or of == cut or at is None:
        return gradient
    again = (
        here and now.is_replicate() and not before.is_replicate()
        for here, now, before in zip(at, of, cut, strict=True)
    )
    return None if any(again) else gradient
