"""What there is to measure in a model of plain PyTorch, also where torch's own tools cut it, and what of it this process counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..protocol import parse_name
from ..tracer import ModelPoints, Place, TracerError
from ..tracer.moments.points import MomentPoints, ParamPoint, ResidualPoint, SitePoint
from .before_reduction import before_reduction
from .layer_roles import stacked_experts
from .sizes import text_config
from .torch_features import feature_points
from .torch_layout import cuts_input, cuts_output
from .unwrap import INNER_NAMES, unwrapped

__all__ = ["TorchMoments"]

_HEADS = frozenset(("lm_head", "output_layer", "head", "embed_out"))
_FLAT = (
    "FullyShardedDataParallel flattens parameters, so that they have no values of their own to measure. "
    "Shard the model with fully_shard, or log activations only."
)


class TorchMoments:
    """Statistics points of any ``torch.nn.Module``: alone, or under DDP, ``fully_shard`` (also over several mesh axes) and ``parallelize_module``.

    Each value of the whole model is counted by one process: of a shard every holder counts its own, of replicas the first. Data-parallel processes each count the activations of
    their own samples; tensor-parallel ones each what is cut over them, and the first what all of them have.

    Parameters
    ----------
    points : ModelPoints
        Where the layers are and where this process stands.
    every_module : bool
        Whether what goes in and out is measured of all modules, not of projections and embeddings only.

    Raises
    ------
    TracerError
        When it is to be of all modules, and tensor parallelism cuts them: what lies between cut layers does not say whether it is a piece.
    """

    name = "torch"

    def __init__(self, points: ModelPoints, *, every_module: bool = False) -> None:
        if every_module and points.place.tp_size > 1:
            raise TracerError("sites='all' is for models that tensor parallelism does not cut.")
        self._points, self._every_module = points, every_module
        self._place = points.place
        self._stacks: dict[str, str] = {}

    def statistics_points(
        self, model: nn.Module | Sequence[nn.Module], optimizer: Any = None
    ) -> MomentPoints | None:
        """Return what is on this process; None for anything but one module."""
        if not isinstance(model, nn.Module):
            return None
        body = unwrapped(model)
        self._stacks = self._renamed(body)
        quantised = [name for name, parameter in body.named_parameters() if not _measurable(parameter)]
        flat = any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
        names = {module: self._name(name) for name, module in body.named_modules()}
        return MomentPoints(
            params=[] if flat else list(self._params(body)),
            sites=list(self._sites(body)),
            residuals=list(self._residuals(body)),
            features=list(feature_points(self._points, names, shown=_shows_attention(body))),
            stage=self._place.pp if self._place.pp_size > 1 else -1,
            unavailable=self._unavailable(flat),
            left_out=_quantised(quantised),
            before_reduction=before_reduction([model]),
        )

    def _renamed(self, body: nn.Module) -> dict[str, str]:
        """Return what stands for layers of which the own names do not say that they are layers, or say another number: names are all that readers have."""
        names = {module: _canonical(name) for name, module in body.named_modules()}
        renamed: dict[str, str] = {}
        for number, (source, *_) in self._points.flags["HiddenStates"].layers.items():
            own = names.get(source.module, "")
            stack = own.rpartition(".")[0]
            stacks = (f"{stack}.layers", f"{stack.replace('.', '_')}.layers")
            wordings = (own, *(f"{each.lstrip('.')}.{number}" for each in stacks))
            said = next((text for text in wordings if _says(text, number)), own)
            if said != own:
                renamed[own] = said
        return renamed

    def _name(self, own: str) -> str:
        """Return the canonical name of a module or parameter."""
        name = _canonical(own)
        for end in (at for at, letter in enumerate(f"{name}.") if letter == "." and self._stacks):
            if name[:end] in self._stacks:
                return self._stacks[name[:end]] + name[end:]
        return name

    def _unavailable(self, flat: bool) -> dict[str, str]:
        refused = dict.fromkeys(("param", "grad"), _FLAT) if flat else {}
        if not self._layers():
            reason = self._points.flags["HiddenStates"].reason or "No adapter knows where its layers are."
            refused |= dict.fromkeys(
                ("residual", "residual_dgrad"), f"The residual stream of this model is not known. {reason}"
            )
        return refused

    def _params(self, body: nn.Module) -> Iterator[ParamPoint]:
        for own, parameter in body.named_parameters():
            if not _measurable(parameter):
                continue
            name, counted = self._name(own), _counts(parameter, self._place)
            experts = _experts(body, own, parameter)
            if not experts:
                yield ParamPoint(
                    name, parameter, counted, partial(_itself, parameter), partial(_gradient, parameter)
                )
            holder, _, last = name.rpartition(".")
            for expert in range(experts):
                yield ParamPoint(
                    f"{holder}.{expert}.{last}",
                    parameter,
                    counted,
                    partial(_itself, parameter, expert),
                    partial(_gradient, parameter, expert),
                )

    def _sites(self, body: nn.Module) -> Iterator[SitePoint]:
        first = self._place.tp == 0
        seen: set[str] = set()
        for name, module in body.named_modules():
            canonical = self._name(name)
            # What wraps a module has its name, and comes first.
            if not ((self._every_module and canonical) or _projects(module)) or canonical in seen:
                continue
            seen.add(canonical)
            yield SitePoint(
                canonical,
                module,
                counts_input=first or bool(cuts_input(module)),
                counts_output=first or cuts_output(module),
                logs_output=canonical.rpartition(".")[2] not in _HEADS,
            )

    def _residuals(self, body: nn.Module) -> Iterator[ResidualPoint]:
        layers = self._layers()
        names = {module: self._name(name) for name, module in body.named_modules()}
        first = self._place.tp == 0
        for number, (module, cut) in enumerate(layers):
            name = names[module]
            if number == 0 and self._place.pp == 0:
                # Where its style declares nothing, the stream comes in as it goes out.
                declared = cuts_input(module)
                came = cut if declared is None else declared
                stack = name.rpartition(".")[0] or "layers"
                yield ResidualPoint(f"{stack}/input0", module, "input", first or came)
            yield ResidualPoint(f"{name}/output0", module, "output", first or cut)

    def _layers(self) -> list[tuple[nn.Module, bool]]:
        """Return the layers, each with whether tensor-parallel processes hold pieces of its output."""
        found = self._points.flags["HiddenStates"].layers
        return [(source.module, source.shards != "none") for _, (source, *_) in sorted(found.items())]


def _shows_attention(body: nn.Module) -> bool:
    """Return whether attention probabilities are there; Hugging Face's fused attention gives none."""
    kind = getattr(text_config(body), "_attn_implementation", None)
    return kind in (None, "eager")


