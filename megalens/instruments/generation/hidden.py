"""The hidden states of the newest forward pass, and attention probabilities that models do not output."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...adapters.find import find_points
from ...adapters.sizes import text_config, unwrapped
from ...protocol import Peaks
from ...tracer.errors import describe_error
from ...tracer.graph_probes import end_of
from ...tracer.own_hooks import hook_after, remove_all
from ...tracer.points import NO_EXPERTS, IAdapter, IPassWatch, ModelPoints, Source
from ...tracer.tensors.config import change_plan
from ...tracer.tensors.plan import TracingPlan
from ...tracer.tensors.probes import Window
from .errors import GenerationError
from .fused_attention import FusedAttention
from .language_model import short_pass
from .token_rows import PassCoordinates

ATTENTION = "RawAttentionScore_mat_mul"
"""The flag that shows them."""
_EAGER = "eager"


class AttentionAdapter:
    """Finds a model's trace points under :func:`attention_probabilities`, by ``adapter`` if given.

    What the model does with a few tokens decides: a lab's first request is no time to find out.
    """

    def __init__(self, adapter: IAdapter | None = None) -> None:
        self._adapter = adapter

    def points(self, model: Any) -> ModelPoints:
        if not isinstance(model, nn.Module):
            return find_points(model, self._adapter)
        points = watched_points(model, self._adapter)
        if self._adapter is None and not points.flags[ATTENTION].layers:
            states = points.flags["HiddenStates"].layers
            fused = FusedAttention(model, {layer: source.module for layer, (source, *_) in states.items()})
            if fused.flag.layers:
                _fused[model] = fused
                return replace(points, flags={**points.flags, ATTENTION: fused.flag})
        with _eager(model) as switched:
            return watched_points(model, self._adapter) if switched else points


_fused: weakref.WeakKeyDictionary[nn.Module, FusedAttention] = weakref.WeakKeyDictionary()


def watched_points(model: nn.Module, adapter: IAdapter | None = None) -> ModelPoints:
    """Return the trace points that one pass over a few tokens shows; of it nothing stays in the model."""
    points = find_points(model, adapter)
    if points.watch is None:
        return points
    watch = points.watch(points)
    try:
        short_pass(model, _watched(watch))
        watch.end()
        seen = watch.finish()
        failed = watch.failed
    except Exception as error:
        watch.end()
        failed = describe_error(error)
    if failed is None:
        points.learn(seen)
    else:
        points.give_up_watching(failed)
    return points


@contextlib.contextmanager
def _watched(watch: IPassWatch) -> Iterator[None]:
    watch.begin()
    try:
        yield
    finally:
        watch.stop()


def no_attention(points: ModelPoints) -> str | None:
    """Return why attention probabilities cannot be traced, or None."""
    flag = points.flags.get(ATTENTION, NO_EXPERTS)
    return None if flag.layers else flag.reason or "This model's attention gives no probabilities."


def with_attention(plan: TracingPlan, points: ModelPoints, folders: Sequence[Path]) -> TracingPlan:
    """Return a plan that traces attention probabilities in generation, as set or else completely."""
    asked = plan.asked.get(ATTENTION)
    setting: dict[str, Any] = {"compressor": Peaks().to_setting(), "samples": None, "phases": []}
    if asked is not None:
        setting = {**asked.setting}
    if "generate" in setting["phases"]:
        return plan
    setting["phases"] = [*setting["phases"], "generate"]
    return change_plan(plan, {"flags": {ATTENTION: setting}}, points, folders)


@contextlib.contextmanager
def attention_probabilities(model: nn.Module, points: ModelPoints) -> Iterator[str]:
    """Make a model's attention output its probabilities inside the context, where ``points`` see them.

    Those of fused attention are computed beside it. Where that is not possible the implementation is
    switched: models of Hugging Face make one mask for all layers by it, so it is switched in all of them.
    Yields a sentence for people, empty where nothing was switched; raises ``GenerationError`` when the model
    cannot be switched.
    """
    before, fused = _implementation(model), _fused.get(model)
    if fused is not None and points.flags.get(ATTENTION) is fused.flag:
        with fused.seen():
            yield ""
        return
    if before in (None, _EAGER):
        yield ""
        return
    with _eager(model):
        if _implementation(model) != _EAGER:
            raise GenerationError(
                f"The attention of {type(unwrapped(model)).__name__} is computed with {before}, which gives "
                "no probabilities, and cannot be switched. "
                "Load the model with attn_implementation='eager'."
            )
        yield (
            f"Attention was computed with eager instead of {before}, in every layer, so that its "
            "probabilities can be seen; logits differ by rounding."
        )


def _implementation(model: nn.Module) -> str | None:
    return getattr(text_config(unwrapped(model)), "_attn_implementation", None)


@contextlib.contextmanager
def _eager(model: nn.Module) -> Iterator[bool]:
    """Switch a model of Hugging Face, if possible; all of its configs are restored afterwards.

    Yields whether there was anything to switch.
    """
    body: Any = unwrapped(model)
    switch = getattr(body, "set_attn_implementation", None)
    if not callable(switch) or _implementation(model) in (None, _EAGER):
        yield False
        return
    before = [(config, config._attn_implementation_internal) for config in _configs(body)]
    try:
        # What a model or a part of it refuses leaves it as it is.
        with contextlib.suppress(ValueError, ImportError):
            switch(_EAGER)
        yield True
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def _configs(body: nn.Module) -> list[Any]:
    """Return every config of the implementation of attention: those of multi-modal parts, too."""
    found: dict[int, Any] = {}
    waiting = [getattr(module, "config", None) for module in body.modules()]
    while waiting:
        config = waiting.pop()
        if id(config) not in found and hasattr(config, "_attn_implementation_internal"):
            found[id(config)] = config
            waiting += [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
    return list(found.values())


class Passes:
    """Makes the context of each forward pass, and counts passes: those of a generation and extra ones.

    ``step`` returns the step that began last. ``scope`` returns a context which is a step of its own; without
    it all passes belong to the last step, and are numbered.
    """

    def __init__(
        self, step: Callable[[], int], scope: Callable[[], AbstractContextManager[object]] | None = None
    ) -> None:
        self._step, self._scope = step, scope
        self._begun = 0
        self.here = PassCoordinates(-1, -1)
        """Coordinates of the newest pass's tensors."""

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with contextlib.nullcontext() if self._scope is None else self._scope():
            self.here = PassCoordinates(self._step(), 0 if self._scope is not None else self._begun)
            self._begun += 1
            yield

    @property
    def following(self) -> PassCoordinates:
        """The coordinates of the next pass."""
        step = self._step()
        return PassCoordinates(step, self._begun) if self._scope is None else PassCoordinates(step + 1, 0)


