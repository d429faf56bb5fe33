"""Finds the sources of each flag in one layer of a watched pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn

from ..tracer import Source
from .feature_parts import FeatureParts
from .layer_sources import RouterScores
from .sizes import stored
from .torch_coordinates import input_shards, output_shards
from .watch_layer import SCORES, LayerSeen, Place, trail_words
from .watch_trail import Call, Features, Gated, Group, Made, NotSeen, Seen, bent

Finding = tuple[tuple[Source, ...], str]
"""Sources of one flag in one layer, and what shows that they are right."""


@dataclass
class LayerFinder:
    """Finds the sources of each flag in one layer.

    ``calls`` are those of the layer, only the first of which is in ``seen``; ``beside`` are the layers before
    and after it.
    """

    seen: LayerSeen
    hints: Mapping[str, Sequence[Source]]
    calls: Sequence[Call]
    beside: Sequence[LayerSeen]
    by_module: Mapping[nn.Module, Sequence[Call]]

    def __post_init__(self) -> None:
        self.name = self.seen.name
        self.sequence_first = self.hints["HiddenStates"][0].sequence_first
        self.several = 1
        self.group: Group | NotSeen
        try:
            self.group = self.seen.attention(s.module for s in self.hints.get("QKV_mat_mul", ()))
            self.sequence_first = self._order(self.group)
        except NotSeen as error:
            self.group = error
        self.finders: dict[str, Callable[[], Finding]] = {
            "QKV_mat_mul": self.qkv,
            "RawAttentionScore_mat_mul": self.probabilities,
            "ContextLayer_mat_mul": self.context,
            "AttentionOutput_mat_mul": self.attention_output,
            "MLP1_mat_mul": self.mlp1,
            "MLP2_mat_mul": self.mlp2,
            "HiddenStates": self.hidden,
        }
        if self.hints.get("RouterProbabilities"):
            self.finders["RouterProbabilities"] = self.router
        if self.hints.get("ExpertOutputs"):
            self.finders["ExpertOutputs"] = self.experts

    def checked(self, flag: str, finding: Finding) -> Finding:
        """Return what was found; raises ``NotSeen`` where its modules give other tensors too."""
        for source in (each for each in finding[0] if (flag, each.side) != ("HiddenStates", "input")):
            name, calls = self.name(source.module), self.by_module.get(source.module, ())
            if any(not any(call.inside(each) for each in self.calls) for call in calls):
                raise NotSeen(
                    f"{name} is called outside of this layer too, and what it gives there is not told apart."
                )
            if flag != "HiddenStates" and not self._once(source.module):
                raise NotSeen(_several_times(name, len(calls) // len(self.calls)))
        return finding

    def _once(self, module: nn.Module) -> bool:
        """Return whether a module is called once in each call of the layer."""
        return len(self.by_module.get(module, ())) <= len(self.calls)

    def _order(self, group: Group) -> bool:
        """Return whether positions come before samples, by which axis the attention has them in."""
        queries, features = group.attentions[0].queries, group.parts.get("q")
        shape = features[0].made.shape if features else ()
        if queries is None or len(shape) != 3 or shape[0] == shape[1] or queries.shape[-2] not in shape[:2]:
            return self.sequence_first
        return bool(queries.shape[-2] == shape[0])

    def _source(self, call: Call, shape: Sequence[int], **known: Any) -> Source:
        """Return a source at the border of a module; its tensor may come with other axes than the layer's."""
        given = next((seen.shape for seen in self.seen.layer.given), ())
        fits = len(given) == 3 and math.prod(shape[:-1]) == given[0] * given[1]
        rows = self.seen.layer.shown if len(shape) == 2 or (len(shape) != 3 and fits) else None
        return Source(call.module, sequence_first=self.sequence_first, rows_of=rows, **known)

    def heads(self) -> tuple[int, int] | None:
        """Return the numbers of heads of queries and of keys, over all ranks."""
        if isinstance(self.group, NotSeen) or self.group.unknown:
            return None
        counts = []
        for part in "qk":
            features = self.group.parts[part]
            ranks = _ranks(features[0].made) if features else 1
            counts.append(self.group.heads[part] * ranks)
        return counts[0], counts[1]

    @property
    def _group(self) -> Group:
        if isinstance(self.group, NotSeen):
            raise self.group
        return self.group

    def qkv(self) -> Finding:
        group = self._group
        by_made: dict[int, list[tuple[str, Features]]] = {}
        q, k = self.heads() or (0, 0)
        each = f"{q} heads" + (f", {k} of keys and values" if k != q else "")
        words = [f"they reach the attention ({group.attentions[0].operation}) in {each}"]
        if group.unknown:
            raise NotSeen(group.unknown)
        for part, features in group.parts.items():
            if not features:
                raise NotSeen(f"What reaches the attention as {part} comes from no projection.")
            if features[0].made.number in self.seen.given:
                # The stream itself, of which at most other features or positions come from a projection.
                raise NotSeen(
                    f"What reaches the attention as {part} is also what the layer is given, unprojected."
                )
            by_made.setdefault(features[0].made.number, []).append((part, features[0]))
            for other in features[1:]:
                words.append(
                    f"{part} has {len(other.indices)} features of {self.name(other.made.giver)} besides"
                )
        sources = tuple(self._projected(parts) for parts in by_made.values())
        for part in "qkv":
            done = trail_words(getattr(group.attentions[0], part))
            words += [f"{part} {done} after it"] if done else []
        words += [group.among] if group.among else []
        words += ["a cross-attention: its keys come from elsewhere"] if group.crosses else []
        return sources, "; ".join(words)

    def _projected(self, parts: Sequence[tuple[str, Features]]) -> Source:
        """Return the source of parts that one projection gives."""
        made, names = parts[0][1].made, tuple(part for part, _ in parts)
        self.seen.along_the_last(made)
        if not made.givers:
            raise NotSeen(
                f"No module gives {', '.join(filter(None, names)) or 'it'}: "
                f"{self.name(made.call and made.call.module)} multiplies by a weight of its own."
            )
        call, item = made.givers[0]
        whole = len(parts) == 1 and parts[0][1].whole
        if made.distributed and not whole:
            raise NotSeen(
                f"{self.name(call.module)} gives a distributed tensor, of which this rank's features "
                "are not told apart."
            )
        return self._source(
            call,
            made.shape,
            item=item,
            parts=names,
            split=None if whole else FeatureParts(tuple(each.indices for _, each in parts)),
            features=tuple(len(each.indices) * _ranks(made) for _, each in parts),
            shards=output_shards(call.module),
        )

    def probabilities(self) -> Finding:
        (call, seen, side), _ = self._place("RawAttentionScore_mat_mul", self.seen.probabilities(self._group))
        dropped = seen.trail is not None and "dropout" in seen.trail.notes
        cut = output_shards(*(each.made.giver for each in self._group.parts.get("q", ())))
        source = Source(
            call.module,
            side="input" if side == "input" else "output",
            item=seen.item,
            keyword=seen.keyword,
            shards="heads" if cut == "features" else "none",
            sequence_first=seen.trail is not None and seen.trail.head_axis() == 0,
        )
        return (source,), (
            "what the softmax gave, after dropout" if dropped else "the very values that the softmax gave"
        )

    def context(self) -> Finding:
        call, seen = self.seen.context(self._group)
        done = trail_words(seen.trail)
        source = self._source(
            call,
            seen.shape,
            side="input",
            item=seen.item,
            keyword=seen.keyword,
            features=(_size(call.module, "in_features", seen),),
            shards=input_shards(call.module),
        )
        return (source,), "it is given what the attention gives" + (f", {done}" if done else "")

    def attention_output(self) -> Finding:
        places = self.seen.attention_outputs(self._group)
        (call, seen, _), (last, _, _) = self._place("AttentionOutput_mat_mul", places)
        source, done = self._plain(call, seen.item, last.module), trail_words(seen.trail)
        return (source,), "what the output projection gives" + (f", {done}" if done else "")

    def _place(self, flag: str, places: Sequence[Place]) -> tuple[Place, Place]:
        """Return the supposed one of the places where a flag is, or the first, and the last of them all."""
        places = [place for place in places if self._once(place[0].module)] or places
        hints = [(hint.module, hint.side, hint.item) for hint in self.hints.get(flag, ())]
        chosen = next((p for p in places if (p[0].module, p[2], p[1].item) in hints), places[0])
        return chosen, places[-1]

    def mlp1(self) -> Finding:
        made, first = self._mlp
        to = self.name(made.giver)
        if first is None:
            raise NotSeen(
                f"What goes through a nonlinearity to {to} is more than the features of one "
                "projection, or two that are multiplied."
            )
        if isinstance(first, Features):
            return (self._projected([("", first)]),), f"it goes through a nonlinearity to {to}"
        parts = [("gate", first.gate), ("up", first.up)]
        fused = first.gate.made is first.up.made
        sources = [self._projected(each) for each in ([parts] if fused else [[part] for part in parts])]
        return tuple(sources), f"gate goes through {first.activation} and is multiplied by up"

    def mlp2(self) -> Finding:
        if self.hints.get("MLP2_mat_mul") and self.hints.get("RouterProbabilities"):
            return tuple(self.hints["MLP2_mat_mul"]), "what all experts give together"
        made, _ = self._mlp
        count = self.several
        more = f"; one of {count} MLPs of this layer, the one that was supposed" if count > 1 else ""
        return (self._plain(*made.givers[0]),), f"it goes from the nonlinearity to the residual stream{more}"

    def router(self) -> Finding:
        (hint,) = self.hints["RouterProbabilities"]
        call, seen, made = self.seen.router(hint.module, hint.features[0] or 0)
        by = made.scored if made.scored in SCORES else ""
        by = "" if seen.trail and bent(seen.trail) else by or "?"
        source = replace(
            hint, module=call.module, computed=RouterScores(seen.item, "softmax" if by == "?" else by)
        )
        shown = {"": "they went through it already", "?": "softmax of it: the pass was not seen to score it"}
        said = "the largest of its scores are chosen" if made.chooses else "by its shape the router"
        return (source,), f"{shown.get(by, f'it goes through a {by}')}; {said}"

    def experts(self) -> Finding:
        sources = tuple(self.hints["ExpertOutputs"])
        modules = dict.fromkeys(source.module for source in sources)
        called = sum(module in self.by_module for module in modules)
        if not called:
            raise NotSeen(
                f"What each of {len(sources)} experts gives was not seen: none of them is called as a module."
            )
        one = f"one call of {self.name(sources[0].module)} computes all {len(sources)}"
        how = one if len(modules) == 1 else f"{called} of {len(sources)} were called in the watched pass"
        return sources, f"by their shapes the experts; {how}"

    @cached_property
    def _mlp(self) -> tuple[Made, Gated | Features | None]:
        if self.hints.get("RouterProbabilities") or self.hints.get("ExpertOutputs"):
            raise NotSeen(
                "This layer is a mixture of experts, whose first linear layers see other tokens each, so "
                "that there is no one tensor."
            )
        found = self.seen.mlps(None if isinstance(self.group, NotSeen) else self.group)
        self.several = len(found)
        if len(found) > 1:
            hinted = {source.module for source in self.hints.get("MLP2_mat_mul", ())}
            found = [
                each for each in found if any(call.module in hinted for call, _ in each[0].givers)
            ] or found
        if not found:
            for made in self.seen.convolved():
                self.seen.along_the_last(made)
            raise NotSeen(
                "No projection was seen to take what comes of a nonlinearity, or of a gate, and to be added "
                "to the residual stream."
            )
        if len(found) > 1:
            givers = [self.name(made.giver) for made, _ in found]
            if len({made.giver for made, _ in found}) == 1:
                raise NotSeen(_several_times(givers[0], len(found)))
            raise NotSeen(
                f"This layer has {len(found)} MLPs (to {', '.join(givers)[:200]}), and one is shown."
            )
        return found[0]

    def hidden(self) -> Finding:
        hint, own, layer = self.hints["HiddenStates"][0], self.seen, self.seen.layer
        if not layer.gave:
            raise NotSeen(f"{own.name(hint.module)} gives no tensor.")
        linked = any(own.follows(each) or each.follows(own) for each in self.beside)
        if not (linked or own.keeps() or own.follows(own)):
            behind = False
            for call, seen, how in own.handed_on():
                behind |= how is None
                if how is not None and len(self.by_module[call.module]) == 1:
                    place = replace(hint, module=call.module, side="input", item=seen.item)
                    place = replace(place, keyword=seen.keyword, features=(seen.shape[-1],))
                    return (place,), f"what {own.name(call.module)} is given: the sum after this layer{how}"
            raise NotSeen(
                f"What {own.name(hint.module)} gives is not what the next layer was seen to be given, nor "
                "the residual stream"
                + (
                    ", and the sum with it is given to modules behind a norm of theirs only."
                    if behind
                    else "."
                )
            )
        times = f", called {len(self.calls)} times a pass" if len(self.calls) > 1 else ""
        seen = next((each for each in layer.gave if each.item == hint.item), layer.gave[0])
        try:
            last: nn.Module | None = self._mlp[0].giver
        except NotSeen:
            last = None
        source = replace(
            hint,
            module=layer.shown,
            item=seen.item,
            features=(seen.shape[-1],),
            sequence_first=self.sequence_first,
            shards=hint.shards if last is None else output_shards(hint.module, last),
        )
        return (source,), f"what {own.name(layer.shown)} gives{times}"

    def _plain(self, call: Call, item: int, inner: nn.Module | None = None) -> Source:
        """Return the source of what a module gives; its parallel style may be that of one in it."""
        seen = next(each for each in call.gave if each.item == item)
        size = _size(call.module, "out_features", seen)
        shards = output_shards(call.module, inner)
        return self._source(call, seen.shape, item=item, features=(size,), shards=shards)


def _ranks(made: Made) -> int:
    """Return over how many ranks the features of a projection are spread."""
    size = stored(made.giver, "out_features")
    return size // made.width if isinstance(size, int) and made.width and size % made.width == 0 else 1


def _size(module: nn.Module, name: str, seen: Seen) -> int:
    size = stored(module, name)
    return size if isinstance(size, int) else seen.shape[-1]


def _several_times(name: str, times: int) -> str:
    return (
        f"{name} is called {times} times in one pass of this layer, and what it gives each time is not "
        "told apart."
    )
