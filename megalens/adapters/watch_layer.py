"""What one watched pass has shown of one layer: which modules give what, by where their features went."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from . import feature_ids
from .watch_flow import Flow
from .watch_trail import (
    Call,
    Features,
    Gated,
    Group,
    Made,
    NotSeen,
    Seen,
    Trail,
    bent,
    is_all_of,
    owners_of,
    same_planes,
)

SCORES = frozenset(("", "softmax", "sigmoid"))
"""What makes probabilities of the numbers of a router."""
EXACT = frozenset(("cast", "cut"))
"""What may have been done with probabilities that are still those of the softmax."""
_AFTER = ("normed", "rotated", "scaled", "shifted", "gated", "added", "convolved", "cast", "dropout")
_SUMMED = frozenset(("added", "cast", "dropout", "scaled", "shifted", "normed"))
"""What may have been done with a residual stream."""
_ELSEWHERE = (0, -1), (1, -2), (1, -3), (2, -1), (2, -2)
"""Where queries, keys and heads of ``[B, H, S, S]`` are not."""
Place = tuple[Call, Seen, str]
"""A tensor at the ``output`` or ``input`` of a call of a module."""
_WORDS = {"cast": None, "dropout": None, "added": "added to something else"}


class LayerSeen:
    """One layer in one of its calls."""

    def __init__(self, flow: Flow, calls: Sequence[Call], layer: Call, names: dict[nn.Module, str]) -> None:
        self._flow, self.names, self.layer = flow, names, layer
        self.calls = [call for call in calls[layer.number :] if call.inside(layer)]
        self._later = calls[max((call.number for call in self.calls), default=layer.number) + 1 :]
        self._attentions = [a for a in flow.attentions if a.call is not None and a.call.inside(layer)]
        self._made = [made for made in flow.made if made.within(layer)]
        self._own = {made.number for made in self._made}
        self.given = {owner for seen in layer.given for owner in owners_of(seen.trail)}
        """Of which features the layer is given values."""
        self._streams = {owner for seen in layer.gave for owner in owners_of(seen.trail)}
        given = [owners for seen in layer.given if (owners := owners_of(seen.trail))]
        kept = [owners for owners in given if owners & self._streams]
        self._main = frozenset[int]().union(*(kept or given[:1]))
        """Of which features the residual stream has values that the layer is given."""

    def name(self, module: Any) -> str:
        return "a function" if module is None else self.names.get(module, type(module).__name__)

    # Attention.

    def attention(self, hints: Iterable[nn.Module]) -> Group:
        """Return the self-attention of the layer: of several the one that was supposed, or the first."""
        groups = self._groups()
        if not groups:
            raise NotSeen(self._no_attention())
        # Scores without a softmax choose what another attention attends to.
        groups = [group for group in groups if any(each.softmax for each in group.attentions)] or groups
        own = [group for group in groups if not group.crosses]
        count = len(own)
        if count > 1:
            for made in self._flow.made:
                owners = owners_of(made.given)
                if made.attention is None and sum(bool(owners & group.gives) for group in own) > 1:
                    # They are heads of one.
                    raise NotSeen(
                        f"This layer has {count} attentions with projections of their own, which go into "
                        "one together: there is no one tensor of queries, keys and values."
                    )
            hinted = set(hints)
            named = [g for g in own if any(f.made.giver in hinted for f in g.parts.get("q", ()))]
            own = named if len(named) == 1 else own
            how = "the one that was supposed" if len(named) == 1 else "the first"
            own[0].among = f"one of {count} attentions of this layer, {how}"
        return (own or groups)[0]

    def _no_attention(self) -> str:
        lost = {name for name, call in self._flow.lost if call is not None and call.inside(self.layer)}
        if lost:
            names = ", ".join(sorted(lost))[:200]
            return f"No attention was seen in this layer: what goes through {names} could not be followed."
        if self._attentions:
            return (
                "What is multiplied in this layer goes through no softmax: of a linear attention, or a state "
                "space, queries, keys and values cannot be told."
            )
        return (
            "No attention was seen in this layer: no products of queries and keys were followed through a "
            "softmax to values."
        )

    def _groups(self) -> list[Group]:
        groups: dict[Any, Group] = {}
        for attention in (each for each in self._attentions if each.bent):
            key = tuple(tuple(sorted(owners_of(getattr(attention, part)))) for part in "qkv")
            groups.setdefault(key, Group([])).attentions.append(attention)
        for group in groups.values():
            try:
                for part in "qkv":
                    rows = [attention.heads[part] for attention in group.attentions]
                    group.parts[part], group.heads[part] = self._features(rows)
            except NotSeen as error:
                group.parts, group.heads, group.unknown = {}, {}, f"Of {part}: {error}"
            group.crosses = self._crosses(group.parts.get("q", ()), group.parts.get("k", ()))
        return list(groups.values())

    def _features(self, rows: Sequence[Any]) -> tuple[list[Features], int]:
        """Return which features of which projections the rows are; the projection of most of them first."""
        found: dict[int, dict[int, None]] = {}
        heads: set[Any] = set()
        for row in (row for each in rows for row in each):
            by_owner = self._row(row)
            key = frozenset((owner, frozenset(features)) for owner, features in by_owner.items())
            if key not in heads:
                heads.add(key)
                for owner, features in by_owner.items():
                    found.setdefault(owner, {}).update(dict.fromkeys(features))
        made = [Features(self._flow.made[owner], tuple(features)) for owner, features in found.items()]
        return sorted(made, key=lambda each: -len(each.indices)), len(heads)

    def _crosses(self, q: Sequence[Features], k: Sequence[Features]) -> bool | None:
        if not q or not k:
            return None
        one, other = q[0].made, k[0].made
        if one is other:
            return False
        one, other = self._first(one), self._first(other)
        if one.given_key is not None and one.given_key == other.given_key:
            return False
        a, b = one.given, other.given
        return None if not (a and b and a.planes and b.planes) else not same_planes(a, b)

    def _first(self, made: Made) -> Made:
        """Return the first of several projections behind one another, as in latent attention."""
        seen = {made.number}
        while made.given is not None and len(made.given.planes) == 1:
            owners = owners_of(made.given)
            if len(owners) != 1 or not owners <= self._own - seen:
                break
            before = self._flow.made[min(owners)]
            if before.attention is not None:
                break
            seen.add(before.number)
            made = before
        return made

    def context(self, group: Group) -> tuple[Call, Seen]:
        """Return the call that takes what the attention gives, and that tensor."""
        made = self._out(group)
        for call, _ in made.givers:
            for seen in call.given:
                if seen.trail is None or not group.gives & owners_of(seen.trail):
                    continue
                each = [{*plane.owners} for plane in seen.trail.planes]
                if any(group.gives & owners and owners - group.gives for owners in each):
                    raise NotSeen(
                        f"{self.name(call.module)} is given other features beside what the attention gives."
                    )
                return call, seen
        self.along_the_last(made)
        where = made.call and self.name(made.call.module)
        raise NotSeen(
            f"No module is given what the attention gives: {where} multiplies it by a weight of its own."
        )

    def _out(self, group: Group) -> Made:
        """Return what is made of what the attention gives."""
        found = [made for made in self._flow.made if not made.inner and group.gives & owners_of(made.given)]
        if not found:
            raise NotSeen("What the attention gives was not seen to go into a projection.")
        # Of an attention over two streams each has a projection of its own: that of the queries shown.
        positions = [each.made.shape[:-1] for each in group.parts.get("q", ())[:1]]
        return next((made for made in found if made.shape[:-1] in positions), found[0])

    def along_the_last(self, made: Made) -> None:
        """Raise ``NotSeen`` where the features of a product lie along another axis."""
        if made.axis not in (-1, len(made.shape) - 1):
            where = made.call and self.name(made.call.module)
            raise NotSeen(
                f"{where} gives its features along axis {made.axis}, as a convolution does: they are "
                "shown only where they lie along the last one."
            )

    def attention_outputs(self, group: Group) -> list[Place]:
        """Return where modules give what the output projection gives, the outermost first."""
        out = self._out(group)
        found: list[Place] = [
            (call, seen, "output")
            for call in self.calls
            if call is not self.layer and (out.call is None or out.call.inside(call))
            for seen in call.gave
            if is_all_of(seen.trail, out)
        ]
        if not found:
            self.along_the_last(out)
            raise NotSeen(
                "No module gives what the output projection gives: it is computed in the layer itself."
            )
        return found

    def probabilities(self, group: Group) -> list[Place]:
        """Return where the softmax's own result is given or taken by a module."""
        if len(group.attentions) != 1:
            raise NotSeen(f"The attention is computed in {len(group.attentions)} pieces.")
        (attention,) = group.attentions
        if attention.probabilities is None:
            if attention.operation not in ("bmm", "mm", "matmul", "baddbmm"):
                raise NotSeen(
                    f"The attention is computed by {attention.operation}, which gives no probabilities. "
                    "Where the model has an attention of its own in plain operations (often called eager), "
                    "choose that before tracing."
                )
            raise NotSeen("The attention was seen to use no softmax.")
        found: dict[bool, list[Place]] = {False: [], True: []}
        otherwise = set[str]()
        places = [
            (c, seen, side)
            for c in self.calls
            for side, each in (("output", c.gave), ("input", c.given))
            for seen in each
        ]
        for call, seen, side in places:
            trail = seen.trail
            if trail is None or trail.scores is not attention or len(seen.shape) < 3:
                continue
            if not trail.softmaxed:
                continue
            notes = set(trail.notes) - EXACT
            if (
                "cut" in trail.notes
                and attention.keys is not None
                and seen.shape[-1] != attention.keys.shape[-2]
            ):
                # What is beside the keys, such as a sink, may be cut off, but no key.
                notes.add("being cut")
            if any(trail.along(which, axis) for which, axis in _ELSEWHERE):
                notes.add("with other axes")
            if notes - {"dropout"}:
                otherwise |= notes
            elif len(seen.shape) != 4 or trail.head_axis() is None:
                otherwise.add("with heads and samples in one axis")
            else:
                found[bool(notes)].append((call, seen, side))
        if places := found[False] or found[True]:
            return sorted(places, key=lambda each: (each[2] == "input", each[0].number))
        if otherwise:
            how = sorted(each if each.startswith("with ") else f"after {each}" for each in otherwise)
            raise NotSeen(
                "No module gives or takes the probabilities as the softmax gives them, with samples, heads, "
                f"queries and keys as axes: only {', '.join(how)[:200]}."
            )
        raise NotSeen(
            "The probabilities exist only inside of a function: no module is given them or gives them."
        )

    def router(self, hint: nn.Module, count: int) -> tuple[Call, Seen, Made]:
        """Return the call that gives a number for each of ``count`` experts, best one that chooses."""
        found: list[tuple[bool, bool, bool, int, Call, Seen, Made]] = []
        for call in self.calls:
            for seen in call.gave:
                made = self._flow.whole(seen.trail)
                if made is not None and made.width == count:
                    other = made.scored not in SCORES
                    rank = not made.chooses, other, call.module is not hint, len(found)
                    found.append((*rank, call, seen, made))
        if not found or (min(found)[0] and min(found)[2]):
            raise NotSeen("The router gives no tensor with a number for each expert that could be followed.")
        return min(found)[4:]

    def follows(self, other: LayerSeen) -> bool:
        """Return whether this layer is given what ``other`` gives, also by way of what keeps its features."""
        keys = {seen.key for seen in other.layer.gave}
        gave = {owners_of(seen.trail) for seen in other.layer.gave} - {frozenset()}
        return any(seen.key in keys or owners_of(seen.trail) in gave for seen in self.layer.given)

    def keeps(self) -> bool:
        """Return whether what the layer gives still has the features that it was given: a residual stream."""
        return bool(self.given & self._streams)

    def handed_on(self) -> Iterator[tuple[Call, Seen, str | None]]:
        """Give the modules that are given the stream with what this layer adds, where it is added outside.

        The last is None where a norm lies between that the stream itself does not go through.
        """
        before = frozenset[object]().union(*(seen.trail.norms for seen in self.layer.given if seen.trail))
        for call in self._later:
            for seen in call.given:
                owners, trail = owners_of(seen.trail), seen.trail
                adds = self._streams and self._streams <= owners and owners & self.given
                if not adds or trail is None or not owners <= self.given | self._own:
                    continue
                if set(trail.notes) <= _SUMMED:
                    beside = trail.norms - before and before - trail.norms
                    yield call, seen, None if beside else ", normed" if trail.norms - before else ""

    # MLP.

    def mlps(self, attention: Group | None) -> list[tuple[Made, Gated | Features | None]]:
        """Return the last projection of each MLP of the layer, with what goes into its nonlinearity.

        That is None where it cannot be told. It is added to the residual stream.
        """
        taken = {a.made.number for a in self._attentions if a.made is not None}
        parts = attention.parts.values() if attention else ()
        used = {(f.made.number, index) for features in parts for f in features for index in f.indices}
        found: list[tuple[Made, Gated | Features | None]] = []
        untold: list[tuple[Made, Gated | Features | None]] = []
        for made in self._made:
            trail = made.given
            if (
                trail is None
                or not made.givers
                or owners_of(trail) & taken
                or made.number not in self._streams
                or not self._of_stream(trail)
            ):
                continue
            first = self._gated(trail) or self._activated(trail)
            if first is None:
                # A stream that is bent between layers is no MLP's.
                here = [each for each in _bent_parts(trail) if (each.origins | owners_of(each)) & self._own]
                untold += [(made, None)] if here else []
                continue
            halves = (first.gate, first.up) if isinstance(first, Gated) else (first,)
            if not any((half.made.number, index) in used for half in halves for index in half.indices):
                found.append((made, first))
        return found or untold

    def _of_stream(self, trail: Trail) -> bool:
        """Return whether a tensor depends on the residual stream, by way of projections of this layer.

        What does not, such as the scale and shift of a norm that follow from a time, is no MLP's.
        """
        stream, first = self._streams | self._main, min(self._own, default=0)
        few = {1, *(size for each in self.layer.gave for size in each.shape[:1])}
        left, seen = {*trail.origins, *owners_of(trail)}, set[int]()
        while self._main and left:
            number = left.pop()
            # What was made meanwhile outside of the layer's modules may be made of the stream.
            if number in stream or (number > first and number not in self._own):
                return True
            seen.add(number)
            made = self._flow.made[number]
            if number in self._own and made.given is not None:
                left |= {*made.given.origins, *owners_of(made.given)} - seen
            elif number in self._own and math.prod(made.shape[:-1]) not in few:
                # What it is made of was lost, such as on the way from one layout of a distributed tensor to
                # another; what follows from a time has a row for each sample.
                return True
        return not self._main

    def convolved(self) -> Iterator[Made]:
        """Give what brings a nonlinearity's result to the stream and is given by no module."""
        for made in self._made:
            if made.number in self._streams and not made.givers and made.given and bent(made.given):
                yield made

    def _gated(self, trail: Trail) -> Gated | None:
        for product in reversed(trail.products):
            left, right = self._only(product.left), self._only(product.right)
            one, other = bent(product.left), bent(product.right)
            if left is not None and right is not None and bool(one) != bool(other):
                return Gated(left, right, one) if one else Gated(right, left, other)
        return None

    def _activated(self, trail: Trail) -> Features | None:
        return self._only(trail) if bent(trail) and "gated" not in trail.notes else None

    def _only(self, trail: Trail) -> Features | None:
        """Return the features of one projection of this layer that a tensor holds; None if others."""
        if len(trail.planes) != 1 or not owners_of(trail) <= self._own:
            return None
        try:
            features, _ = self._features([feature_ids.rows(trail.planes)])
        except (NotSeen, feature_ids.TooLarge):
            return None
        return features[0] if len(features) == 1 and features[0].made.attention is None else None

    def _row(self, row: Any) -> dict[int, list[int]]:
        """Return the features of one head by projection.

        Where features were added to one another, as a rotation does, they are in the order of the projection;
        else in that in which the attention has them.
        """
        owners, features = row >> feature_ids.SHIFT, row & feature_ids.FEATURE
        newest = owners.max(0)
        if len(owners) > 1:
            for column in owners[:, newest >= 0].T:
                if len(summands := sorted(self._own.intersection(column.tolist()))) > 1:
                    where = " and ".join(self.name(self._flow.made[each].giver) for each in summands)
                    raise NotSeen(f"It is the sum of what {where} give, and no module gives that sum.")
        # Column by column, as the head has them.
        of_newest = (owners == newest).T
        owners, features = owners.T[of_newest], features.T[of_newest]
        found: dict[int, list[int]] = {}
        for owner in (each for each in dict.fromkeys(newest.tolist()) if each >= 0):
            here = features[owners == owner].tolist()
            distinct, columns = list(dict.fromkeys(here)), int((newest == owner).sum())
            if len(distinct) != columns:
                raise NotSeen(
                    f"A head of {columns} features was seen to be a mixture of {len(distinct)}, which "
                    "cannot be told apart."
                )
            found[owner] = distinct if len(here) == columns else sorted(distinct)
        return found


def _bent_parts(trail: Trail) -> list[Trail]:
    """Return what of a tensor went through a nonlinearity: itself, or factors that it is the product of."""
    factors = [each for product in trail.products for each in (product.left, product.right)]
    return [each for each in (trail, *factors) if bent(each)]


def trail_words(trail: Trail | None) -> str:
    """Return what was done with features, in words."""
    notes = () if trail is None else trail.notes
    words = [_WORDS.get(note, note) for note in notes if note in _AFTER]
    if "rotated" in words:
        words = [word for word in words if word != "scaled"]
    return ", ".join(word for word in words if word)
