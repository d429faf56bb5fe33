"""Listens to what Megatron-Core tells of its tensors, where it has ``megatron.core.tensor_observation``.

Megatron-Core knows one observer at a time, for the time that its context manager is open. Ours is open while
one of the model's chunks is called, and passes on to an observer that was there before what it asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ..tracer import FlagPoints, Observed, Shards, Source
from ..tracer.moments.features import router_entropy
from ..tracer.moments.points import FeaturePoint
from ..tracer.own_hooks import hook_after, hook_before
from .megatron_ranks import MegatronModule
from .sizes import bare
from .table import find

_See = Callable[[Any], None]


class Observations:
    """What one process's model chunks tell.

    Attributes
    ----------
    tp : int
        Tensor-parallel rank of this process.
    """

    def __init__(self, core: Any, chunks: Sequence[nn.Module], tp: int) -> None:
        self._core, self._chunks, self.tp = core, tuple(chunks), tp
        self._heard: dict[tuple[int, str], list[tuple[_See, bool]]] = {}
        self._hooks: list[Any] = []
        self._scopes: list[Any] = []
        self._layers: dict[nn.Module, tuple[nn.Module, nn.Module | None]] = {}
        for chunk in chunks:
            layers = list(getattr(getattr(chunk, "decoder", None), "layers", ()))
            for layer, after in pairwise([*layers, None]):
                if layer is not None:
                    # What is told names the module that the block calls, with what is around the layer.
                    self._layers[bare(layer)] = layer, after

    @classmethod
    def of(cls, chunks: Sequence[nn.Module], tp: int) -> Observations | None:
        """Return what listens to the chunks; None where this Megatron-Core tells nothing."""
        core = sys.modules.get("megatron.core.tensor_observation")
        return None if core is None else cls(core, chunks, tp)

    def before(self, layer: nn.Module) -> Observed | None:
        """Return what tells of the residual stream at a layer's input."""
        at, _ = self._layers.get(bare(layer), (None, None))
        return None if at is None else self.heard(at, "residual_accumulator")

    def after(self, layer: nn.Module) -> Observed | None:
        """Return what tells of it at a layer's output: the next layer's input, on the last one nothing."""
        _, following = self._layers.get(bare(layer), (None, None))
        return None if following is None else self.heard(following, "residual_accumulator")

    def heard(self, owner: nn.Module, name: str, *, once: bool = False) -> Observed:
        """Return what tells of a tensor of ``owner``.

        With ``once``, of what all tensor-parallel processes have the first one tells, and the others None.
        """
        return partial(self._watch, owner, name, once)

    def contribution(self, layer: nn.Module) -> Observed | None:
        """Return what tells of what a layer adds to it; of other modules nothing does."""
        at, _ = self._layers.get(layer, (None, None))
        return None if at is None else self.heard(at, "residual_contribution", once=True)

    def _watch(self, owner: nn.Module, name: str, once: bool, see: _See) -> SimpleNamespace:
        if not self._hooks:
            for chunk in self._chunks:
                self._hooks.append(hook_before(chunk, self._open))
                # Whoever opened last closes first.
                self._hooks.append(hook_after(chunk, self._close, prepend=True, always_call=True))
        key, entry = (id(owner), name), (see, once)
        self._heard.setdefault(key, []).append(entry)
        return SimpleNamespace(remove=partial(self._forget, key, entry))

    def _forget(self, key: tuple[int, str], entry: tuple[_See, bool]) -> None:
        several = self._heard.get(key, [])
        if entry in several:
            several.remove(entry)
        if not several:
            self._heard.pop(key, None)
        if not self._heard:
            hooks, self._hooks = self._hooks, []
            for hook in hooks:
                hook.remove()
            while self._scopes:
                self._close()

    def _open(self, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        outer = copy_context()
        kinds = _Kinds((name.partition(".")[0] for _, name in self._heard), self._core, outer)
        scope = self._core.capture_tensor_observations(partial(self._told, outer), kinds)
        scope.__enter__()
        self._scopes.append(scope)

    def _close(self, *_: Any) -> None:
        if self._scopes and not torch.compiler.is_compiling():
            self._scopes.pop().__exit__(None, None, None)

    def _told(
        self, outer: Context, owner: Any, name: str, kind: str, tensor: Tensor, tp_shard_dim: int | None
    ) -> None:
        whole = tp_shard_dim is None and self.tp > 0
        for see, once in tuple(self._heard.get((id(owner), name), ())):
            see(None if once and whole else tensor)
        # In the context before ours, the observer before ours is the active one.
        outer.run(self._core.observe_tensor, owner, name, kind, tensor, tp_shard_dim=tp_shard_dim)


class _Kinds(frozenset[str]):
    """The kinds of tensors that we listen to, and those that the observer before us does."""

    def __new__(cls, own: Iterator[str], core: Any, outer: Context) -> _Kinds:
        made = super().__new__(cls, own)
        made.asked = partial(outer.run, core.is_observing_tensor)  # type: ignore[attr-defined]
        return made

    def __contains__(self, kind: object) -> bool:
        return super().__contains__(kind) or bool(self.asked(kind))  # type: ignore[attr-defined]


def router_probabilities(
    layers: Mapping[int, nn.Module], experts: int, shards: Shards, observations: Observations
) -> FlagPoints:
    """Return where the probabilities of all experts are told; a stage without a mixture has none."""
    found = {}
    for number, layer in layers.items():
        if (router := find(layer, "mlp.router")) is not None:
            heard = observations.heard(router, "router_scores")
            source = Source(router, features=(experts,), sequence_first=True, shards=shards, observed=heard)
            found[number] = (source,)
    return FlagPoints(found)


def observed_features(
    modules: Iterable[MegatronModule], observations: Observations, predictors: int
) -> Iterator[FeaturePoint]:
    """Give what is told and no hook of ours sees: what layers add to the residual stream, logits, and the
    logits and scores of routers. ``predictors`` are those of further tokens.
    """
    for at in modules:
        heard = partial(observations.heard, at.module, once=True)
        kinds = {kind.__name__ for kind in type(at.module).__mro__}
        told: list[str] = []
        if (contribution := observations.contribution(at.module)) is not None:
            yield FeaturePoint(
                "residual", f"{at.name}/residual_contribution", at.module, _itself, observed=contribution
            )
        if at.name.split(".")[-1] == "output_layer":
            told = ["output_logits", *(f"mtp_logits.{number}" for number in range(predictors))]
        if "TopKRouter" in kinds:
            told = ["router_logits"]
            scores = heard("router_scores")
            yield FeaturePoint("router_entropy", at.name, at.module, router_entropy, observed=scores)
        for name in told:
            yield FeaturePoint("activation", f"{at.name}/{name}", at.module, _itself, observed=heard(name))


def _itself(tensor: Tensor) -> Tensor:
    return tensor
