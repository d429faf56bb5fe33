"""Watches one forward pass of a model, and corrects by what it shows where the trace points are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..tracer import ModelPoints
from ..tracer.own_hooks import hook_after, hook_before, leave_uncompiled, remove_all
from .feature_ids import Plane
from .sizes import input_features, output_features
from .watch_flow import Flow
from .watch_points import seen_points
from .watch_trail import Call, Seen, Trail, bent, same_planes, tensors_in


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    supports_higher_order_operators = True

    def __init__(self, flow: Flow) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._flow = flow

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Keep out of what is compiled meanwhile: for another mode torch would not compile it, nor ever."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Have torch wrap nothing here: the compiler would be loaded for it. See below."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flow = self._flow
        if flow.looks:
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled() and not flow.failed:
            # Operations that are made of others come whole in it.
            with self:
                made = func.decompose(*args, **kwargs)
                if made is not NotImplemented:
                    return made
        try:
            known = [(each, flow.of(each)) for each in tensors_in((*args, *kwargs.values()))]
        except Exception as error:
            flow.fail(error)
        result = func(*args, **kwargs)
        if not flow.failed:
            try:
                flow.follow(func, args, kwargs, known, result)
            except Exception as error:  # What cannot be followed must not end a training step.
                flow.fail(error)
        return result


leave_uncompiled(_Mode.__torch_dispatch__)
_entered = threading.local()
"""Modes of this thread's watches, in the order in which they were entered: of tracers of one model."""


