"""The run in which plain hooks and the script itself say what every tensor and gradient is. No code of
Megalens is used here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .job import Job, Shaped, seeing

Key = tuple[str, int, str]
"""Flag, layer, part."""
END = "end of a module"
"""Instead of a flag, of what goes in and out of projections and embeddings; its parts are names such as
``fc/output0``.
"""


@dataclass
class Pass:
    """One forward pass, with its backward passes."""

    training: bool
    with_gradients: bool
    values: dict[Key, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    gradients: dict[Key, list[tuple[int, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    """Number of the call in the pass, gradient; in the order in which they come."""
    optional: set[Key] = field(default_factory=set)
    """What may be recorded and need not be."""
    without_graph: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    """How many calls had no graph, which reentrant checkpointing makes when it computes them again."""

    @property
    def trains(self) -> bool:
        return self.with_gradients and (self.training or bool(self.gradients))


@dataclass
class Step:
    passes: list[Pass] = field(default_factory=list)
    gradients: dict[str, list[tuple[str, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    """By parameter, with its stage: ``reduced`` as the script says, ``taken`` as an optimizer took it,
    ``accumulated`` by backward.
    """
    parameters: dict[str, Tensor] = field(default_factory=dict)

    @property
    def ends(self) -> set[str]:
        """Names of the ends of modules that were seen."""
        return {part for here in self.passes for flag, _, part in here.values if flag == END}

    @property
    def micro_batches(self) -> list[Pass]:
        return [each for each in self.passes if each.trains]


@dataclass
class Watched:
    """All that was seen of one model that a script watches."""

    model: nn.Module
    names: dict[nn.Parameter, str]
    steps: dict[int, Step] = field(default_factory=lambda: defaultdict(Step))


def _by_position(tensor: Tensor) -> Tensor:
    """Return ``[B, S, features]`` of ``[B, H, S, d]``."""
    return tensor.transpose(1, 2).flatten(2) if tensor.ndim == 4 else tensor


def _itself(tensor: Tensor) -> Tensor:
    return tensor


_USUAL: dict[str, Shaped] = {"QKV_mat_mul": _by_position, "ContextLayer_mat_mul": _by_position}


class Witness(Job):
    """Keeps a copy of all that the script shows, of gradients, and of what optimizers take."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[Watched] = []
        self._number = 0
        self._inside: list[Pass] = []
        self._stepping = self._left_out = False
        self._undo: list[Any] = [seeing(self._see)]

    def close(self) -> None:
        while self._undo:
            self._undo.pop()()

    def watch(self, model: nn.Module, *optimizers: torch.optim.Optimizer, **tracing: Any) -> None:
        names = {parameter: name for name, parameter in model.named_parameters()}
        watched = Watched(model, names)
        self.watched.append(watched)
        self._follow(watched, optimizers)

    def show(self, hooks: Callable[[], Callable[[], Any]]) -> None:
        self._undo.append(hooks())

    def restart(self, model: nn.Module, *optimizers: torch.optim.Optimizer, first_step: int) -> None:
        watched = self.watched[-1]
        watched.model, watched.names = model, {each: name for name, each in model.named_parameters()}
        for step in [number for number in watched.steps if number >= first_step]:
            del watched.steps[step]
        self._number = first_step - 1
        self._follow(watched, optimizers)

    def _follow(self, watched: Watched, optimizers: tuple[torch.optim.Optimizer, ...]) -> None:
        model, forward = watched.model, watched.model.forward

        def enter(*args: Any, **kwargs: Any) -> Any:
            here = Pass(model.training, torch.is_grad_enabled())
            if self._stepping and not self._left_out:
                watched.steps[self._number].passes.append(here)
            self._inside.append(here)
            try:
                return forward(*args, **kwargs)
            finally:
                self._inside.pop()
                self._last = here

        for name, module in model.named_modules():
            weight = module._parameters.get("weight")
            if weight is not None and weight.ndim == 2:
                hook = module.register_forward_hook(partial(self._went_through, name), with_kwargs=True)
                self._undo.append(hook.remove)
        model.forward = enter
        self._undo.append(lambda: model.__dict__.pop("forward"))
        for optimizer in optimizers:
            handle = optimizer.register_step_pre_hook(lambda *_: self._take(watched, "taken"))
            self._undo.append(handle.remove)
        for parameter, name in watched.names.items():
            if parameter.requires_grad:
                handle = parameter.register_post_accumulate_grad_hook(
                    partial(self._accumulated, watched, name)
                )
                self._undo.append(handle.remove)

    def compile(self, model: Any) -> Any:
        return model

    @contextmanager
    def step(self) -> Iterator[None]:
        self._number += 1
        self._stepping = True
        yield
        self._stepping = False
        for watched in self.watched:
            step = watched.steps[self._number]
            step.parameters = {name: each.detach().clone() for each, name in watched.names.items()}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        before, self._left_out = self._left_out, True
        yield
        self._left_out = before

    def reduced(self, *parameters: nn.Parameter) -> None:
        for watched in self.watched:
            self._take(watched, "reduced", parameters)

    def _take(self, watched: Watched, stage: str, only: tuple[nn.Parameter, ...] = ()) -> None:
        chosen = {id(each) for each in only}
        for parameter, name in watched.names.items():
            if parameter.grad is not None and (not chosen or id(parameter) in chosen):
                watched.steps[self._number].gradients[name].append((stage, plain(parameter.grad)))

    def _accumulated(self, watched: Watched, name: str, parameter: Tensor) -> None:
        if parameter.grad is not None:
            watched.steps[self._number].gradients[name].append(("accumulated", plain(parameter.grad)))

    def _went_through(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        several = output if isinstance(output, tuple) else (output,)
        for end, tensors in (("input0", (*args, *kwargs.values())), ("output0", several)):
            tensor = next((each for each in tensors if isinstance(each, Tensor)), None)
            if tensor is not None:
                self._see(END, 0, {f"{name}/{end}": tensor}, None)

    def _see(
        self, flag: str, layer: int, parts: dict[str, Tensor], shaped: Shaped | None, may: bool = False
    ) -> None:
        again = torch._C._current_graph_task_id() != -1
        if not self._inside and not again:
            return
        here = self._last if again else self._inside[-1]
        shaped = shaped or _USUAL.get(flag, _itself)
        for part, tensor in parts.items():
            key = (flag, layer, part)
            if may:
                here.optional.add(key)
            if again:
                # What is computed again counts only where it has the graph, which the pass itself had not.
                call = here.without_graph[key] - 1
                if call < 0 or not tensor.requires_grad:
                    continue
                here.without_graph[key] = call
            else:
                call = len(here.values[key])
                here.values[key].append(shaped(tensor.detach()).clone())
                if not tensor.requires_grad:
                    here.without_graph[key] += 1
            if tensor.requires_grad:
                tensor.register_hook(partial(self._came_back, here, key, call, shaped))

    def _came_back(self, here: Pass, key: Key, call: int, shaped: Shaped, grad: Tensor) -> None:
        here.gradients[key].append((call, shaped(grad.detach()).clone()))


def plain(tensor: Tensor) -> Tensor:
    """Return a copy, dense."""
    tensor = tensor.detach()
    return tensor.to_dense() if tensor.is_sparse else tensor.clone()
