"""What there is to measure in a Megatron-Core model, and what of it this process counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from ..tracer import TracerError
from ..tracer.moments.points import MomentPoints, ParamPoint
from .before_reduction import before_reduction
from .megatron_gradients import ready_moment
from .megatron_masters import Held, held_parameters
from .megatron_names import MegatronModule, megatron_modules
from .megatron_ranks import MegatronRanks
from .megatron_refusals import refusals
from .megatron_sites import residual_points, site_points
from .unwrap import unwrapped

__all__ = ["MegatronMoments"]

# Parameters that tensor parallelism cuts, by the layer that has them: for models whose weights were never initialised, which is when Megatron-Core marks them.
_CUT = {
    "ColumnParallelLinear": ("weight", "bias"),
    "RowParallelLinear": ("weight",),
    "VocabParallelEmbedding": ("weight",),
}


class MegatronMoments:
    """Statistics points of Megatron-Core models: bare, or in its DDP or Float16Module; with virtual stages, the list of model chunks.

    Each value of the whole model is counted by one process: of tensor-parallel replicas by the first, of pieces by each holder, of data- and context-parallel replicas by the first, or, where the optimizer is
    distributed over them, by the one that updates it. Of a tied embedding the copy on the last stage is not counted.
    """

    name = "megatron core"

    def statistics_points(
        self, model: nn.Module | Sequence[nn.Module], optimizer: Any
    ) -> MomentPoints | None:
        """Return what is on this rank; None where ``model`` is not made of Megatron-Core's modules. With pipeline stages, all processes have to call it.

        Raises
        ------
        TracerError
            When two tensors would have one name, or the processes' groups are not known.
        """
        given: list[nn.Module] = list(model) if isinstance(model, (list, tuple)) else [model]  # type: ignore[list-item]
        chunks = [unwrapped(chunk) for chunk in given if isinstance(chunk, nn.Module)]
        if not chunks or not all(_is_megatron(chunk) for chunk in chunks):
            return None
        ranks = MegatronRanks.here()
        modules = [at for chunk in chunks for at in megatron_modules(chunk)]
        params = list(_param_points(modules, optimizer, ranks))
        _one_tensor_a_name([point.name for point in params if point.counted], ranks)
        return MomentPoints(
            params=params,
            sites=list(site_points(modules, ranks)),
            residuals=list(residual_points(modules, ranks)),
            stage=ranks.stage if ranks.stages > 1 else -1,
            unavailable=refusals(given, chunks, optimizer),
            gradients_ready=ready_moment(optimizer),
            loss_scale=getattr(optimizer, "get_loss_scale", None),
            before_reduction=before_reduction(given),
        )


def _is_megatron(model: nn.Module) -> bool:
    return any(kind.__module__.startswith("megatron.core.") for kind in type(model).__mro__)


def _param_points(
    modules: Iterable[MegatronModule], optimizer: Any, ranks: MegatronRanks
) -> Iterator[ParamPoint]:
    held = held_parameters(optimizer)
    seen: set[int] = set()
    for at in modules:
        for name, parameter in at.module.named_parameters(recurse=False):
            if id(parameter) in seen:
                # Tied: counted once, under the name that comes first.
                continue
            seen.add(id(parameter))
            own = held.get(id(parameter), Held(parameter))
            tp, replica = (
                (ranks.expert_tp, ranks.expert_replica) if at.is_expert else (ranks.tp, ranks.replica)
            )
            counted = (
                not getattr(parameter, "shared", False)
                and (tp == 0 or _is_cut(at.module, name, parameter))
                and (own.tensor is not None if own.owned else replica == 0)
            )
            yield ParamPoint(at.parameter_name(name), parameter, counted, own.value, own.gradient)


def _is_cut(module: nn.Module, name: str, parameter: nn.Parameter) -> bool:
    if hasattr(parameter, "tensor_model_parallel"):
        return bool(parameter.tensor_model_parallel)
    return any(name in _CUT.get(kind.__name__, ()) for kind in type(module).__mro__)


def _one_tensor_a_name(names: Sequence[str], ranks: MegatronRanks) -> None:
    """Refuse two tensors with one name, on this process or on another stage."""
    # Before anything is refused: a process that left now would leave the other stages waiting.
    times = Counter(name for of_stage in ranks.of_stages(list(names)) for name in of_stage)
    twice = sorted(name for name in times if times[name] > 1)
    where = "on two pipeline stages" if ranks.stages > 1 else "in this process"
    if twice:
        raise TracerError(
            f"{len(twice)} names would each stand for two tensors {where}, whose statistics cannot be merged: {', '.join(twice[:5])}. "
            "Layers need a layer_number that counts over all stages. Learned positions beside multi-token prediction are two tensors indeed, one on the first stage and one on the last; rotary ones are none."
        )