class PassWatch:
    """Around the first forward pass of a model: changes no value, and keeps nothing after :meth:`finish`.

    ``points`` are supposed before the pass. An ``adapter`` of the user's own is to be confirmed by it:
    what the pass contradicts is given up.
    """

    def __init__(self, points: ModelPoints, adapter: Any = None) -> None:
        self.changed: set[tuple[str, int]] = set()
        """Flags and layers of which the points are others than were supposed, after :meth:`finish`."""
        self.failed: str | None = None
        """Why nothing could be learnt, after :meth:`finish`; also None where the pass itself did not end."""
        self.interrupted = False
        self._points, self._adapter = points, adapter
        self._flow = Flow()
        self._calls: list[Call] = []
        self._handles: list[Any] = []
        self._mode: _Mode | None = None
        self._whole = False
        self._widths: dict[nn.Module, int | None] = {}

    def __enter__(self) -> PassWatch:
        self.begin()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.end(failed=kind is not None)

    def begin(self, given: Iterable[Any] = ()) -> None:
        """Begin to watch, before the forward pass, of which ``given`` are the arguments."""
        if self._points.place.pp:
            # The residual stream comes from another process, as rows of an embedding would here.
            for value in given:
                if isinstance(value, Tensor) and value.is_floating_point() and value.ndim:
                    self._flow.begin(value)
        # Before what other hooks make of it: a parallel style may give the module another tensor.
        called, returned = self._guarded(self._called), self._guarded(self._returned)
        for module in dict.fromkeys(each for root in self._points.roots for each in root.modules()):
            # A scripted module takes no hooks.
            with contextlib.suppress(RuntimeError):
                self._handles.append(hook_before(module, called, prepend=True, with_kwargs=True))
                self._handles.append(hook_after(module, returned))
        self._mode = _Mode(self._flow)
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        _entered.__dict__.setdefault("modes", []).append(self._mode)

    def end(self, failed: bool = False) -> None:
        """Stop watching, after the forward pass, and take the hooks off. Safe twice."""
        self.stop(failed)
        self._take_off()

    def interrupt(self) -> None:
        """Take the hooks off, before something is compiled that has them; the mode is off for that long."""
        self.interrupted = True
        self._flow.fail(RuntimeError("something is compiled in it"))
        self._take_off()

    def _take_off(self) -> None:
        remove_all(self._handles)

    def stop(self, failed: bool = False) -> None:
        """Stop watching, and leave the hooks: a module that raised keeps them as yet. Safe twice."""
        mode, self._mode = self._mode, None
        if mode is not None:
            modes = _entered.modes
            above = modes[modes.index(mode) + 1 :]
            # Torch takes off the one that was entered last, whichever is asked.
            for each in (*reversed(above), mode):
                each.__exit__(None, None, None)
            for each in above:
                each.__enter__()
            modes.remove(mode)
            self._whole = not failed

    def finish(self) -> ModelPoints:
        """Return the points as the pass has shown them; those that were supposed where it did not end."""
        self.end()
        points, flow, calls = self._points, self._flow, self._calls
        self._flow, self._calls = Flow(), []
        self.failed = self.failed or flow.failed
        if not self._whole or self.failed or not calls:
            return points
        try:
            return seen_points(points, flow, calls, self._adapter, self.changed)
        except Exception as error:  # A fault of ours must not end a training.
            self.changed.clear()
            self.failed = f"{type(error).__name__}: {error}"[:300]
            return points

    def _guarded(self, look: Callable[..., None]) -> Callable[..., None]:
        """Return a hook whose own error ends the watching, not the training step."""

        def hook(*args: Any) -> None:
            # What is compiled is not looked into, and must not be compiled with what looks.
            if torch.compiler.is_compiling() or self._flow.failed:
                return
            self._flow.looks = True
            try:
                look(*args)
            except Exception as error:
                self._flow.fail(error)
            finally:
                self._flow.looks = False

        return hook

    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        flow = self._flow
        flow.call = call = Call(module, flow.call, len(self._calls))
        self._calls.append(call)
        given = [
            *((i, value, None) for i, value in enumerate(args)),
            *((len(args), v, k) for k, v in kwargs.items()),
        ]
        call.given += [self._seen(i, value, name) for i, value, name in given if isinstance(value, Tensor)]

    def _seen(self, item: int, tensor: Tensor, keyword: str | None = None) -> Seen:
        return Seen(item, self._flow.of(tensor), self._flow.key(tensor), tuple(tensor.shape), keyword)

    def _returned(self, module: nn.Module, args: Any, output: Any) -> None:
        flow = self._flow
        # Calls in it that ended by an exception which the model caught are still open.
        call = flow.call and next((each for each in flow.call.and_outer() if each.module is module), None)
        if call is None:
            return
        flow.call = call.parent
        values = [output] if isinstance(output, Tensor) else output
        if isinstance(values, dict):
            values = tuple(values.values())
        if not isinstance(values, (tuple, list)):
            return
        # Of several tensors that with the features of a product is what a projection gives.
        several = enumerate(values) if len(values) > 1 else ()
        main = next((item for item, value in several if self._has_all(value, call)), 0)
        for item, value in enumerate(values):
            if isinstance(value, Tensor) and value.ndim:
                self._begin_trail(call, item, value, item == main)
                call.gave.append(self._seen(item, value))

    def _begin_trail(self, call: Call, item: int, tensor: Tensor, main: bool) -> None:
        flow = self._flow
        trail = flow.of(tensor)
        width = self._width(call.module)
        if width is not None and (trail is None or trail.scores is None):
            if any(self._width(outer.module) is not None for outer in call.and_outer() if outer is not call):
                return
            if main and tensor.shape[-1] and width % tensor.shape[-1] == 0:
                self._begin(call, item, tensor)
                return
        if trail is None or not trail.planes or not trail.origins:
            return
        if len(trail.planes) > 1:
            if main and call.given and all(self._is_linear(plane, call) for plane in trail.planes):
                self._begin(call, item, tensor)
        elif (made := flow.whole(trail)) is not None:
            made.givers.append((call, item))

    def _begin(self, call: Call, item: int, tensor: Tensor) -> None:
        """Take what a module gives as features of its own, and what it is made of as a part of that."""
        flow = self._flow
        first = call.given[0] if call.given else None
        for before in reversed(flow.made):
            if before.call is None or before.call.number < call.number:
                break
            before.inner = True
        inner = flow.of(tensor)
        made = flow.begin(tensor, given=first and first.trail, given_key=first and first.key)
        made.call = call
        if inner is not None:
            made.scored = next(filter(None, (flow.made[each].scored for each in inner.origins)), "")
        made.givers.append((call, item))

    def _has_all(self, value: Any, call: Call) -> bool:
        """Return whether a tensor has all features of one product in a call, as it gave them."""
        trail = self._flow.of(value) if isinstance(value, Tensor) else None
        made = self._flow.whole(trail)
        return trail is not None and not trail.notes and made is not None and made.within(call)

    def _is_linear(self, plane: Plane, call: Call) -> bool:
        """Return whether features are a product of what a module was given, with weights alone.

        The sum of such is one projection, as a layer with a low-rank change of it.
        """
        made = self._flow.whole(Trail((plane,)))
        if made is None or made.attention is not None or not made.within(call):
            return False
        first, given = call.given[0], made.given
        if made.given_key is not None and made.given_key == first.key:
            return True
        if given is None or not given.planes:
            return False
        if first.trail is not None and same_planes(given, first.trail):
            return not bent(given, unless=first.trail.notes)
        return not (given.products or bent(given) or len(given.planes) > 1) and self._is_linear(
            given.planes[0], call
        )

    def _width(self, module: nn.Module) -> int | None:
        """Return how many features a module gives that says of itself that it maps features to features."""
        if module not in self._widths:
            self._widths[module] = None if input_features(module) is None else output_features(module)
        return self._widths[module]
