"""What there is to measure in a Megatron-Core model, and what of it this process counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from torch import nn

from ..protocol import MOMENT_STATS
from ..tracer import TracerError
from ..tracer.moments.points import MomentPoints, ParamPoint, ResidualPoint, SitePoint
from .before_reduction import before_reduction
from .megatron_gradients import OptimizerParam, leaf_optimizers, optimizer_params, ready_moment
from .megatron_observation import Observations, observed_features
from .megatron_ranks import MegatronModule, MegatronRanks, is_megatron, megatron_modules, model_chunks

# Parameters that tensor parallelism cuts, by the layer that has them: for models whose weights were never
# initialised, which is when Megatron-Core marks them.
_CUT = {
    "ColumnParallelLinear": ("weight", "bias"),
    "RowParallelLinear": ("weight",),
    "VocabParallelEmbedding": ("weight",),
}

_FSDP = ("TorchFullyShardedDataParallel", "FullyShardedDataParallel", "MegatronFSDP")
_HOOKED = ("activation", "dgrad", "residual", "residual_dgrad")


class _Cut(Enum):
    """What a tensor-parallel process has of a tensor."""

    PIECE = "a piece of its own"
    WHOLE = "the same as the others"
    SUMMAND = "a part of a sum, which no process has"


_PIECE, _WHOLE, _SUMMAND = _Cut.PIECE, _Cut.WHOLE, _Cut.SUMMAND
_Ends = tuple[_Cut, _Cut, _Cut | None, _Cut | None]
"""How a module's input, output and their gradients are laid out; None for a gradient like its tensor."""


def site_points(modules: Iterable[MegatronModule], ranks: MegatronRanks) -> Iterator[SitePoint]:
    """Give the linear layers, routers and embeddings of which this process counts an end.

    Of those that tensor parallelism cuts, a column-parallel layer gives pieces unless it gathers them, a
    row-parallel one takes pieces; sequence parallelism makes pieces of the other end. Each process counts its
    pieces, the first of the group what all have. What is only a part of a sum (where experts are tensor
    parallel, the output of their second layer and the gradient at the input of their first one) is no tensor
    of the model and not measured.
    """
    for at in modules:
        ends = _ends(at)
        if ends is None:
            continue
        rank, size = (ranks.expert_tp, ranks.expert_tp_size) if at.is_expert else (ranks.tp, ranks.tp_size)
        given, gives, given_gradient, gives_gradient = ends if size > 1 else (_PIECE, _PIECE, None, None)
        # The gradient of a summand is complete: the first counts it.
        counts_input, counts_output = given is _PIECE or rank == 0, gives is _PIECE or rank == 0
        logits = at.name.split(".")[-1] == "output_layer"
        if counts_input or counts_output:
            yield SitePoint(
                at.name,
                at.module,
                counts_input=counts_input,
                counts_output=counts_output,
                logs_input=given is not _SUMMAND,
                logs_output=gives is not _SUMMAND and not logits,
                logs_input_gradient=None if given_gradient is None else given_gradient is not _SUMMAND,
                logs_output_gradient=False if logits else None if gives_gradient is None else True,
            )


def residual_points(
    modules: Iterable[MegatronModule], ranks: MegatronRanks, told: Observations | None = None
) -> Iterator[ResidualPoint]:
    """Give the outputs of this stage's layers, and the input of the model's first one.

    Those of multi-token prediction are left out. ``told`` is what Megatron-Core tells of them.
    """
    for at in modules:
        stack, _, number = at.name.rpartition(".")
        layer_number = getattr(at.module, "layer_number", None)
        if not number.isdecimal() or not isinstance(layer_number, int) or "mtp" in at.name:
            continue
        if ranks.tp > 0 and not _sequence_parallel(at.module):
            continue
        if layer_number == 1:
            block = stack.rpartition(".")[0]
            observed = None if told is None else told.before(at.module)
            yield ResidualPoint(
                f"{block}/input0" if block else "input0", at.module, "input", observed=observed
            )
        observed = None if told is None else told.after(at.module)
        yield ResidualPoint(f"{at.name}/output0", at.module, "output", observed=observed)


