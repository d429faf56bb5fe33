"""Follows features through the operations of a forward pass: what is moved, changed, multiplied, attended."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from . import feature_ids as ids_of
from . import watch_operations as op
from .feature_ids import Plane
from .watch_memory import Memory
from .watch_trail import (
    MOST_PLANES,
    Attended,
    Call,
    Made,
    Product,
    Trail,
    bent,
    is_all_of,
    merged,
    origins_of,
    owners_of,
    tensors_in,
    together,
)


class Ran(NamedTuple):
    """One operation that has run; ``known`` is what it was given, with what was known of that before."""

    name: str
    func: Any
    args: Sequence[Any]
    kwargs: Any
    known: Sequence[tuple[Tensor, Trail | None]]
    result: Any

    @property
    def first(self) -> Trail | None:
        return self.known[0][1] if self.known else None

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


Step = Callable[[Any, Ran], bool]
"""Follows an operation; returns whether it could."""


class Flow(Memory):
    """What a forward pass has shown so far. ``call`` is the call of a module that is running."""

    def __init__(self) -> None:
        super().__init__()
        self.call: Call | None = None
        self.made: list[Made] = []
        self.attentions: list[Attended] = []
        self.lost: list[tuple[str, Any]] = []
        """Operations that could not be followed, each with the call in which it was."""
        self.looks = False
        """Whether what runs is our own."""
        self.failed: str | None = None
        """The error that ended the watching."""

    def begin(self, tensor: Tensor, axis: int = -1, **known: Any) -> Made:
        """Begin a new trail: ``tensor`` is what a product with a weight, or an attention, gives."""
        made = Made(len(self.made), tensor.shape[axis], axis, self.call, tuple(tensor.shape), **known)
        made.distributed = hasattr(tensor, "device_mesh")
        self.made.append(made)
        self.put(tensor, Trail((self.ids.fresh(made.number, tensor.shape, axis),), frozenset((made.number,))))
        return made

    def whole(self, trail: Trail | None) -> Made | None:
        """Return the projection of which a tensor has all features, in their order, and nothing else."""
        owners = owners_of(trail)
        made = self.made[min(owners)] if len(owners) == 1 else None
        return made if made is not None and is_all_of(trail, made) else None

    def fail(self, error: Exception) -> None:
        self.failed = f"{type(error).__name__}: {error}"[:300]
        self.forget()

    def _lose(self, name: str, known: Iterable[Trail], outputs: Iterable[Tensor]) -> None:
        known = [trail for trail in known if not trail.weight]
        if any(trail.planes or trail.scores for trail in known) and name.partition(".")[2] not in op.PLAIN:
            self.lost.append((name, self.call))
        if name.partition(".")[2] in op.EMPTY:
            known = []
        trail = Trail(origins=origins_of(known), products=together(known)) if known else None
        for output in outputs:
            self.put(output, trail)

    # Operations.

    def follow(self, func: Any, args: Sequence[Any], kwargs: Any, known: Sequence[Any], result: Any) -> None:
        """Learn from one operation that has run."""
        name, plain, step = self._kind(func)
        outputs = tensors_in(result)
        inputs = [trail for _, trail in known if trail is not None]
        changed = (
            tensors_in(args[:1]) if plain != name else tensors_in(kwargs["out"]) if "out" in kwargs else ()
        )
        if not inputs and name not in ("embedding", "convolution"):
            noise = Trail(notes=("dropout",)) if plain == "bernoulli" else None
            for output in outputs if noise else changed:
                self.put(output, noise)
                self.overwritten(output)
            return
        ran = Ran(plain, func, args, kwargs, known, result)
        try:
            told = step is not None and step(self, ran)
        except ids_of.TooLarge:
            told = False
        if not told and not self._custom_attention(ran._replace(name=name)):
            if func.namespace != "aten" and not outputs:
                # What gives nothing has written into what it was given.
                outputs = [tensor for tensor, _ in known]
            self._lose(f"{func.namespace}.{name}", inputs, outputs)
        for output in changed:
            self.overwritten(output)

    def _same(self, ran: Ran) -> bool:
        first, result = ran.first, ran.result
        cast = first is not None and ran.name == "_to_copy" and result.dtype != ran.known[0][0].dtype
        self.put(result, first.noted("cast") if first is not None and cast else first)
        return True

    def _copy(self, ran: Ran) -> bool:
        (source, target), shape = ran.known[-1], ran.result.shape
        if target is not None and target.planes and source.shape != shape:
            target = self._spread(target, ran.result)
        self.put(ran.result, target)
        return True

    def _move(self, ran: Ran) -> bool:
        name, func, args, kwargs, _, result = ran
        trail, outputs = ran.first, tensors_in(result)
        if trail is None:
            return False

        def moved(planes: Sequence[Plane]) -> list[tuple[Plane, ...]]:
            each = [self.ids.moved(name, func, args, kwargs, plane, outputs) for plane in planes]
            return list(zip(*each, strict=True)) if each else [()] * len(outputs)

        if trail.scores is None:
            for output, planes in zip(outputs, moved(trail.planes), strict=True):
                self.put(output, trail._replace(planes=planes) if planes else trail)
            return True
        note = ("cut",) if name in ("slice", "narrow", "index", "select") else ()
        marks: list[Any] = [None] * len(outputs)
        if trail.marks is not None:
            with contextlib.suppress(ids_of.TooLarge):
                marks = moved(trail.marks)
        for output, mark in zip(outputs, marks, strict=True):
            self.put(output, trail._replace(marks=mark).noted(*note))
        return True

    def _join(self, ran: Ran) -> bool:
        name, known, result = ran.name, ran.known, ran.result
        axis = ran.argument(1, "dim", 0)
        data = [trail for _, trail in known if trail is not None]
        if all(trail is not None and trail.weight for _, trail in known):
            self.put(result, Trail(weight=True))
            return True
        scores = next((trail for trail in data if trail.scores is not None), None)
        if scores is not None:
            self.put(result, scores._replace(marks=None).noted("joined"))
            return True
        if not any(trail.planes for trail in data) or name not in ("cat", "concat", "stack"):
            return False
        # An empty tensor of one axis is left out by torch.
        kept = [
            (piece, trail) for piece, trail in known if piece.ndim > 1 or piece.numel() or result.ndim == 1
        ]
        planes = []
        for number in range(max(len(trail.planes) for trail in data)):
            each = [
                (trail.planes[number] if trail is not None and len(trail.planes) > number else None, piece)
                for piece, trail in kept
            ]
            planes.append(self.ids.joined(each, axis % result.ndim, name == "stack"))
        self.put(result, merged(data, tuple(planes)))
        return True

    def _complex(self, ran: Ran) -> bool:
        """Keep the ids of complex numbers with an axis more, as their real view has them."""
        trail, result = ran.first, ran.result
        if trail is None or not trail.planes:
            return False
        if ran.name == "view_as_real" and trail.planes[0].shape != result.shape:
            return False
        self.put(result, trail)
        return True

    def _pad(self, ran: Ran) -> bool:
        trail, shape = ran.first, ran.result.shape
        if trail is None or not (trail.planes or trail.scores):
            return False
        if not trail.planes:
            self.put(ran.result, trail._replace(marks=None))
            return True

        def padded(ids: list[Tensor]) -> list[Tensor]:
            (small,) = ids_of.compact(
                ids, spare=[axis for axis, size in enumerate(ids[0].shape) if size != shape[axis]]
            )
            return [ran.func(small, ran.args[1], ids_of.NOTHING).expand(shape)]

        planes = [self.ids.made(None, [plane], padded)[0] for plane in trail.planes]
        self.put(ran.result, trail._replace(planes=tuple(planes)))
        return True

    def _embedding(self, ran: Ran) -> bool:
        table, given = ran.args[:2]
        self.begin(ran.result, given_key=self.key(given), rows=len(table))
        return True

    def _norm(self, ran: Ran) -> bool:
        if ran.first is None or ran.first.weight:
            return False
        self.put(tensors_in(ran.result)[0], ran.first.noted("normed"))
        return True

    def _dropout(self, ran: Ran) -> bool:
        self.put(ran.result[0], ran.first and ran.first.noted("dropout"))
        return True

    def _choose(self, ran: Ran) -> bool:
        for number in owners_of(ran.first):
            self.made[number].chooses = True
        return False

    # Products, attention.

    def _product(self, ran: Ran) -> bool:
        name, result = ran.name, ran.result
        one, other = op.PRODUCTS[name]
        left, right = ran.args[one], ran.args[other]
        a, b = self.of(left), self.of(right)
        if b is not None and b.weight:
            if a is not None and self._mixes(a, left, result, -1):
                return True
            # Also where both depend on parameters alone: learnt queries.
            known = None if a is None or a.weight else a
            self.begin(result, given=known, given_key=self.key(left))
            return True
        if a is None or b is None or a.weight or name == "linear":
            return False
        if a.scores is not None and b.planes:
            return self._attended(a, b, -1, result)
        if b.scores is not None and a.planes:
            return self._attended(b, a, -2, result)
        if a.planes and b.planes and left.ndim > 1 and right.ndim > 1 and not left.is_complex():
            attention = Attended(self.call, name, a, b)
            keys = self._turned(b.planes)
            attention.heads = {"q": ids_of.rows(a.planes), "k": ids_of.rows(keys)}
            if attention.heads["q"].shape[-1] != attention.heads["k"].shape[-1]:
                return False
            attention.queries, attention.keys = a.planes[0], keys[0]
            heads = self.ids.made(
                ("heads", result.shape), [a.planes[0]], lambda ids: [ids[0][..., :1].expand(result.shape)]
            )
            marks = self.ids.fresh(0, result.shape, -2), self.ids.fresh(0, result.shape), *heads
            self.put(result, Trail(origins=a.origins | b.origins, scores=attention, marks=marks))
            return True
        return False

    def _mixes(self, scores: Trail, given: Tensor, result: Tensor, axis: int) -> bool:
        """Follow a product of scores with a weight along neither queries nor keys, which mixes the heads."""
        if scores.scores is None or scores.marks is None or given.shape != result.shape:
            return False
        if scores.along(0, axis) or scores.along(1, axis):
            return False
        self.put(result, scores.noted("mixing of heads"))
        return True

    def _turned(self, planes: Sequence[Plane]) -> list[Plane]:
        """Return the ids of keys with their features last."""
        return [self.ids.made("turned", [each], lambda ids: [ids[0].mT], True)[0] for each in planes]

    def _attended(self, scores: Trail, values: Trail, axis: int, result: Tensor) -> bool:
        attention = scores.scores
        assert attention is not None
        if attention.v is not None:
            # Probabilities that are used twice.
            attention = dataclasses.replace(attention, made=None, heads=dict(attention.heads))
        rows = ids_of.rows(values.planes if axis == -1 else self._turned(values.planes))
        attention.heads = {**attention.heads, "v": rows}
        attention.v, attention.bent = values, attention.softmax or bool(bent(scores))
        if scores.along(0, axis):
            attention.exchange()
        self.attentions.append(attention)
        self._context(attention, result, axis)
        return True

    def _context(self, attention: Attended, result: Tensor, axis: int) -> None:
        """Begin the trail of what an attention gives: its features are those of one head after another."""
        made = attention.made = self.begin(result, axis, attention=attention)
        queries, width = attention.queries, result.shape[-1]
        if queries is None or axis != -1 or queries.shape[:-1] != result.shape[:-1]:
            return
        made.width = width * len(attention.heads["q"])
        plane = self.ids.of_rows(made.number, queries, width)
        self.put(result, Trail((plane,), frozenset((made.number,))))

    def _fused(self, ran: Ran) -> bool:
        trails = [trail for _, trail in ran.known[:3] if trail is not None and trail.planes]
        if len(trails) < 3:
            return False
        q, k, v = trails
        attention = Attended(self.call, ran.name, q, k, v, softmax=True, bent=True)
        attention.heads = {part: ids_of.rows(each.planes) for part, each in zip("qkv", trails, strict=True)}
        self.attentions.append(attention)
        attention.queries = q.planes[0]
        self._context(attention, tensors_in(ran.result)[0], -1)
        return True

    def _custom_attention(self, ran: Ran) -> bool:
        """Take an operation of some package as an attention where its name says so and its tensors fit."""
        name, outputs = ran.name, tensors_in(ran.result)
        if ("attention" not in name and "flash_attn" not in name) or "backward" in name or not outputs:
            return False
        shapes = [tensor.shape for tensor, _ in ran.known[:3]]
        if len(shapes) < 3 or shapes[0][:-1] != outputs[0].shape[:-1] or shapes[1] != shapes[2]:
            return False
        try:
            return self._fused(ran)
        except ids_of.TooLarge:
            return False

    def _softmax(self, ran: Ran) -> bool:
        trail, result = ran.first, ran.result
        if trail is None:
            return True
        attention = trail.scores
        if attention is None:
            self._scored(trail, "softmax")
            self.put(result, trail.noted("softmax"))
            return True
        axis = ran.argument(1, "dim")
        axis = axis if isinstance(axis, int) else -1
        attention.softmax = True
        attention.probabilities = self.key(result)
        marks = trail.marks
        if marks is not None and trail.along(0, axis):
            attention.exchange()
            marks = marks[1], marks[0], *marks[2:]
        self.put(result, Trail(origins=trail.origins, scores=attention, marks=marks, softmaxed=True))
        return True

    def _scored(self, trail: Trail, by: str) -> None:
        for number in trail.origins:
            self.made[number].scored = self.made[number].scored or by

    def _convolution(self, ran: Ran) -> bool:
        (given, trail), (_, weight) = ran.known[:2]
        result = ran.result
        if weight is None or not weight.weight:
            return False
        groups = ran.argument(8, "groups", 1)
        if groups > 1 and groups == given.shape[1] == result.shape[1]:
            if trail is None or not trail.planes:
                return False
            if any(ids_of.compact([p.layout.ids])[0].numel() != p.shape[1] for p in trail.planes):
                return False

            def one_each(ids: list[Tensor]) -> list[Tensor]:
                return [ids_of.compact(ids)[0].expand(result.shape)]

            planes = [self.ids.made(None, [plane], one_each)[0] for plane in trail.planes]
            self.put(result, trail._replace(planes=tuple(planes)).noted("convolved"))
            return True
        kernel = ran.args[1].shape[2:].numel()
        if trail is None or groups > 1 or kernel > 1 or not self._mixes(trail, given, result, 1):
            self.begin(result, 1, given=trail, given_key=self.key(given))
        return True

    # Elementwise.

    def _glu(self, ran: Ran) -> bool:
        trail, axis = ran.first, ran.argument(1, "dim", -1)
        if trail is None or not trail.planes:
            return False
        halves = [
            self.ids.made(("glu", axis), [plane], lambda ids: ids[0].chunk(2, axis)) for plane in trail.planes
        ]
        up, gate = (trail._replace(planes=planes) for planes in zip(*halves, strict=True))
        self.put(ran.result, up._replace(products=(*up.products, Product(up, gate.noted("sigmoid")))))
        return True

    def _sum(self, ran: Ran) -> bool:
        """Follow a rotation by small matrices: each pair is there once a row of its matrix, and summed.

        Any other sum has no features any more.
        """
        trail, axes = ran.first, ran.argument(1, "dim")
        if trail is None or len(trail.planes) != 1 or "scaled" not in trail.notes or bent(trail):
            return False
        if not axes or len(axes) > 1:
            return False
        shape, strides = trail.planes[0].shape, trail.planes[0].layout.ids.stride()
        axis = axes[0] % len(shape)
        alike = axis and strides[axis - 1] == 0 and shape[axis - 1] == shape[axis]
        if not alike or not strides[axis] or shape[axis] > MOST_PLANES or ran.result.ndim == len(shape):
            return False
        planes = self.ids.made(("unbind", axis), trail.planes, lambda ids: ids[0].unbind(axis))
        self.put(ran.result, trail._replace(planes=tuple(planes)).noted("rotated"))
        return True

    def _spread(self, trail: Trail, result: Tensor) -> Trail:
        """Return what is known in the shape of a result; ids of a complex one have an axis more."""
        shape = result.shape
        if result.is_complex():
            shape = torch.Size((*shape, trail.planes[0].shape[-1]))
        return trail._replace(planes=tuple([self.ids.expanded(plane, shape) for plane in trail.planes]))

    def _unary(self, ran: Ran) -> bool:
        return self._pointwise(ran._replace(known=ran.known[:1]))

    def _pointwise(self, ran: Ran) -> bool:
        name, known = ran.name, ran.known
        (result, *_) = tensors_in(ran.result)
        data = [trail for _, trail in known if trail is not None and not trail.weight]
        others = [(tensor, trail) for tensor, trail in known if trail is None or trail.weight]
        if len(kept := [trail for trail in data if not trail.is_noise]) < len(data):
            name, data = "dropout", kept or data
        if not data:
            large = any(
                t.numel() > result.numel() or (trail is None and t.numel() > 1) for t, trail in others
            )
            self.put(result, None if large else Trail(weight=True))
            return True
        scores = next((trail for trail in data if trail.scores is not None), None)
        if scores is not None:
            marks = scores.marks
            if marks is not None and marks[0].shape != result.shape:
                marks = tuple([self.ids.expanded(mark, result.shape) for mark in marks])
            self.put(result, scores._replace(marks=marks).noted(name))
            return True
        featured = [trail for trail in data if trail.planes]
        if name in op.NONLINEAR:
            self._scored(data[0], name)
        if not featured:
            self.put(result, Trail(origins=origins_of(data), products=together(data), notes=data[0].notes))
            return True
        trail = combined(name, data, featured, others)
        if trail.planes[0].shape != result.shape or len(known) > 1:
            trail = self._spread(trail, result)
        self.put(result, trail)
        return True

    # Which operation is what.

    _STEPS: ClassVar[dict[str, Step]] = {
        name: step
        for names, step in (
            (op.SAME, _same),
            (("copy",), _copy),
            (op.RESHAPES | op.MOVES | op.COPIES, _move),
            (op.JOINS, _join),
            (("view_as_complex", "view_as_real"), _complex),
            (("constant_pad_nd",), _pad),
            (op.PRODUCTS, _product),
            (("convolution", "_convolution"), _convolution),
            (("embedding",), _embedding),
            (("_flash_attention_forward", "_efficient_attention_forward"), _fused),
            (op.SOFTMAX, _softmax),
            (op.NORMS, _norm),
            (("native_dropout",), _dropout),
            (("sum",), _sum),
            (("glu",), _glu),
            (op.TIMES | op.SUMS | op.LINEAR_UNARY, _pointwise),
        )
        for name in names
    }
    _UNLESS_POINTWISE: ClassVar[dict[str, Step]] = {
        **dict.fromkeys(op.UNARY, _unary),
        **dict.fromkeys(op.CHOICES, _choose),
    }
    _kinds: ClassVar[dict[Any, tuple[str, str, Step | None]]] = {}

    def _kind(self, func: Any) -> tuple[str, str, Step | None]:
        """Return an operation's name, the same of one that is not in place, and what follows it."""
        if (known := self._kinds.get(func)) is None:
            name = func.overloadpacket.__name__
            plain = name[:-1] if name[-1] == "_" and name[-2:] != "__" else name
            step = self._STEPS.get(plain)
            if func.namespace != "aten":
                step = None
            elif op.ATTENTION in plain:
                step = self._STEPS["_flash_attention_forward"]
            elif step is None:
                pointwise = torch.Tag.pointwise in func.tags
                step = self._STEPS["mul"] if pointwise else self._UNLESS_POINTWISE.get(plain)
            known = self._kinds[func] = name, plain, step
        return known


