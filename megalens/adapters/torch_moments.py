"""What there is to measure in a model of plain PyTorch, also where torch's own tools cut it, and what of it this process counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..tracer import ModelPoints, Place
from ..tracer.moments.points import MomentPoints, ParamPoint, ResidualPoint, SitePoint
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
    """

    name = "torch"

    def __init__(self, points: ModelPoints) -> None:
        self._points = points
        self._place = points.place

    def statistics_points(
        self, model: nn.Module | Sequence[nn.Module], optimizer: Any = None
    ) -> MomentPoints | None:
        """Return what is on this process; None for anything but one module."""
        if not isinstance(model, nn.Module):
            return None
        body = unwrapped(model)
        flat = any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
        return MomentPoints(
            params=[] if flat else list(self._params(body)),
            sites=list(self._sites(body)),
            residuals=list(self._residuals(body)),
            stage=self._place.pp if self._place.pp_size > 1 else -1,
            unavailable=self._unavailable(flat),
        )

    def _unavailable(self, flat: bool) -> dict[str, str]:
        refused = dict.fromkeys(("param", "grad"), _FLAT) if flat else {}
        if not self._layers():
            reason = self._points.flags["HiddenStates"].reason or "No adapter knows where its layers are."
            refused |= dict.fromkeys(
                ("residual", "residual_dgrad"), f"The residual stream of this model is not known. {reason}"
            )
        return refused

    def _params(self, body: nn.Module) -> Iterator[ParamPoint]:
        for name, parameter in body.named_parameters():
            yield ParamPoint(
                _canonical(name),
                parameter,
                _counts(parameter, self._place),
                partial(_itself, parameter),
                partial(_gradient, parameter),
            )

    def _sites(self, body: nn.Module) -> Iterator[SitePoint]:
        first = self._place.tp == 0
        for name, module in body.named_modules():
            if not _projects(module):
                continue
            canonical = _canonical(name)
            yield SitePoint(
                canonical,
                module,
                counts_input=first or bool(cuts_input(module)),
                counts_output=first or cuts_output(module),
                logs_output=canonical.rpartition(".")[2] not in _HEADS,
            )

    def _residuals(self, body: nn.Module) -> Iterator[ResidualPoint]:
        layers = self._layers()
        names = {module: _canonical(name) for name, module in body.named_modules()}
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


def _itself(parameter: Tensor) -> Tensor:
    return parameter


def _gradient(parameter: Tensor) -> Tensor | None:
    return parameter.grad