def _ends(at: MegatronModule) -> _Ends | None:
    """Return how a module's ends are laid out under tensor parallelism; None for modules that are no site."""
    module: Any = at.module
    # By name, so that neither Megatron-Core nor Transformer Engine is imported, and a subclass of one's own
    # is found.
    kinds = {kind.__name__ for kind in type(module).__mro__}
    along = _PIECE if _sequence_parallel(module) else _WHOLE
    # Whose processes exchange nothing themselves: what is around them gathers what they take and sums what
    # they give.
    alone = (
        at.is_expert
        or getattr(module, "explicit_expert_comm", False)
        or getattr(module, "parallel_mode", "") is None
    )
    if any("ColumnParallelLinearGathered" in kind for kind in kinds) or kinds & {"Router", "TELinear"}:
        return along, along, None, None
    if any("ColumnParallel" in kind for kind in kinds):
        output = _WHOLE if getattr(module, "gather_output", False) else _PIECE
        unsummed = alone or getattr(module, "disable_grad_reduce", False)
        return _WHOLE if alone else along, output, _SUMMAND if unsummed else None, None
    if any("RowParallel" in kind for kind in kinds):
        taken = _PIECE if getattr(module, "input_is_parallel", True) else _WHOLE
        return (taken, _SUMMAND, None, _WHOLE) if alone else (taken, along, None, None)
    if "VocabParallelEmbedding" in kinds:
        cut = _PIECE if getattr(module, "reduce_scatter_embeddings", False) else _WHOLE
        return _WHOLE, cut, None, None
    if kinds & {"Linear", "Embedding"}:
        marked = any(getattr(own, "sequence_parallel", False) for own in module.parameters(recurse=False))
        return (_PIECE, _PIECE, None, None) if marked else (_WHOLE, _WHOLE, None, None)
    return None


def _sequence_parallel(module: Any) -> bool:
    return bool(getattr(getattr(module, "config", None), "sequence_parallel", False))


def refusals(given: Sequence[nn.Module], chunks: Sequence[nn.Module], optimizer: Any) -> dict[str, str]:
    """Return by statistic why there can be none of it.

    ``given`` are the model chunks in their wrappers, ``chunks`` the same without.
    """
    found: dict[str, str] = {}
    for kind in sorted({type(each).__name__ for chunk in given for each in _wrappers(chunk)} & set(_FSDP)):
        reason = (
            f"The model is sharded by Megatron's {kind}, of which statistics cannot tell whole "
            "tensors; use its DDP, with the distributed optimizer if memory is short."
        )
        found.update(dict.fromkeys(MOMENT_STATS, reason))
    config: Any = getattr(chunks[0], "config", None)
    later: dict[str, str] = {}
    if getattr(config, "overlap_moe_expert_parallel_comm", False):
        reason = (
            "overlap_moe_expert_parallel_comm runs layers in pieces, so that nothing sees a whole layer's "
            "input and output; turn it off."
        )
        later.update(dict.fromkeys(("residual", "residual_dgrad"), reason))
    graphs = getattr(config, "cuda_graph_impl", "none")
    if graphs != "none":
        reason = (
            f"CUDA graphs are on (cuda_graph_impl={graphs!r}), and what they replay calls no hooks; turn "
            "them off, or log param and grad alone."
        )
        later.update(dict.fromkeys(_HOOKED, reason))
    if reason := _gradients(given, optimizer):
        later["grad"] = reason
    return {**later, **found}