def combined(name: str, data: Sequence[Trail], featured: Sequence[Trail], others: Sequence[Any]) -> Trail:
    """Return what is known of the result of an elementwise operation of several tensors.

    ``data`` depends on what the model was given, ``featured`` of that holds features; ``others`` are
    constants and weights.
    """
    first = featured[0]
    if name == "dropout":
        return first.noted(name)
    if name in op.TIMES or name == "pow":
        if len(featured) > 1:
            one, other = featured[:2]
            if len(one.planes) == len(other.planes) == 1 and one.planes[0].same(other.planes[0]):
                return merged((one, other), one.planes).noted(
                    *(() if bent(one) or bent(other) else ("squared",))
                )
            product = Product(one, other)
            # One that is the same at all positions is a gate.
            smaller = one.planes[0].shape.numel() < other.planes[0].shape.numel()
            keep = other if smaller or (bent(one) and not bent(other)) else one
            return keep._replace(
                origins=one.origins | other.origins, products=(*together((one, other)), product)
            ).noted("gated")
        if len(data) > 1:
            inside = any(each.origins & first.origins for each in data if each is not first)
            both = origins_of(data)
            if not inside:
                product = Product(first, next(each for each in data if each is not first))
                return first._replace(origins=both, products=(*together(data), product)).noted("gated")
            return first._replace(origins=both).noted("normed")
        if name == "pow":
            return first.noted("pow")
        if any(tensor.is_complex() for tensor, _ in others):
            return first.noted("rotated")
        return first.noted("scaled")
    if len(featured) > 1:
        planes: list[Plane] = []
        for plane in (plane for trail in featured for plane in trail.planes):
            if not any(map(plane.same, planes)):
                planes.append(plane)
        newest = sorted(planes, key=lambda plane: max(plane.owners, default=-1))[-MOST_PLANES:]
        joined = merged(featured, tuple(plane for plane in planes if any(plane is each for each in newest)))
        owners = {each for trail in featured for each in trail.origins}
        if len(planes) == 1:
            return joined
        return joined.noted("rotated" if len(owners) == 1 else "added")
    if len(data) > 1 or name in op.SUMS or name in op.LINEAR_UNARY or others:
        if name in op.SUMS and any(tensor.numel() > 1 for tensor, _ in others):
            first = first.noted("shifted")
        return first if len(data) == 1 else merged((first, *data), first.planes)
    return first.noted(name)