class HiddenStates:
    """Refers to the hidden states of the newest pass while it is entered, with any armed perturbation.

    They are the model's own tensors, or what ``convert`` makes of them at once; only compiled code's outputs
    are copied, since it reuses their memory.
    """

    def __init__(
        self, points: ModelPoints, convert: Callable[[Tensor], Tensor] = lambda state: state
    ) -> None:
        self._convert = convert
        flag = points.flags.get("HiddenStates")
        self._sources = flag.outputs if flag else {}
        self._seen: dict[int, Tensor] = {}
        self._handles: list[Any] = []

    @property
    def layers(self) -> list[int]:
        """Layers of this process, ascending."""
        return sorted(self._sources)

    @property
    def silent(self) -> list[int]:
        """Those that the newest pass did not call, or that gave no such tensor."""
        return [layer for layer in self.layers if layer not in self._seen]

    def __enter__(self) -> HiddenStates:
        for layer, source in self._sources.items():
            self._handles.append(hook_after(source.module, self._keeps(layer, source)))
            if (graph := end_of(source.module, "output", source.item)) is not None:
                self._handles.append(graph.watch(self._copies(layer, source)))
        return self

    def __exit__(self, *_: object) -> None:
        remove_all(self._handles)
        self._seen.clear()

    def of(self, layer: int, window: Window | None = None) -> Tensor:
        """Return a layer's output, ``[B, n, hidden]``, of the positions of a window if given.

        Raises ``LookupError`` when the layer was not called, or had no such tensor.
        """
        state = self._seen.get(layer)
        if state is None:
            raise LookupError(f"layer {layer} was not called or gave no hidden states")
        return state if window is None else window.of(state)

    def _keeps(self, layer: int, source: Source) -> Callable[..., None]:
        def keep(module: nn.Module, given: Any, output: Any) -> None:
            self._keep(layer, source, output[source.item] if isinstance(output, (tuple, list)) else output)

        return keep

    def _copies(self, layer: int, source: Source) -> Callable[[Tensor], None]:
        return lambda tensor: self._keep(layer, source, tensor.clone())

    def _keep(self, layer: int, source: Source, state: Any) -> None:
        if isinstance(state, Tensor) and state.ndim == 3:
            state = self._convert(state.detach())
            self._seen[layer] = state.transpose(0, 1) if source.sequence_first else state