def _gradients(given: Sequence[nn.Module], optimizer: Any) -> str:
    leaves = leaf_optimizers(optimizer)
    config = getattr(given[0], "ddp_config", None)
    if getattr(config, "use_distributed_optimizer", False) and not any(
        hasattr(leaf, "model_float16_groups") or getattr(leaf, "is_stub_optimizer", False) for leaf in leaves
    ):
        return (
            "The model's DDP leaves each process a piece of the gradients (use_distributed_optimizer), and "
            "which one is known to Megatron's distributed optimizer only; "
            f"pass that as optimizer, not {type(optimizer).__name__}."
        )
    if optimizer is None:
        return (
            "Megatron-Core reduces gradients after the backward pass and clips them in the optimizer's "
            "step: pass the optimizer, between the two of which they are measured."
        )
    if ready_moment(optimizer) is None:
        return (
            f"{type(optimizer).__name__} has neither prepare_grads, as optimizers of Megatron-Core have "
            "from 0.9 on, nor register_step_pre_hook, as torch's have."
        )
    return ""


def _wrappers(chunk: nn.Module) -> list[nn.Module]:
    found = [chunk]
    while isinstance(inner := getattr(found[-1], "module", None), nn.Module):
        found.append(inner)
    return found


def megatron_moments(model: nn.Module | Sequence[nn.Module], optimizer: Any) -> MomentPoints | None:
    """Return what this rank measures of a Megatron-Core model: bare, or in its DDP or Float16Module; with
    virtual stages, the list of model chunks. None where ``model`` is not made of Megatron-Core's modules.

    Each value of the whole model is counted by one process: of tensor-parallel replicas by the first, of
    pieces by each holder, of data- and context-parallel replicas by the first, or, where the optimizer is
    distributed over them, by the one that updates it. Of a tied embedding the copy on the last stage is not
    counted.

    With pipeline stages, all processes have to call it. Raises ``TracerError`` when two tensors would have
    one name, or the processes' groups are unknown.
    """
    given: list[Any] = list(model) if isinstance(model, (list, tuple)) else [model]
    chunks = model_chunks(given)
    if not chunks or not all(map(is_megatron, chunks)):
        return None
    ranks = MegatronRanks.here()
    modules = [at for chunk in chunks for at in megatron_modules(chunk)]
    params = list(_param_points(modules, optimizer, ranks))
    _one_tensor_a_name([point.name for point in params if point.counted], ranks)
    config: Any = getattr(chunks[0], "config", None)
    told = Observations.of(chunks, ranks.tp)
    predictors = int(getattr(config, "mtp_num_layers", None) or 0)
    mixed = told is not None and getattr(config, "num_moe_experts", None)
    return MomentPoints(
        params=params,
        sites=list(site_points(modules, ranks)),
        residuals=list(residual_points(modules, ranks, told)),
        features=[] if told is None else list(observed_features(modules, told, predictors)),
        elsewhere=frozenset(("router_entropy",) if mixed else ()),
        stage=ranks.stage if ranks.stages > 1 else -1,
        unavailable=refusals(given, chunks, optimizer),
        gradients_ready=ready_moment(optimizer),
        loss_scale=getattr(optimizer, "get_loss_scale", None),
        before_reduction=before_reduction(given),
    )


def _param_points(
    modules: Iterable[MegatronModule], optimizer: Any, ranks: MegatronRanks
) -> Iterator[ParamPoint]:
    of_optimizer = optimizer_params(optimizer)
    seen: set[int] = set()
    for at in modules:
        for name, parameter in at.module.named_parameters(recurse=False):
            if id(parameter) in seen:
                # Tied: counted once, under the name that comes first.
                continue
            seen.add(id(parameter))
            own = of_optimizer.get(id(parameter), OptimizerParam(parameter))
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
            f"{len(twice)} names would each stand for two tensors {where}, whose statistics cannot be "
            f"merged: {', '.join(twice[:5])}. "
            "Layers need a layer_number that counts over all stages. Learned positions beside multi-token "
            "prediction are two tensors indeed, one on the first stage and one on the last; rotary ones "
            "are none."
        )
