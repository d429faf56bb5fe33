"""The first forward pass of a model is watched: what it does decides where its tensors can be seen.

::

    points as modules tell ─▶ first pass, watched ─▶ points as seen ─▶ settings, hooks, announcement

Where nothing is compiled it is the training's own pass. Compiled code cannot be watched, so there the pass is
computed once more, before the training's own, by the interpreter, without gradients, with all that it changes
put back afterwards. Where only the pass itself shows that something in it is compiled, what it showed is
forgotten, and the next one is computed once more. Nothing that goes wrong here reaches the training.

Puts back what a pass that is none of the training's has changed: the next one finds all as it was.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import random
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from .errors import describe_error
from .graph_operator import compiles
from .graph_probes import is_compiled
from .own_hooks import OwnHook, hook_before, hooks_of, remove_all
from .passes import in_transform
from .points import IPassWatch, ModelPoints

_OF_TORCH = frozenset(vars(nn.Module()))
_CONTAINERS = (list, dict, set)


@contextlib.contextmanager
def extra_pass(model: nn.Module) -> Iterator[None]:
    """Have a pass inside computed by the interpreter, without gradients, and put back what it changes."""
    # Nothing is compiled before torch has loaded its compiler, which takes a second.
    loaded = "torch._dynamo" in sys.modules
    stance = torch.compiler.set_stance("force_eager") if loaded else contextlib.nullcontext()
    with put_back(model), torch.no_grad(), stance:
        yield


@contextlib.contextmanager
def put_back(model: nn.Module) -> Iterator[None]:
    """Leave random numbers, buffers and attributes of modules, afterwards, as they were before.

    Parameters and what objects outside of the modules keep are not looked at.
    """
    undo = [_of_module(each) for each in model.modules()]
    state, numbers = random.getstate(), sys.modules.get("numpy.random")
    drawn = None if numbers is None else numbers.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(state)
            if numbers is not None:
                numbers.set_state(drawn)
            with torch.no_grad():
                for each in undo:
                    each()


def _of_module(module: nn.Module) -> Callable[[], None]:
    """Return what puts back one module."""
    own = vars(module)
    if isinstance(module, torch.jit.ScriptModule):
        # Python sees no attributes of it but buffers, and not how often they were written.
        copies = [(buffer, buffer.detach().clone()) for buffer in module.buffers(recurse=False)]

        def put_copies() -> None:
            for buffer, before in copies:
                buffer.copy_(before)

        return put_copies
    # Torch's own modules have buffers, and what wraps a model sets itself up in its first pass.
    names = () if type(module).__module__.startswith("torch.") else own.keys() - _OF_TORCH
    attributes = {name: own[name] for name in names}
    undo = [_of_value(value) for value in attributes.values()]
    buffers = own["_buffers"].copy()
    undo += [_of_value(buffer) for buffer in buffers.values()]
    there = {name: set(own[name]) for name in ("_parameters", "_modules")}

    def put() -> None:
        if names:
            for name in own.keys() - _OF_TORCH - attributes.keys():
                del own[name]
            own.update(attributes)
        own["_buffers"].clear()
        own["_buffers"].update(buffers)
        for name, before in there.items():
            for new in set(own[name]) - before:
                del own[name][new]
        for each in undo:
            each()

    return put


def _of_value(value: Any) -> Callable[[], Any]:
    """Return what puts back one buffer or attribute."""
    if isinstance(value, Tensor) and not value.requires_grad and not value.is_inference():
        version, copy = value._version, value.detach().clone()
        return lambda: None if value._version == version else value.copy_(copy)
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state)
    if isinstance(value, random.Random):
        drawn = value.getstate()
        return lambda: value.setstate(drawn)
    if type(value) in _CONTAINERS:
        return _of_container(value, value.copy())
    return lambda: None


def _of_container(value: Any, before: Any) -> Callable[[], None]:
    def put() -> None:
        value.clear()
        if isinstance(value, list):
            value.extend(before)
        else:
            value.update(before)

    return put


_COMPILED = "_compiled_call_impl"
_COMPILES = os.path.join("torch", "_dynamo", "eval_frame.py")
_INFERENCE = ("_forward_metadata_inference", "_backward_metadata_inference")
_PLAIN = (Tensor, int, float, str, bool, torch.dtype, torch.device, type(None))
"""What a pass can be given a second time: it holds nothing that the first time has changed."""


class FirstPass:
    """Watches one forward pass of a model whose adapter wants to see one.

    Parameters
    ----------
    learned : callable
        Takes the flags and layers whose place was another one than supposed, once ``points`` are as seen; in
        the training thread, before anything else runs after the pass.
    apart : callable
        A context in which a pass is none of the training's, for whoever counts passes.
    """

    def __init__(
        self,
        points: ModelPoints,
        warn: Callable[[str], None],
        learned: Callable[[Collection[tuple[str, int]]], None],
        apart: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._points, self._warn, self._learned, self.apart = points, warn, learned, apart
        self._handles: list[Any] = []
        _there.add(self)
        self._watch: IPassWatch | None = None
        self._left: IPassWatch | None = None
        """Of a pass that raised: its hooks are taken off before the next."""
        self._depth = 0
        self._in_place: list[bool] = []
        """Of each root, whether its call is compiled in place."""
        self._compiler = _CompileStarts(self._interrupt)
        self._compiler.remove()
        self._compiled = False
        """Whether a pass has shown that something in it is compiled."""
        self._came = False
        """Whether a pass came since :meth:`open`."""
        self._warned = False
        self._trains = self._provisional = False
        """Whether the pass that is watched has gradients; whether only one without was seen so far."""
        self.fresh = False
        """Whether the points have changed since somebody has followed them."""

    def open(self) -> None:
        """Watch the next pass, unless one was watched. Safe twice."""
        if self._points.watch is None:
            return
        self._came = False
        in_place = [getattr(root, _COMPILED, None) is not None for root in self._points.roots]
        if self._handles and in_place == self._in_place:
            return
        self.close()
        self._in_place = in_place
        for root, compiled in zip(self._points.roots, in_place, strict=True):
            if compiled:
                self._handles.append(_CompiledCall(root, self._look_before))
            elif root in hooks_of:
                # It may be compiled as a part of anything, and would be anew for a hook that comes and goes.
                self._handles.append(hook_before(root, self._look_before, prepend=True, with_kwargs=True))
            else:
                before, after = OwnHook(self._comes), OwnHook(self._ends)
                self._handles.append(root.register_forward_pre_hook(before, prepend=True, with_kwargs=True))
                self._handles.append(root.register_forward_hook(after, prepend=True, always_call=True))

    def close(self) -> None:
        """Take the hooks off. Safe twice."""
        remove_all(self._handles)
        left, self._left = self._left, None
        if left is not None:
            left.end()

    def step_ends(self, step: int) -> None:
        """Say, once, where a step showed no pass although there may have been one."""
        if self._handles and not (self._came or self._warned) and compiles():
            self._warned = True
            says = (
                f"Step {step} did not show what the model does: it was not called, or its call is a part of "
                "what torch.compile has compiled, such as a function that calls it."
            )
            self._warn(
                f"{says} Until a pass is seen, tensors are traced where modules suggest that they are, and "
                "parts of one tensor, and flags of which modules suggest nothing, are not."
            )
            lost = self._points.leave_guesses(says)
            self.fresh = True
            self._learned(lost)

    def say_stage(self, stage: Any) -> None:
        """Say where the model is a stage of a pipeline, and was not known to be one."""
        if stage.submod in self._points.roots and stage.group_size > self._points.place.pp_size:
            self._warn(
                f"This model is stage {stage.stage_index} of {stage.num_stages} of a pipeline, made after "
                "tracing began: it is taken for a replica, and its layers are numbered from 0. Make "
                "PipelineStage before megalens.trace."
            )

    def _comes(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling() or in_transform():
            return
        self._came = True
        if self._watch is not None:
            # A model that calls itself.
            self._depth += 1
        elif self._compiled or is_compiled(self._points.roots) or _called_by_compiler():
            self._look_before(module, args, kwargs)
        else:
            self._trains = torch.is_grad_enabled()
            self._begin((*args, *kwargs.values()))

    def _begin(self, given: Iterable[Any]) -> None:
        make = self._points.watch
        if make is None or (self._provisional and not self._trains):
            return
        try:
            left, self._left = self._left, None
            if left is not None:
                left.end()
            watch = make(self._points)
            watch.begin(given)
        except Exception as error:
            self._give_up(error)
        else:
            self._watch = watch
            self._compiler = _CompileStarts(self._interrupt)

    def _interrupt(self) -> None:
        """Forget a pass in which something is compiled, before that is."""
        if self._watch is not None and not self._compiled:
            self._compiled = True
            try:
                self._watch.interrupt()
            except Exception as error:
                self._warn(f"A pass could not be left unwatched: {describe_error(error)}")

    def _ends(self, module: nn.Module, args: Any, output: Any) -> None:
        # Also called for a pass that raised, of which ``output`` is None: what it showed is incomplete.
        if self._depth:
            self._depth -= 1
            return
        watch, self._watch = self._watch, None
        if watch is None:
            return
        self._compiler.remove()
        try:
            if watch.interrupted:
                watch.end()
                return
            if output is None:
                # Hooks that are being called may not be taken off.
                watch.stop()
                self._left = watch
                return
            watch.end()
            seen = watch.finish()
            if watch.failed is not None:
                self._give_up(watch.failed)
                return
            again = None if self._trains else self._points.watch
            self._points.learn(seen)
            # An evaluation may leave modules out, or take shortcuts: what trains is watched too.
            self._points.watch, self._provisional = again, again is not None
            changed = watch.changed
        except Exception as error:
            self._give_up(error)
            return
        if not self._provisional:
            self.close()
        self.fresh = True
        self._learned(changed)

    def _look_before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Compute the pass once more before the training does, watched."""
        self._came = True
        if self._watch is not None or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        if not all(isinstance(leaf, _PLAIN) for leaf in _pytree.tree_leaves((args, kwargs))):
            self._give_up("it is given objects that a pass may change, and its code is compiled")
            return
        if any(nn.parameter.is_lazy(each) for each in module.parameters()):
            self._give_up("its parameters are made in the first pass, and its code is compiled")
            return
        output: Any = None
        self._trains = True
        try:
            with _all_apart(), extra_pass(module):
                self._begin((*args, *kwargs.values()))
                try:
                    output = module(*args, **kwargs)
                finally:
                    self._ends(module, args, output)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, why: Exception | str) -> None:
        self.close()
        reason = why if isinstance(why, str) else describe_error(why)
        if self._provisional:
            # What the pass without gradients showed stands.
            self._points.watch = None
            self._warn(f"A forward pass with gradients could not be watched, only one without: {reason}.")
            return
        lost = self._points.give_up_watching(reason)
        self._warn(f"What the model does in a forward pass could not be watched: {reason}.")
        self.fresh = True
        self._learned(lost)