def _canonical(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in INNER_NAMES)


def _projects(module: nn.Module) -> bool:
    """Return whether a module is an embedding or maps features by a matrix of its own: ``nn.Linear``, Hugging Face's ``Conv1D`` and their like."""
    weight = module._parameters.get("weight")
    return weight is not None and weight.ndim == 2


def _counts(parameter: Tensor, place: Place) -> bool:
    """Return whether this process counts its part of a parameter: of a shard every holder does, of replicas the first."""
    mesh: Any = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return place.tp == 0 and place.dp == 0
    at = mesh.get_coordinate()
    if at is None:
        return False
    placements = parameter.placements  # type: ignore[attr-defined]
    if any(here and kind.is_replicate() for here, kind in zip(at, placements, strict=True)):
        return False
    # What the mesh does not span has replicas of it.
    ranks = set(mesh.mesh.flatten().tolist())
    group = set(place.tp_ranks)
    spans_tp = group <= ranks
    spans_dp = bool(ranks - group)
    return (spans_tp or place.tp == 0) and (spans_dp or place.dp == 0)


def _says(layer: str, number: int) -> bool:
    name = parse_name(f"{layer}.weight")
    return name.layer == number and name.item_type == "weight"


def _measurable(parameter: Tensor) -> bool:
    return parameter.is_floating_point() and parameter.element_size() > 1


def _quantised(names: Sequence[str]) -> str | None:
    if not names:
        return None
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"Quantised weights are no numbers that could be measured, and are left out: {', '.join(names[:3])}{more}. "
        "What goes into their modules and comes out of them is measured."
    )


def _experts(body: nn.Module, own: str, parameter: Tensor) -> int:
    """Return how many experts one parameter holds, each of which is then a tensor by itself; 0 where it is of one module, or where other processes have some of them."""
    holder = own.rpartition(".")[0]
    if "experts" not in holder.rpartition(".")[2].split("_") or hasattr(parameter, "device_mesh"):
        return 0
    count = stacked_experts(body.get_submodule(holder))
    return count if count and parameter.ndim > 1 and parameter.shape[0] == count else 0


def _itself(parameter: Tensor, expert: int | None = None) -> Tensor:
    return parameter if expert is None else parameter.detach()[expert]


def _gradient(parameter: Tensor, expert: int | None = None) -> Tensor | None:
    gradient = parameter.grad
    return gradient if expert is None or gradient is None else gradient[expert]
