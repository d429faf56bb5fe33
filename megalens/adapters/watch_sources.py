"""Finds the sources of each flag in one layer of a watched pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from ..tracer import Source
from .feature_parts import FeatureParts
from .layer_sources import RouterScores
from .sizes import stored
from .torch_coordinates import input_shards, output_shards
from .watch_calls import Call, Features, Gated, Group, NotSeen, Seen
from .watch_layer import LayerSeen, giver, trail_words
from .watch_trail import Made

Finding = tuple[tuple[Source, ...], str]
"""Sources of one flag in one layer, and what shows that they are right."""


@dataclass
class LayerFinder:
    """Finds the sources of each flag in one layer."""

    seen: LayerSeen
    hints: Mapping[str, Sequence[Source]]
    calls: Sequence[Call]
    """Those of the layer; only the first of them is in ``seen``."""
    beside: Sequence[LayerSeen]
    """The layers before and after it."""
    by_module: Mapping[nn.Module, Sequence[Call]]

    def __post_init__(self) -> None:
        first = self.hints["HiddenStates"][0]
        self.sequence_first = first.sequence_first
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

    def checked(self, flag: str, finding: Finding) -> Finding:
        """Return what was found; raises ``NotSeen`` where its modules give other tensors too."""
        for source in (each for each in finding[0] if (flag, each.side) != ("HiddenStates", "input")):
            name = self.seen.name(source.module)
            calls = self.by_module.get(source.module, ())
            if any(not any(call.inside(each) for each in self.calls) for call in calls):
                raise NotSeen(
                    f"{name} is called outside of this layer too, and what it gives there is not told apart."
                )
            if flag != "HiddenStates" and not self._once(source.module):
                raise NotSeen(self._several_times(name, len(calls) // len(self.calls)))
        return finding

    @staticmethod
    def _several_times(name: str, times: int) -> str:
        return (
            f"{name} is called {times} times in one pass of this layer, and what it gives each time is not "
            "told apart."
        )

    def _once(self, module: nn.Module) -> bool:
        """Return whether a module is called once in each call of the layer."""
        return len(self.by_module.get(module, ())) <= len(self.calls)

    def _order(self, group: Group) -> bool:
        """Return whether positions come before samples, by which axis the attention has them in."""
        attention = group.attentions[0]
        features = group.parts.get("q")
        shape = features[0].made.shape if features else ()
        if attention.queries is None or len(shape) != 3 or shape[0] == shape[1]:
            return self.sequence_first
        positions = attention.queries.shape[-2]
        return positions == shape[0] if positions in shape[:2] else self.sequence_first

    def heads(self) -> tuple[int, int] | None:
        """Return the numbers of heads of queries and of keys, over all ranks."""
        if isinstance(self.group, NotSeen):
            return None
        counts = []
        if self.group.unknown:
            return None
        for part in "qk":
            features = self.group.parts[part]
            call = features[0].made.givers[0][0] if features and features[0].made.givers else None
            ranks = 1 if call is None else self._ranks(call.module, features[0].made)
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
        beside = []
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
            beside += [(part, each) for each in features[1:]]
        sources = tuple(self._projected(parts) for parts in by_made.values())
        q, k = self.heads() or (0, 0)
        each = f"{q} heads" + (f", {k} of keys and values" if k != q else "")
        words = [f"they reach the attention ({group.attentions[0].operation}) in {each}"]
        for part, other in beside:
            name = self._giver(other.made) if other.made.givers else "a function"
            words.append(f"{part} has {len(other.indices)} features of {name} besides")
        for part in "qkv":
            done = trail_words(getattr(group.attentions[0], part))
            words += [f"{part} {done} after it"] if done else []
        words += [_chosen(group.among, "attentions")] if group.among > 1 else []
        if group.crosses:
            words.append("a cross-attention: its keys come from elsewhere")
        return sources, "; ".join(words)

    def _projected(self, parts: Sequence[tuple[str, Features]]) -> Source:
        """Return the source of parts that one projection gives."""
        made = parts[0][1].made
        names = tuple(part for part, _ in parts)
        if not made.givers:
            where = "a function" if made.call is None else self.seen.name(made.call.module)
            raise NotSeen(
                f"No module gives {', '.join(filter(None, names)) or 'it'}: {where} multiplies by a weight "
                "of its own."
            )
        call, item = made.givers[0]
        if made.axis not in (-1, len(made.shape) - 1):
            raise NotSeen(f"{self.seen.name(call.module)} gives its features along axis {made.axis}.")
        whole = len(parts) == 1 and parts[0][1].whole
        if made.distributed and not whole:
            raise NotSeen(
                f"{self.seen.name(call.module)} gives a distributed tensor, of which this rank's features "
                "are not told apart."
            )
        ranks = self._ranks(call.module, made)
        return Source(
            call.module,
            item=item,
            parts=names,
            split=None if whole else FeatureParts(tuple(each.indices for _, each in parts)),
            features=tuple(len(each.indices) * ranks for _, each in parts),
            shards=output_shards(call.module),
            sequence_first=self.sequence_first,
            rows_of=self.seen.layer.shown if len(made.shape) == 2 else None,
        )

    def _ranks(self, module: nn.Module, made: Made) -> int:
        """Return over how many ranks the features of a projection are spread."""
        size = stored(module, "out_features")
        return size // made.width if isinstance(size, int) and made.width and size % made.width == 0 else 1

    def probabilities(self) -> Finding:
        places = self.seen.probabilities(self._group)
        places = [place for place in places if self._once(place[0].module)] or places
        trail = places[0][1].trail
        dropped = trail is not None and "dropout" in trail.notes
        shown = "what the softmax gave, after dropout" if dropped else "the very values that the softmax gave"
        for hint in self.hints.get("RawAttentionScore_mat_mul", ()):
            if (hint.module, hint.side, hint.item) in (
                (call.module, side, at.item) for call, at, side in places
            ):
                return (hint,), shown
        call, seen, side = places[0]
        cut = output_shards(*(giver(each.made) for each in self._group.parts.get("q", ())))
        source = Source(
            call.module,
            side="input" if side == "input" else "output",
            item=seen.item,
            keyword=seen.keyword,
            shards="heads" if cut == "features" else "none",
        )
        return (source,), shown

    def context(self) -> Finding:
        call, seen, _made = self.seen.context(self._group)
        done = trail_words(seen.trail)
        source = Source(
            call.module,
            side="input",
            item=seen.item,
            keyword=seen.keyword,
            features=(self._input_width(call, seen),),
            shards=input_shards(call.module),
            sequence_first=self.sequence_first,
            rows_of=self.seen.layer.shown if len(seen.shape) == 2 else None,
        )
        return (source,), "it is given what the attention gives" + (f", {done}" if done else "")

    def _input_width(self, call: Call, seen: Seen) -> int:
        size = stored(call.module, "in_features")
        return size if isinstance(size, int) else int(seen.shape[-1])

    def attention_output(self) -> Finding:
        places = self.seen.attention_outputs(self._group)
        places = [place for place in places if self._once(place[0].module)] or places
        hints = [(hint.module, hint.item) for hint in self.hints.get("AttentionOutput_mat_mul", ())]
        call, item, done = next((p for p in places if (p[0].module, p[1]) in hints), places[0])
        last, _, _ = places[-1]
        source = self._plain(call, item, last.module)
        return (source,), "what the output projection gives" + (f", {done}" if done else "")

    def mlp1(self) -> Finding:
        made, first = self._mlp()
        if first is None:
            raise NotSeen(
                f"What goes through a nonlinearity to {self._giver(made)} is more than the features of one "
                "projection, or two that are multiplied."
            )
        if isinstance(first, Features):
            source = self._projected([("", first)])
            return (source,), f"it goes through a nonlinearity to {self._giver(made)}"
        parts = [("gate", first.gate), ("up", first.up)]
        if first.gate.made is first.up.made:
            sources: tuple[Source, ...] = (self._projected(parts),)
        else:
            sources = tuple(self._projected([part]) for part in parts)
        return sources, f"gate goes through {first.activation} and is multiplied by up"

    def mlp2(self) -> Finding:
        if self.hints.get("MLP2_mat_mul") and self.hints.get("RouterProbabilities"):
            return tuple(self.hints["MLP2_mat_mul"]), "what all experts give together"
        made, _ = self._mlp()
        call, item = made.givers[0]
        more = f"; {_chosen(self.several, 'MLPs')}" if self.several > 1 else ""
        return (self._plain(call, item),), f"it goes from the nonlinearity to the residual stream{more}"

    def router(self) -> Finding:
        (hint,) = self.hints["RouterProbabilities"]
        seen, by = self.seen.router(self.by_module.get(hint.module, ()), hint.features[0] or 0)
        source = replace(hint, computed=RouterScores(seen.item, "softmax" if by == "?" else by))
        shown = {"": "they went through it already", "?": "softmax of it: the pass was not seen to score it"}
        return (source,), f"{shown.get(by, f'it goes through a {by}')}; by its shape the router"

    def _giver(self, made: Made) -> str:
        return self.seen.name(made.givers[0][0].module)

    def _mlp(self) -> tuple[Made, Gated | Features | None]:
        if self.hints.get("RouterProbabilities"):
            raise NotSeen(
                "This layer is a mixture of experts, whose first linear layers see other tokens each, so "
                "that there is no one tensor."
            )
        group = None if isinstance(self.group, NotSeen) else self.group
        found = self.seen.mlps(group)
        inside = {source.module for source in self.hints.get("ExpertOutputs", ())}
        found = [each for each in found if not any(_within(each[0].call, module) for module in inside)]
        self.several = len(found)
        if len(found) > 1:
            hinted = {source.module for source in self.hints.get("MLP2_mat_mul", ())}
            found = [
                each for each in found if any(call.module in hinted for call, _ in each[0].givers)
            ] or found
        if not found:
            raise NotSeen(
                "No projection was seen to take what comes of a nonlinearity, or of a gate, and to be added "
                "to the residual stream."
            )
        if len(found) > 1 and len({giver(made) for made, _ in found}) == 1:
            raise NotSeen(self._several_times(self._giver(found[0][0]), len(found)))
        if len(found) > 1:
            where = ", ".join(self._giver(made) for made, _ in found)[:200]
            raise NotSeen(f"This layer has {len(found)} MLPs (to {where}), and one is shown.")
        return found[0]

    def hidden(self) -> Finding:
        hint = self.hints["HiddenStates"][0]
        calls = self.seen.layer
        if not calls.gave:
            raise NotSeen(f"{self.seen.name(hint.module)} gives no tensor.")
        own = self.seen
        linked = any(own.follows(each) or each.follows(own) for each in self.beside)
        if not (linked or own.keeps() or own.follows(own)):
            for call, seen in own.handed_on():
                if len(self.by_module[call.module]) == 1:
                    place = replace(hint, module=call.module, side="input", item=seen.item)
                    place = replace(place, keyword=seen.keyword, features=(seen.shape[-1],))
                    return (place,), f"what {own.name(call.module)} is given: the sum after this layer"
            raise NotSeen(
                f"What {own.name(hint.module)} gives is not what the next layer was seen to be given, nor "
                "the residual stream."
            )
        times = f", called {len(self.calls)} times a pass" if len(self.calls) > 1 else ""
        seen = next((each for each in calls.gave if each.item == hint.item), calls.gave[0])
        try:
            last: nn.Module | None = giver(self._mlp()[0])
        except NotSeen:
            last = None
        source = replace(
            hint,
            module=calls.shown,
            item=seen.item,
            features=(seen.shape[-1],),
            sequence_first=self.sequence_first,
            shards=hint.shards if last is None else output_shards(hint.module, last),
        )
        return (source,), f"what {own.name(calls.shown)} gives{times}"

    def _plain(self, call: Call, item: int, inner: nn.Module | None = None) -> Source:
        """Return the source of what a module gives; its parallel style may be that of one in it."""
        seen = next(each for each in call.gave if each.item == item)
        size = stored(call.module, "out_features")
        return Source(
            call.module,
            item=item,
            features=(size if isinstance(size, int) else int(seen.shape[-1]),),
            shards=output_shards(call.module, inner),
            sequence_first=self.sequence_first,
            rows_of=self.seen.layer.shown if len(seen.shape) == 2 else None,
        )


def _chosen(count: int, what: str) -> str:
    return f"one of {count} {what} of this layer, chosen by its name"


def _within(call: Call | None, module: nn.Module) -> bool:
    while call is not None:
        if call.module is module:
            return True
        call = call.parent
    return False