_there: weakref.WeakSet[FirstPass] = weakref.WeakSet()


@contextlib.contextmanager
def _all_apart() -> Iterator[None]:
    """Let no tracer, also of the same model, take the passes inside for the training's."""
    with contextlib.ExitStack() as stack:
        for each in tuple(_there):
            stack.enter_context(each.apart())
        yield


def leave_out_shape_inference() -> None:
    """Let nobody take for the training's what stages of ``torch.distributed.pipelining`` compute before their
    first step, to learn the shapes of tensors. Safe at any time; does nothing where the script has none.
    """
    stage_class = getattr(sys.modules.get("torch.distributed.pipelining.stage"), "PipelineStage", None)
    for name in _INFERENCE:
        own = getattr(stage_class, name, None)
        if own is not None and not hasattr(own, "__wrapped__"):
            setattr(stage_class, name, _left_out(own))


def _left_out(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def inference(stage: Any, *args: Any, **kwargs: Any) -> Any:
        for each in tuple(_there):
            each.say_stage(stage)
        with _all_apart():
            return own(stage, *args, **kwargs)

    return inference


class _CompiledCall:
    """In place of what a module calls after ``module.compile()``, until it is removed."""

    def __init__(self, root: nn.Module, before: Callable[[nn.Module, Any, Any], None]) -> None:
        self._root, self._before = root, before
        self._compiled: Any = getattr(root, _COMPILED)
        self._called: Any = self._call
        setattr(root, _COMPILED, self._called)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        setattr(self._root, _COMPILED, None)
        try:
            self._before(self._root, args, kwargs)
        finally:
            setattr(self._root, _COMPILED, self._called)
        return self._compiled(*args, **kwargs)

    def remove(self) -> None:
        self._called = self._compiled
        setattr(self._root, _COMPILED, self._compiled)


class _CompileStarts:
    """Calls something when ``torch.compile`` begins to compile, before it traces anything."""

    def __init__(self, call: Callable[[], None]) -> None:
        handler: Any = getattr(sys.modules.get("torch._dynamo"), "callback_handler", None)
        self._callbacks = getattr(handler, "start_callbacks", [])
        # Of some versions of torch it takes arguments.
        self._call = lambda *_: call()
        self._callbacks.append(self._call)

    def remove(self) -> None:
        """Safe twice."""
        if self._call in self._callbacks:
            self._callbacks.remove(self._call)


def _called_by_compiler() -> bool:
    """Return whether what called is about to have the frames that it calls compiled."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        if "callback" in code.co_freevars and code.co_filename.endswith(_COMPILES):
            return True
        frame = frame.f_back
    return False
