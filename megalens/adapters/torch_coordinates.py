"""Coordinates of a process whose model DDP, ``fully_shard``, FSDP or ``parallelize_module`` cut."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ..tracer import RankCoordinates, Shards


def output_shards(*modules: nn.Module | None) -> Shards:
    """Return how the output of the first of ``modules`` with a parallel style is cut, else ``none``.

    A parallel style turns what its module gives into a plain tensor, and the layout is then known to the
    style alone, which has it in the hook that it puts on the module. Tensors that are still distributed
    when they are seen know it themselves, and come before this.
    """
    for module in modules:
        placement = None if module is None else _output(module)
        if placement is not None:
            return _shards(placement)
    return "none"


def input_shards(module: nn.Module) -> Shards:
    """Return how a module's input is cut before its parallel style takes it: so compiled code has it."""
    placement = _input(module)
    return "none" if placement is None else _shards(placement)


def cuts_output(module: nn.Module) -> bool:
    """Return whether the parallel style leaves each rank a piece of the output, along any axis."""
    placement = _output(module)
    return placement is not None and bool(placement.is_shard())


def cuts_input(module: nn.Module) -> bool | None:
    """Return whether each rank has a piece of the input, before the parallel style; None without a style."""
    placement = _input(module)
    return None if placement is None else bool(placement.is_shard())


def _shards(placement: Any) -> Shards:
    if not placement.is_shard() or placement.dim == 0:
        return "none"
    return "sequence" if placement.dim == 1 else "features"


def _input(module: nn.Module) -> Any | None:
    return _declared(module._forward_pre_hooks.values(), ("input_layouts", "input_kwarg_layouts"))


def _output(module: nn.Module) -> Any | None:
    # Of ColwiseParallel, RowwiseParallel and SequenceParallel; of PrepareModuleOutput.
    return _declared(reversed(list(module._forward_hooks.values())), ("desired_output_layouts",))


def _declared(hooks: Iterable[Any], names: Sequence[str]) -> Any | None:
    for hook in hooks:
        for cell in getattr(hook, "__closure__", None) or ():
            contents = cell.cell_contents
            found: list[Any] = (
                [contents.args[0]]
                if isinstance(contents, functools.partial) and contents.args
                else [getattr(contents, name, None) for name in names]
            )
            for layouts in found:
                placement = _first(layouts)
                if placement is not None:
                    return placement
    return None


def _first(layouts: Any) -> Any | None:
    if isinstance(layouts, dict):
        layouts = tuple(layouts.values())
    first = layouts[0] if isinstance(layouts, (tuple, list)) and layouts else layouts
    return first if hasattr(first, "is_shard") else None


def torch_coordinates(model: nn.Module) -> RankCoordinates:
    """Return the coordinates of this process, from the model's own parameters and wrappers.

    The tensor-parallel group is that over which ``parallelize_module`` has spread the parameters; the
    replicas are those of ``fully_shard``, FSDP or DDP, and where there is none of them, all ranks that are
    not of one tensor-parallel group. Pipeline stages leave no mark on a model (``torch_pipeline.py``).
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return RankCoordinates()
    rank, world = distributed.get_rank(), distributed.get_world_size()
    replicas = _sharded_mesh(model)
    tp, tp_ranks = _tensor_group(model, replicas) or (0, (rank,))
    size = len(tp_ranks)
    group = _replica_group(model)
    if replicas is not None:
        dp, dp_size = _index_in(replicas.mesh.flatten().tolist(), rank), replicas.size()
    elif group is not None:
        dp, dp_size = distributed.get_rank(group), distributed.get_world_size(group)
    else:
        # Neighbours differ in the tensor-parallel index first where that group's ranks are neighbours, in the
        # replica else.
        stride = tp_ranks[1] - tp_ranks[0] if size > 1 else 1
        dp, dp_size = rank // (stride * size) * stride + rank % stride, world // size
    return RankCoordinates(
        rank=rank, tp=tp, dp=dp, tp_ranks=tp_ranks, world_size=world, tp_size=size, dp_size=max(dp_size, 1)
    )


def mesh_place(
    mesh: Any, *, tp: str = "tp", pp: str = "pp", dp: str | tuple[str, ...] = "dp"
) -> RankCoordinates:
    """Return this process's coordinates in a mesh, for ``megalens.trace(..., place=mesh_place(mesh))``.

    Parameters
    ----------
    mesh : torch.distributed.device_mesh.DeviceMesh
        The whole job's, with named axes.
    tp, pp, dp : str, or several for ``dp``
        Names of its axes; one that the mesh lacks has size 1.
    """
    names = tuple(mesh.mesh_dim_names or ())
    at, sizes = list(mesh.get_coordinate()), list(mesh.mesh.shape)

    def along(*axes: str) -> tuple[int, int]:
        index, size = 0, 1
        for axis in axes:
            if axis in names:
                here = names.index(axis)
                index, size = index * sizes[here] + at[here], size * sizes[here]
        return index, size

    (tp_at, tp_size), (pp_at, pp_size) = along(tp), along(pp)
    dp_at, dp_size = along(*((dp,) if isinstance(dp, str) else dp))
    own = [slice(None) if name == tp else index for name, index in zip(names, at, strict=True)]
    rank = torch.distributed.get_rank()
    return RankCoordinates(
        rank=rank,
        tp=tp_at,
        pp=pp_at,
        dp=dp_at,
        tp_ranks=tuple(mesh.mesh[tuple(own)].tolist()) if tp in names else (rank,),
        world_size=torch.distributed.get_world_size(),
        tp_size=tp_size,
        pp_size=pp_size,
        dp_size=dp_size,
    )


def _index_in(ranks: list[int], rank: int) -> int:
    return ranks.index(rank) if rank in ranks else 0


def _sharded_mesh(model: nn.Module) -> Any | None:
    """Return the device mesh over which ``fully_shard`` spread the model."""
    for module in model.modules():
        state = inspect.getattr_static(type(module), "_get_fsdp_state", None)
        if state is None:
            continue
        # Under several names in the releases of torch; without any of them the model is taken as not sharded.
        fsdp = state(module)
        groups = getattr(fsdp, "_fsdp_param_groups", None) or [getattr(fsdp, "_fsdp_param_group", None)]
        for group in groups:
            info = getattr(group, "mesh_info", None)
            if info is not None:
                return info.mesh
    return None


def _tensor_group(model: nn.Module, replicas: Any | None) -> tuple[int, tuple[int, ...]] | None:
    """Return the index in the tensor-parallel group and its ranks; None where there is no group."""
    known = () if replicas is None else (replicas.mesh_dim_names or ())
    for parameter in model.parameters():
        mesh: Any = getattr(parameter, "device_mesh", None)
        if mesh is None or mesh == replicas:
            continue
        names = mesh.mesh_dim_names or (None,) * mesh.ndim
        axes = [axis for axis in range(mesh.ndim) if names[axis] is None or names[axis] not in known]
        placements: Any = parameter.placements  # type: ignore[attr-defined]
        axes = [axis for axis in axes if placements[axis].is_shard()] or axes
        if len(axes) != 1:
            continue
        at = mesh.get_coordinate()
        own = tuple(slice(None) if axis == axes[0] else at[axis] for axis in range(mesh.ndim))
        return at[axes[0]], tuple(mesh.mesh[own].tolist())
    return None


def _replica_group(model: nn.Module) -> Any | None:
    """Return the process group of DDP's or FSDP's wrapper."""
    for module in model.modules():
        if type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
            return getattr(module, "process_group", None)
    return None
