"""What one watched pass has shown of one layer: which modules give what, by where their features went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from . import feature_ids
from .watch_calls import Call, Features, Gated, Group, NotSeen, Seen
from .watch_flow import Flow
from .watch_trail import Made, Trail, bent, is_all_of, owners_of, same_planes

EXACT = frozenset(("cast", "cut"))
"""What may have been done with probabilities that are still those of the softmax."""
_AFTER = ("normed", "rotated", "scaled", "shifted", "gated", "added", "convolved", "cast", "dropout")
_SUMMED = frozenset(("added", "cast", "dropout", "scaled", "shifted"))
"""What may have been done with a residual stream."""
_WORDS = {"cast": None, "dropout": None, "added": "added to something else"}


class LayerSeen:
    """One layer in one of its calls."""

    def __init__(self, flow: Flow, calls: Sequence[Call], layer: Call, names: dict[nn.Module, str]) -> None:
        self._flow, self.names, self.layer = flow, names, layer
        self.calls = [call for call in calls[layer.number :] if call.inside(layer)]
        self._later = calls[max((call.number for call in self.calls), default=layer.number) + 1 :]
        self._attentions = [a for a in flow.attentions if a.call is not None and a.call.inside(layer)]
        self._own = {made.number for made in flow.made if made.call is not None and made.call.inside(layer)}
        self.given = {owner for seen in layer.given for owner in owners_of(seen.trail)}
        """Of which features the layer is given values."""
        self._streams = {owner for seen in layer.gave for owner in owners_of(seen.trail)}

    def name(self, module: Any) -> str:
        return "a function" if module is None else self.names.get(module, type(module).__name__)

    # Attention.

    def attention(self, hints: Iterable[nn.Module]) -> Group:
        """Return the self-attention of the layer; the only one where there is no other."""
        groups = self._groups()
        if not groups:
            raise NotSeen(self._no_attention())
        # Scores without a softmax choose what another attention attends to.
        groups = [group for group in groups if any(each.softmax for each in group.attentions)] or groups
        own = [group for group in groups if not group.crosses]
        count = len(own)
        if count > 1:
            self._one_output_each(own)
            hinted = set(hints)
            own = [g for g in own if any(giver(f.made) in hinted for f in g.parts.get("q", ()))] or own
        chosen = own or groups
        if len(chosen) > 1:
            where = ", ".join(dict.fromkeys(self.name(g.attentions[0].call.module) for g in chosen))
            raise NotSeen(
                f"This layer has {len(chosen)} attentions of its own (in {where}), and one is shown."
            )
        chosen[0].among = max(count, 1)
        return chosen[0]

    def _one_output_each(self, groups: Sequence[Group]) -> None:
        """Raise ``NotSeen`` where several attentions go into one projection: they are heads of one."""
        for made in self._flow.made:
            owners = owners_of(made.given)
            if made.attention is None and sum(bool(owners & group.gives) for group in groups) > 1:
                raise NotSeen(
                    f"This layer has {len(groups)} attentions with projections of their own, which go into "
                    "one together: there is no one tensor of queries, keys and values."
                )

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

    def _features(self, rows: Sequence[Tensor]) -> tuple[list[Features], int]:
        """Return which features of which projections the rows are; the projection of most of them first."""
        found: dict[int, dict[int, None]] = {}
        heads: dict[tuple[int, ...], None] = {}
        for row in (row for each in rows for row in each):
            by_owner, key = self._row(row)
            if key in heads:
                continue
            heads[key] = None
            for owner, features in by_owner.items():
                into = found.setdefault(owner, {})
                into.update(dict.fromkeys(features))
        if not found:
            return [], 0
        made = [
            Features(self._flow.made[owner], tuple(features), _is_whole(self._flow.made[owner], features))
            for owner, features in found.items()
        ]
        return sorted(made, key=lambda each: -len(each.indices)), len(heads)

    def _crosses(self, q: Sequence[Features], k: Sequence[Features]) -> bool | None:
        if not q or not k:
            return None
        one, other = q[0].made, k[0].made
        if one is other:
            return False
        same = _same_given(self._first(one), self._first(other))
        return None if same is None else not same

    def _first(self, made: Made) -> Made:
        """Return the first of several projections behind one another, as in latent attention."""
        seen = {made.number}
        while made.given is not None and len(made.given.planes) == 1:
            owners = owners_of(made.given)
            if len(owners) != 1:
                break
            before = self._flow.made[next(iter(owners))]
            inside = before.call is not None and before.call.inside(self.layer)
            if not inside or before.attention is not None or before.number in seen:
                break
            seen.add(before.number)
            made = before
        return made

    def context(self, group: Group) -> tuple[Call, Seen, Made]:
        """Return the call that takes what the attention gives, that tensor, and what it makes of it."""
        numbers = group.gives
        for made in self._flow.made:
            if made.inner or made.given is None or not numbers & owners_of(made.given):
                continue
            for call, _ in made.givers:
                for seen in call.given:
                    if numbers & owners_of(seen.trail):
                        return call, seen, made
            where = made.call and self.name(made.call.module)
            raise NotSeen(
                f"No module is given what the attention gives: {where} multiplies it by a weight of its own."
            )
        raise NotSeen("What the attention gives was not seen to go into a projection.")

    def attention_outputs(self, group: Group) -> list[tuple[Call, int, str]]:
        """Return calls that give what the output projection gives, the outermost first, and how."""
        numbers = group.gives
        out = next(
            (
                m
                for m in self._flow.made
                if not m.inner and m.given is not None and numbers & owners_of(m.given)
            ),
            None,
        )
        if out is None:
            raise NotSeen("What the attention gives was not seen to go into a projection.")
        found = [
            (call, seen.item, trail_words(seen.trail))
            for call in self.calls
            if call is not self.layer
            for seen in call.gave
            if is_all_of(seen.trail, out) and (out.call is None or out.call.inside(call) or out.call is call)
        ]
        if not found:
            raise NotSeen(
                "No module gives what the output projection gives: it is computed in the layer itself."
            )
        return found

    def probabilities(self, group: Group) -> list[tuple[Call, Seen, str]]:
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
        found: list[tuple[Call, Seen, str]] = []
        dropped: list[tuple[Call, Seen, str]] = []
        otherwise = set[str]()
        for call in self.calls:
            for side, all_seen in (("output", call.gave), ("input", call.given)):
                for seen in all_seen:
                    trail = seen.trail
                    if trail is None or trail.scores is not attention or len(seen.shape) < 3:
                        continue
                    notes = set(trail.notes) - EXACT
                    keys = attention.keys
                    if "cut" in trail.notes and keys is not None and seen.shape[-1] != keys.shape[-2]:
                        # What is beside the keys, such as a sink, may be cut off, but no key.
                        notes.add("being cut")
                    if not trail.softmaxed or trail.along(0, -1):
                        continue
                    if notes - {"dropout"}:
                        otherwise |= notes
                    elif len(seen.shape) != 4:
                        otherwise.add("heads and samples in one axis")
                    else:
                        (dropped if notes else found).append((call, seen, side))
        if found or dropped:
            return sorted(found or dropped, key=lambda each: (each[2] == "input", each[0].number))
        if otherwise:
            raise NotSeen(
                "No module gives or takes the probabilities as the softmax gives them, only after "
                f"{', '.join(sorted(otherwise))[:200]}."
            )
        raise NotSeen(
            "The probabilities exist only inside of a function: no module is given them or gives them."
        )

    def router(self, calls: Iterable[Call], count: int) -> tuple[Seen, str]:
        """Return what a router gives of all its experts, and what makes probabilities of that.

        This is ``softmax``, ``sigmoid`` or nothing; ``?`` where it was not seen to go through any.
        """
        for seen in (seen for call in calls for seen in call.gave):
            owners = owners_of(seen.trail)
            made = self._flow.made[next(iter(owners))] if len(owners) == 1 else None
            if seen.trail and made is not None and made.width == count and is_all_of(seen.trail, made):
                return seen, "" if bent(seen.trail) else made.scored or "?"
        raise NotSeen("The router gives no tensor with a number for each expert that could be followed.")

    def follows(self, other: LayerSeen) -> bool:
        """Return whether this layer is given what ``other`` gives, also by way of what keeps its features."""
        keys = {seen.key for seen in other.layer.gave}
        gave = {owners_of(seen.trail) for seen in other.layer.gave} - {frozenset()}
        return any(seen.key in keys or owners_of(seen.trail) in gave for seen in self.layer.given)

    def keeps(self) -> bool:
        """Return whether what the layer gives still has the features that it was given: a residual stream."""
        return bool(self.given & self._streams)

    def handed_on(self) -> Iterator[tuple[Call, Seen]]:
        """Give the modules that are given the stream with what this layer adds, where it is added outside."""
        for call in self._later:
            for seen in call.given:
                owners = owners_of(seen.trail)
                adds = self._streams and self._streams <= owners and owners & self.given
                if adds and owners <= self.given | self._own and set(seen.trail.notes) <= _SUMMED:  # type: ignore[union-attr]
                    yield call, seen

    # MLP.

    def mlps(self, attention: Group | None) -> list[tuple[Made, Gated | Features | None]]:
        """Return the last projection of each MLP of the layer, with what goes into its nonlinearity.

        That is None where it cannot be told.
        """
        taken = {a.made.number for a in self._attentions if a.made is not None}
        used = {
            f.made.number for features in (attention.parts.values() if attention else ()) for f in features
        }
        found: list[tuple[Made, Gated | Features | None]] = []
        untold: list[tuple[Made, Gated | Features | None]] = []
        for made in self._flow.made:
            trail = made.given
            if trail is None or not made.givers or made.call is None or not made.call.inside(self.layer):
                continue
            if owners_of(trail) & taken or not self.adds(made):
                continue
            first = self._gated(trail) or self._activated(trail)
            if first is None:
                if bent(trail) or any(bent(p.left) or bent(p.right) for p in trail.products):
                    untold.append((made, None))
                continue
            parts = (first.gate, first.up) if isinstance(first, Gated) else (first,)
            if not any(part.made.number in used for part in parts):
                found.append((made, first))
        return found or untold

    def adds(self, made: Made) -> bool:
        """Return whether what ``made`` gives is in what the layer gives: added to the residual stream."""
        return made.number in self._streams

    def _gated(self, trail: Trail) -> Gated | None:
        for product in reversed(trail.products):
            if not product.left.planes or not product.right.planes:
                continue
            sides = [(side, self._only(side)) for side in (product.left, product.right)]
            features = [each for _, each in sides]
            if features[0] is None or features[1] is None:
                continue
            if not all(f and f.made.call is not None and f.made.call.inside(self.layer) for f in features):
                continue
            bends = [bent(side) for side, _ in sides]
            if bool(bends[0]) == bool(bends[1]):
                continue
            gate = 0 if bends[0] else 1
            return Gated(features[gate], features[1 - gate], bends[gate])  # type: ignore[arg-type]
        return None

    def _activated(self, trail: Trail) -> Features | None:
        features = self._only(trail)
        if features is None or not bent(trail) or "gated" in trail.notes:
            return None
        inside = features.made.call is not None and features.made.call.inside(self.layer)
        return features if inside else None

    def _only(self, trail: Trail) -> Features | None:
        """Return the features of one projection that a tensor holds; None where it holds others."""
        if len(trail.planes) != 1:
            return None
        try:
            features, _ = self._features([feature_ids.rows(trail.planes)])
        except (NotSeen, feature_ids.TooLarge):
            return None
        return features[0] if len(features) == 1 and features[0].made.attention is None else None

    def _row(self, row: Tensor) -> tuple[dict[int, list[int]], tuple[int, ...]]:
        """Return the features of one head by projection, and what tells it from other heads.

        Where features were added to one another, as a rotation does, they are in the order of the projection;
        else in that in which the attention has them.
        """
        owners = feature_ids.projection_of(row).tolist()
        features = feature_ids.feature_of(row).tolist()
        found: dict[int, list[int]] = {}
        columns: dict[int, int] = {}
        for column in range(row.shape[1]):
            here = {own[column] for own in owners}
            newest = max(here)
            if newest < 0:
                continue
            if len(summands := sorted(here & self._own)) > 1:
                where = " and ".join(self.name(giver(self._flow.made[each])) for each in summands)
                raise NotSeen(f"It is the sum of what {where} give, and no module gives that sum.")
            columns[newest] = columns.get(newest, 0) + 1
            found.setdefault(newest, []).extend(
                features[plane][column] for plane in range(len(owners)) if owners[plane][column] == newest
            )
        for owner, features_here in found.items():
            distinct = list(dict.fromkeys(features_here))
            if len(distinct) != columns[owner]:
                raise NotSeen(
                    f"A head of {columns[owner]} features was seen to be a mixture of {len(distinct)}, which "
                    "cannot be told apart."
                )
            found[owner] = distinct if len(features_here) == len(distinct) else sorted(distinct)
        return found, tuple(f for owner in sorted(found) for f in (owner, *sorted(found[owner])))


def _is_whole(made: Made, features: Iterable[int]) -> bool:
    return tuple(features) == tuple(range(made.width))


def giver(made: Made) -> nn.Module | None:
    return made.givers[0][0].module if made.givers else None


def trail_words(trail: Trail | None) -> str:
    """Return what was done with features, in words."""
    notes = () if trail is None else trail.notes
    words = [_WORDS.get(note, note) for note in notes if note in _AFTER]
    if "rotated" in words:
        words = [word for word in words if word != "scaled"]
    return ", ".join(word for word in words if word)


def _same_given(one: Made, other: Made) -> bool | None:
    if one.given_key is not None and one.given_key == other.given_key:
        return True
    a, b = one.given, other.given
    if a is None or b is None or not a.planes or not b.planes:
        return None
    return same_planes(a, b)
