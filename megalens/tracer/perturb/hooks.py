"""The hooks that perturb a module while a perturbation is armed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from ..coordinates import RankCoordinates
from ..graph_probes import changes_of
from ..own_hooks import Added, OwnHook, hook_after, hooks_of, remove_all
from ..points import ModelPoints
from .arithmetic import is_sharded, on_own_piece, own_features, perturbed
from .plan import (
    PerturbPlan,
    SitePlan,
    owner_of_weight,
    piece_of_output,
    replica_of_output,
    replica_of_weight,
)

_is_compiling = torch.compiler.is_compiling
_MARK = "_megalens_perturbed"

_MOST_REASONS = 20


class Installed:
    """Perturbations that are on. Calling it takes them off, and leaves the model as it was; safe twice.

    ``hooks`` has one for each perturbed module; none once it is off.
    """

    def __init__(self) -> None:
        self.hooks: list[PerturbHook] = []
        self._calls = self._errors = 0
        self._last_step: int | None = None

    def __call__(self) -> None:
        self._calls, self._errors, self._last_step = self.calls, self.errors, self.last_step
        hooks, self.hooks = self.hooks, []
        for hook in hooks:
            hook.remove()

    @property
    def calls(self) -> int:
        """Tensors that were perturbed so far."""
        return self._calls + sum(hook.calls for hook in self.hooks)

    @property
    def errors(self) -> int:
        """Tensors that were to be perturbed and passed as they were."""
        return self._errors + sum(hook.errors for hook in self.hooks)

    @property
    def last_step(self) -> int | None:
        """Newest step in which a tensor was perturbed."""
        steps = [self._last_step, *(hook.last_step for hook in self.hooks)]
        return max((step for step in steps if step is not None), default=None)

    def unfired(self) -> list[str]:
        """Return the names of hooks not reached yet, such as those that a compiled model passes by."""
        return [hook.label for hook in self.hooks if hook.calls + hook.errors == 0]


def install_perturbations(
    points: ModelPoints, plan: PerturbPlan, clock: IClock, warn: Callable[[str], None]
) -> Installed:
    """Put a plan's hooks on the model. Where it perturbs nothing in this process, there are none.

    Never raises: what goes wrong is warned of, and then no hook stays.
    """
    installed = Installed()
    reported: set[str] = set()

    def once(reason: str, text: str) -> None:
        # One cause can hold in every layer and every step.
        if reason not in reported and len(reported) < _MOST_REASONS:
            reported.add(reason)
            warn(text)

    try:
        for site in plan.sites:
            for hook in _hooks(points, plan, site, clock, once):
                installed.hooks.append(hook)
    except Exception as error:
        installed()
        warn(
            f"Nothing is perturbed on {points.place.name}: {str(error)[:200] or type(error).__name__}. "
            "Other processes may perturb. Disarm it."
        )
    return installed


def _hooks(
    points: ModelPoints,
    plan: PerturbPlan,
    site: SitePlan,
    clock: IClock,
    warn: Callable[[str, str], None],
) -> Iterator[PerturbHook]:
    owner = owner_of_weight(points) if site.name == "weight" else None
    for layer, number, module in _modules(points, site):
        label = _label(points, site, layer, module)
        if owner is not None:
            counted = owner(module) or (layer, number)
            cut = replica_of_weight(module._parameters["weight"], points.place)
            yield WeightHook(module, site, label, (plan.seed, site.name, *counted, *cut), clock, warn)
        else:
            key = (plan.seed, site.name, layer, number, *replica_of_output(points.place))
            piece = piece_of_output(points, site.name, layer)
            vector = None if site.vectors is None else site.vectors[layer]
            yield OutputHook(
                module, site, label, key, clock, warn, piece=piece, vector=vector, coords=points.place
            )


def _modules(points: ModelPoints, site: SitePlan) -> list[tuple[int, int, nn.Module]]:
    """Give layer, number in it and module; one that several layers share is perturbed once a call."""
    found: dict[Any, tuple[int, int, nn.Module]] = {}
    for layer in site.layers:
        for number, module in enumerate(points.sites[site.name].layers[layer]):
            found.setdefault(module, (layer, number, module))
    return list(found.values())


def _label(points: ModelPoints, site: SitePlan, layer: int, module: nn.Module) -> str:
    names = (name for root in points.roots for name, one in root.named_modules() if one is module)
    name = next(names, "") or type(module).__name__
    many = points.place.world_size > 1
    return f"{site.name} of layer {layer} ({name})" + (f" on {points.place.name}" if many else "")


class IClock(Protocol):
    """Where the training is, read at each call.

    While a backward pass recomputes activations, ``micro_batch`` is the one that is recomputed. In a phase
    other than ``train``, ``eval`` and ``generate`` nothing is perturbed.
    """

    @property
    def step(self) -> int: ...

    @property
    def phase(self) -> str: ...

    @property
    def micro_batch(self) -> int: ...


class PerturbHook:
    """What both kinds of hooks share.

    Parameters
    ----------
    key : tuple
        What the random numbers depend on besides the time.
    warn : callable
        Takes a reason that may hold of many modules, and a sentence for the user.

    Attributes
    ----------
    calls, errors : int
        Tensors that were perturbed, and that could not be.
    last_step : int or None
        Step of the newest one that was.
    """

    def __init__(
        self,
        module: nn.Module,
        site: SitePlan,
        label: str,
        key: tuple[object, ...],
        clock: IClock,
        warn: Callable[[str, str], None],
    ) -> None:
        self.label = label
        self.calls = self.errors = 0
        self.last_step: int | None = None
        self._module = module
        self._kind, self._phases = site.kind, site.phases
        self._key, self._clock, self._warn = key, clock, warn
        self._handles = self._register(module)

    def remove(self) -> None:
        self._phases = ()
        remove_all(self._handles)

    def _register(self, module: nn.Module) -> list[Any]:
        """Put the hooks on and return their handles."""
        raise NotImplementedError

    def _wanted(self) -> bool:
        return self._clock.phase in self._phases and not _is_compiling()

    def _change(self, tensor: Any) -> Any:
        """Return the tensor perturbed, or as it is where it holds no floating point numbers."""
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        clock = self._clock
        key = (*self._key, clock.step, clock.phase, clock.micro_batch)

        def piece(local: Tensor, cut: tuple[object, ...]) -> Tensor:
            if not local.numel():
                return local
            return perturbed(local, self._kind, (*key, *cut), self._vector_of(tensor, local))

        changed = on_own_piece(tensor, piece) if is_sharded(tensor) else piece(tensor, self._cut(tensor))
        self.calls += 1
        self.last_step = clock.step
        return changed

    def _cut(self, tensor: Tensor) -> tuple[object, ...]:
        return ()

    def _vector_of(self, tensor: Any, local: Tensor) -> Tensor | None:
        return None

    def _failed(self, error: Exception) -> None:
        """Count and report an error; a fault of ours must not end a training step."""
        if type(error).__module__ == checkpoint.__name__:
            # Non-reentrant checkpointing ends a recomputation by an exception once it has the last tensor,
            # which may be in our arithmetic.
            raise error
        self.errors += 1
        reason = str(error)[:200] or type(error).__name__
        self._warn(
            reason,
            f"Not perturbed: {self.label}: {reason}. It passed as it is. "
            "If other processes perturbed theirs, what was the same in all of them may differ now: disarm, "
            "and go back to a checkpoint.",
        )


class WeightHook(PerturbHook):
    """Lets a module compute with a perturbed copy of its weight.

    The parameter itself is never written. For the time of the forward pass the copy stands in the module's
    ``__dict__``, where ``module.weight`` finds it before it finds the parameter; ``parameters()`` and
    ``state_dict()`` look only at the latter. The copy is made of the parameter by differentiable operations,
    so that the gradient arrives there.
    """

    def remove(self) -> None:
        super().remove()
        _take_back(self._module)

    def _register(self, module: nn.Module) -> list[Any]:
        return [
            # Behind the hooks of others: those that gather a sharded weight have done so.
            module.register_forward_pre_hook(OwnHook(lambda called, args: self._before(called))),
            # Also when the forward pass raises; in front of the hooks of others, which then see the
            # parameter.
            module.register_forward_hook(
                OwnHook(lambda called, args, output: _take_back(called)), always_call=True, prepend=True
            ),
        ]

    def _before(self, module: nn.Module) -> None:
        # Only what is no Exception (an interrupt from the keyboard) leaves one there.
        _take_back(module)
        if not self._wanted():
            return
        try:
            if "weight" in module.__dict__:
                raise TypeError("something else has put a tensor in its weight's place")
            weight = module._parameters["weight"]
            changed = self._change(weight)
            if changed is not weight:
                setattr(changed, _MARK, True)
                module.__dict__["weight"] = changed
        except Exception as error:
            self._failed(error)


class OutputHook(PerturbHook):
    """Perturbs what a module returns: the tensor, or the first of several.

    Parameters
    ----------
    piece : callable
        Gives of a tensor what tells apart the processes that have different pieces of it.
    vector : torch.Tensor, optional
        What is added to each position, ``[features]``.
    coords : RankCoordinates, optional
        Which piece of the features this process has, where they are cut.
    """

    def __init__(
        self,
        module: nn.Module,
        site: SitePlan,
        label: str,
        key: tuple[object, ...],
        clock: IClock,
        warn: Callable[[str, str], None],
        piece: Callable[[Tensor], tuple[object, ...]],
        vector: Tensor | None = None,
        coords: RankCoordinates | None = None,
    ) -> None:
        self._piece, self._vector, self._coords = piece, vector, coords or RankCoordinates()
        super().__init__(module, site, label, key, clock, warn)

    def _register(self, module: nn.Module) -> list[Any]:
        """Register one hook, in front of the tracer's and behind all others that are there.

        What is traced is then what the model goes on with; and a framework's own hook, such as the one that
        sums a row-parallel output over its processes, is done. Hooks that trace are only ever added behind.
        """
        if hooks_of.get(module) is not None:
            handles = [hook_after(module, lambda called, args, output: self._after(output), prepend=True)]
            changes = changes_of(module)
            return handles if changes is None else [*handles, Added(changes, self, False)]
        handle = module.register_forward_hook(OwnHook(lambda called, args, output: self._after(output)))
        hooks = cast("OrderedDict[int, Any]", module._forward_hooks)
        others = [number for number in hooks if number != handle.id]
        first = next((at for at, number in enumerate(others) if _traces(hooks[number])), len(others))
        for number in others[first:]:
            hooks.move_to_end(number)
        return [handle]

    def change(self, tensor: Tensor, *, recomputed: bool = False) -> Tensor:
        """Return an output of compiled code perturbed; a recomputation for its gradient is not counted."""
        calls = self.calls
        try:
            new: Tensor = self._change(tensor) if self._clock.phase in self._phases else tensor
            if recomputed:
                self.calls = calls
            return new
        except Exception as error:
            self._failed(error)
            return tensor

    def _after(self, output: Any) -> Any:
        if not self._wanted():
            return None
        try:
            if isinstance(output, Tensor):
                return self._change(output)
            if not isinstance(output, (tuple, list)) or not output or not isinstance(output[0], Tensor):
                raise TypeError(f"it returned a {type(output).__name__} that does not begin with a tensor")
            changed = [self._change(output[0]), *output[1:]]
            if isinstance(output, list):
                return changed
            return type(output)(*changed) if hasattr(output, "_fields") else tuple(changed)
        except Exception as error:
            self._failed(error)
            return None

    def _cut(self, tensor: Tensor) -> tuple[object, ...]:
        return self._piece(tensor)

    def _vector_of(self, tensor: Any, local: Tensor) -> Tensor | None:
        if self._vector is None:
            return None
        if self._vector.device != local.device:
            self._vector = self._vector.to(local.device)
        if is_sharded(tensor):
            return own_features(tensor, self._vector)
        size, coords = local.shape[-1] if local.ndim else 1, self._coords
        if size * coords.tp_size == len(self._vector) and self._piece(tensor):
            return self._vector[size * coords.tp : size * (coords.tp + 1)]
        return self._vector


def _take_back(module: nn.Module) -> None:
    if hasattr(module.__dict__.get("weight"), _MARK):
        del module.__dict__["weight"]


def _traces(hook: Any) -> bool:
    return isinstance(hook, OwnHook) and hook.call.__module__ != __name__
